import Cryptography
import Messaging

/// A period without links, in which everything goes through the mailbox.
extension Simulation {
    private struct Way {
        let sender: Side
        let receiver: Side
        /// The receiver's acknowledgement has a box to go to.
        let isAnswered: Bool
        /// Longest time that a text may wait unopened.
        let unread: Milliseconds
        var message: MessageID?
    }

    func client(of key: PublicKey) -> ClientID? {
        for node in nodes {
            if let client = node.keys.first(where: { $0.value.publicKey == key })?.key { return client }
        }
        return nil
    }

    /// Parts all nodes until everything that boxes can carry has arrived, or an hour has passed.
    func part() {
        for node in nodes { wakeAll(node) }
        // Members that find each other now exchange slice keys and claim boxes.
        let start = time
        while time < start + 10 * .minute, !hasConverged { run(until: time + 5 * .second) }
        run(until: time + 2 * Limits.sliceRequestPatience)
        isParted = true
        note("parted")
        for id in links.keys.sorted() {
            breakLink(id)
            for end in 0..<2 { tellClosed(id, end) }
        }
        let ways = ways()
        let partedAt = time
        let returns = leave()
        let texts = send(on: ways)
        explodeParted()
        for (node, at) in returns.sorted(by: { ($0.value, $0.key) < ($1.value, $1.key) }) {
            run(until: at)
            comeBack(nodes[node])
        }
        let end = time + .hour
        // A text that expires before its receiver returns does not arrive.
        let awaited = texts.filter { text in
            returns[text.receiver.node.index].map { $0 - partedAt + .hour < text.unread } ?? true
        }
        while time < end {
            run(until: time + 30 * .second)
            for node in nodes { for client in node.core.clients { read(node, client) } }
            if unrestOfParted(awaited) == nil { break }
        }
        if mailbox.conduct == .honest, let unrest = unrestOfParted(awaited) { violation("liveness, parted: \(unrest)") }
        isParted = false
        note("parted no more")
    }

    /// Some nodes go off for minutes or hours. Returns their return times.
    private func leave() -> [Int: Int64] {
        var result: [Int: Int64] = [:]
        for node in nodes where chance(40) {
            count("nodes away")
            let longest: [Milliseconds] = [10 * .minute, 2 * .hour, 5 * .hour]
            crash(node, returns: false)
            result[node.index] = time + 1 + roll(one(of: longest))
        }
        return result
    }

    private func comeBack(_ node: SimulatedNode) {
        if chance(20) { setBack(node) }
        start(node)
        wakeAll(node)
    }

    func wakeAll(_ node: SimulatedNode) {
        step(node) { core, turn in core.setCapacity(Limits.inboxCapacityMaximum, now: turn.now) }
    }

    /// All pairs (sender, receiver) where the sender knows the receiver's box and key.
    private func ways() -> [Way] {
        sides().flatMap { sides in sides.flatMap { one in sides.compactMap { way(from: one, to: $0) } } }
    }

    private func way(from one: Side, to other: Side) -> Way? {
        guard one.places(of: other) != nil, one.machine.isMailable(other.own, now: one.node.now(time)),
            let agreement = one.machine.agreement, other.machine.agreement?.id == agreement.id,
            other.places(of: one) != nil
        else { return nil }
        return Way(
            sender: one, receiver: other, isAnswered: other.machine.isMailable(one.own, now: other.node.now(time)),
            // A receiver with a cap keeps it no longer than its sender.
            unread: min(SliceSchedule(agreement.terms).unread, agreement.terms.lifetime.milliseconds ?? .max))
    }

    /// Sends a text in each conversation with a way; nodes that are off send none.
    private func send(on ways: [Way]) -> [Way] {
        var sent: [ClientID: MessageID] = [:]
        for client in Set(ways.map(\.sender.machine.client)).sorted() {
            guard let node = nodes.first(where: { $0.core.conversation(client) != nil }) else { continue }
            sent[client] = send("parted", node, client)
        }
        return ways.compactMap { way in
            guard let message = sent[way.sender.machine.client] else { return nil }
            count("parted texts")
            var way = way
            way.message = message
            return way
        }
    }

    /// Some creators end a conversation whose members have boxes.
    private func explodeParted() {
        for node in nodes {
            for machine in node.core.conversations where machine.isCreator && chance(30) {
                guard machine.currentMembers.contains(where: { $0.mailbox != nil }) else { continue }
                count("parted explosions")
                command(node, machine.client) { try $0.explode(at: nil, isTraceless: false, &$1) }
            }
        }
    }

    /// A text that has not arrived by box; `nil` when all have.
    private func unrestOfParted(_ texts: [Way]) -> String? {
        for text in texts {
            let (sender, receiver, theirs) = (text.sender.node, text.receiver.node, text.receiver.machine.client)
            // An explosion may have come first.
            guard let message = text.message, let machine = sender.core.conversation(text.sender.machine.client),
                receiver.disk.inboxes[theirs] != nil
            else { continue }
            let place = "of node \(sender.index) for node \(receiver.index)"
            guard receiver.seen[theirs]?.contains(message) == true else { return "a text \(place) has not come by box" }
            let isWaiting = machine.outboxEntry(message, to: text.receiver.own) != nil
            if text.isAnswered, isWaiting, !oracle.doubtful.contains(message) {
                return "a text \(place) is not acknowledged by box"
            }
        }
        for node in nodes {
            for (conversation, list) in node.durable.mailNotices {
                guard let tombstone = node.core.tombstone(conversation), !tombstone.isTraceless else { continue }
                for notice in list.notices where tombstone.confirmed[notice.member] == nil {
                    guard mailbox.owners[notice.address.box] != nil, let client = self.client(of: notice.member),
                        let receiver = nodes.first(where: { $0.keys[client] != nil }),
                        receiver.core.conversation(client)?.currentMembers.contains(where: { $0.key == list.sender })
                            == true, !isToCome(tombstone, receiver)
                    else { continue }
                    return "node \(receiver.index) does not know of an explosion at node \(node.index) by its box"
                }
            }
        }
        return nil
    }
}
