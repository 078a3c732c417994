import Cryptography
import Messaging

/// The shell's part of sleeping and waking inboxes, from durable or pending state.
extension Simulation {
    /// Removes an inbox whose beginning failed.
    func drop(_ node: SimulatedNode, _ client: ClientID) {
        node.core.remove(client)
        node.forget(client)
        destroy(client, node)
    }

    func undelivered(_ node: SimulatedNode, _ client: ClientID) -> [Message] {
        (node.disk.messages[client] ?? [:]).values.filter {
            $0.sender == nil && $0.content.type == .text && $0.state.isWaiting
        }.sorted { ($0.content.sentAt, $0.content.id) < ($1.content.sentAt, $1.content.id) }
    }

    func wake(_ node: SimulatedNode, _ client: ClientID, _ reason: WakeReason) {
        guard node.core.isSleeping(client), !node.isLocked, let inbox = node.disk.inboxes[client] else { return }
        let undelivered = undelivered(node, client)
        step(node) { core, turn in
            count("wakes \(reason.rawValue)")
            return core.wake(inbox.record, key: inbox.key, undelivered: undelivered, reason, &turn)
        }
        let now = node.now(time)
        node.wokenAt[client] = now
        // At most twice the capacity may be awake, besides protected and recently woken inboxes.
        let served = node.core.conversations.map(\.client).filter { client in
            node.core.protection(client).isEmpty
                && node.wokenAt[client].map { now - $0 >= Limits.inboxStayForToken } ?? false
        }
        if reason != .activityRanking, served.count > 2 * node.core.capacity {
            violation("I7 node \(node.index) has \(served.count) inboxes awake of \(node.core.capacity)")
        }
    }

    /// Drops everything in memory; the machine must be restored from the disk.
    func sleep(_ node: SimulatedNode, _ client: ClientID) {
        guard node.core.record(client) != nil, node.keys[client] != nil else { return }
        count("sleeps")
        if let machine = node.core.conversation(client), machine.heldByteCount > 0 {
            violation("node \(node.index) puts an inbox to sleep that holds unread contents")
        }
        save(client, node)
        var turn = turn(node)
        node.core.fallAsleep(client, &turn)
        node.random = turn.random
    }

    func sleepOrRebalance(_ node: SimulatedNode, _ client: ClientID) {
        if chance(70) {
            step(node) { core, turn in _ = try? core.sleep(client, &turn) }
        } else {
            count("rebalances")
            step(node) { core, turn in core.rebalance(&turn) }
        }
    }

    /// A conversation with an undelivered message although its receiver is reachable; `nil` if there is none.
    func undeliveredConversation() -> String? {
        struct Side {
            var node: Int
            var own: PublicKey
            var members: [PublicKey: [Endpoint]]
            var waiting: Set<PublicKey>
        }
        var sides: [ConversationID: [Side]] = [:]
        for node in nodes {
            for machine in node.core.conversations {
                sides[machine.conversation, default: []].append(
                    Side(
                        node: node.index, own: machine.key.publicKey, members: places(machine.currentMembers),
                        waiting: Set(machine.currentMembers.map(\.key).filter { !machine.outbox(to: $0).isEmpty })))
            }
            for summary in node.core.sleepers {
                sides[summary.conversation, default: []].append(
                    Side(
                        node: node.index, own: summary.own, members: places(saved(node, summary)),
                        waiting: Set(
                            undelivered(node, summary.client).flatMap(\.deliveries).filter { $0.state == .queued }.map(
                                \.member))))
            }
        }
        func isFound(_ one: Side, by other: Side) -> Bool {
            other.members[one.own]?.contains(nodes[one.node].endpoint) ?? false
        }
        for conversation in sides.keys.sorted() {
            let all = sides[conversation]!
            for side in all where !side.waiting.isEmpty {
                // The reachable members: those that find each other directly or through others.
                var near = [side]
                var rest = all.filter { $0.own != side.own }
                while let next = rest.firstIndex(where: { other in
                    near.contains { known in
                        known.members[other.own] != nil && other.members[known.own] != nil
                            && (isFound(known, by: other) || isFound(other, by: known))
                    }
                }) { near.append(rest.remove(at: next)) }
                if let other = near.dropFirst().first(where: {
                    side.waiting.contains($0.own) && side.members[$0.own] != nil && $0.members[side.own] != nil
                }) {
                    for one in near {
                        let places = one.members.map { "\($0.key.shortName) at \($0.value)" }.sorted()
                        log("  \(one.own.shortName) of node \(one.node) knows \(places)")
                    }
                    return "node \(side.node) has messages for node \(other.node)"
                }
            }
        }
        return nil
    }

    /// A difference between the members of a live session although one has announced its state; `nil` if there is none.
    func unheardWord() -> String? {
        var sides: [ConversationID: [(SimulatedNode, Conversation)]] = [:]
        for node in nodes {
            for machine in node.core.conversations { sides[machine.conversation, default: []].append((node, machine)) }
            for summary in node.core.sleepers {
                guard let inbox = node.disk.inboxes[summary.client],
                    let machine = node.core.preview(
                        inbox.record, key: inbox.key, undelivered: undelivered(node, summary.client),
                        now: node.now(time))
                else { continue }
                sides[summary.conversation, default: []].append((node, machine))
            }
        }
        for conversation in sides.keys.sorted() {
            let both = sides[conversation]!
            guard both.count == 2, both.allSatisfy({ $1.sessionGoesOn && $1.currentMembers.count == 1 }) else {
                continue
            }
            for (index, (node, one)) in both.enumerated() {
                let (other, two) = both[1 - index]
                guard one.currentMembers[0].key == two.key.publicKey, two.currentMembers[0].key == one.key.publicKey,
                    [
                        one.currentMembers[0].endpoints.contains(other.endpoint),
                        two.currentMembers[0].endpoints.contains(node.endpoint),
                    ].contains(true)
                else { continue }
                if one.agreement?.id != two.agreement?.id {
                    return "nodes \(node.index) and \(other.index) are under different agreements"
                }
                if let open = one.pendingProposal, open.isOurs, two.pendingProposal?.proposal != open.proposal {
                    return "node \(other.index) does not know what node \(node.index) has proposed"
                }
                if one.groupDigest != two.groupDigest {
                    return "nodes \(node.index) and \(other.index) know different things of their group"
                }
            }
        }
        return nil
    }

    private func saved(_ node: SimulatedNode, _ summary: InboxSummary) -> [Member] {
        guard case .conversation(let record)? = node.disk.inboxes[summary.client]?.record.role else { return [] }
        return record.current
    }

    private func places(_ members: [Member]) -> [PublicKey: [Endpoint]] {
        Dictionary(members.map { ($0.key, $0.endpoints) }) { first, _ in first }
    }
}
