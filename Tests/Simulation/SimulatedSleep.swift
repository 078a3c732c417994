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

    struct Side {
        let node: SimulatedNode
        let machine: Conversation
        var own: PublicKey { machine.key.publicKey }

        /// `nil` for no member.
        func places(of other: Side) -> [Endpoint]? { machine.currentMembers.first { $0.key == other.own }?.endpoints }

        /// Also one that is no member any more.
        func knows(_ other: Side) -> Bool {
            let known = machine.record.members.first { $0.key == other.own }
            return known?.endpoints.contains(other.node.endpoint) ?? false
        }

        func finds(_ other: Side) -> Bool { places(of: other)?.contains(other.node.endpoint) ?? false }
    }

    /// The sides of each conversation.
    /// - Parameter withSleepers: Also those that are asleep, as they would wake.
    func sides(withSleepers: Bool = false) -> [[Side]] {
        var sides: [ConversationID: [Side]] = [:]
        for node in nodes {
            let asleep = (withSleepers ? node.core.sleepers : []).compactMap { summary in
                node.disk.inboxes[summary.client].flatMap { inbox in
                    node.core.preview(
                        inbox.record, key: inbox.key, undelivered: undelivered(node, summary.client),
                        now: node.now(time))
                }
            }
            for machine in node.core.conversations + asleep {
                sides[machine.conversation, default: []].append(Side(node: node, machine: machine))
            }
        }
        return sides.sorted { $0.key < $1.key }.map(\.value)
    }

    /// A conversation with an undelivered message although its receiver is reachable; `nil` if there is none.
    private func undelivered(_ all: [Side]) -> String? {
        for side in all where side.machine.outboxCount > 0 {
            // The reachable members: those that find each other directly or through others.
            var near = [side]
            var rest = all.filter { $0.own != side.own }
            while let next = rest.firstIndex(where: { other in
                near.contains { known in
                    known.places(of: other) != nil && other.places(of: known) != nil
                        && (known.finds(other) || other.finds(known))
                }
            }) { near.append(rest.remove(at: next)) }
            let other = near.dropFirst().first { other in
                !side.machine.outbox(to: other.own).isEmpty && side.places(of: other) != nil
                    && other.places(of: side) != nil
            }
            if let other { return "node \(side.node.index) has messages for node \(other.node.index)" }
        }
        return nil
    }

    /// A difference between the members of a live session although one has announced its state; `nil` if there is none.
    private func unheard(_ all: [Side]) -> String? {
        guard all.count == 2, all.allSatisfy({ $0.machine.sessionGoesOn && $0.machine.currentMembers.count == 1 }),
            all[0].places(of: all[1]) != nil, all[1].places(of: all[0]) != nil,
            all[0].finds(all[1]) || all[1].finds(all[0])
        else { return nil }
        for (one, other) in [(all[0], all[1]), (all[1], all[0])] {
            let names = "nodes \(one.node.index) and \(other.node.index)"
            if one.machine.agreement?.id != other.machine.agreement?.id {
                return "\(names) are under different agreements"
            }
            if let open = one.machine.pendingProposal, open.isOurs,
                other.machine.pendingProposal?.proposal != open.proposal
            {
                return "node \(other.node.index) does not know what node \(one.node.index) has proposed"
            }
            if one.machine.groupDigest != other.machine.groupDigest {
                return "\(names) know different things of their group"
            }
        }
        return nil
    }

    /// Messages that have not arrived although they could; `nil` if all have.
    func waiting() -> String? {
        let all = sides(withSleepers: true)
        return all.lazy.compactMap(undelivered).first ?? all.lazy.compactMap(unheard).first
    }
}
