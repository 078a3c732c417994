import Crypto
import Messaging

/// Inboxes that sleep and wake: the shell's part, from what is durable or on its way there.
extension Simulation {
    /// An inbox that could not be used after all.
    func drop(_ node: SimulatedNode, _ client: ClientID) {
        node.core.remove(client)
        node.forget(client)
        write(.destroy(client), node)
    }

    /// Our own messages that are not acknowledged, as the disk has them.
    func undelivered(_ node: SimulatedNode, _ client: ClientID) -> [Message] {
        (node.disk.messages[client] ?? [:]).values
            .filter { $0.sender == nil && $0.content.type == .text && $0.state.isWaiting }
            .sorted { ($0.content.sentAt, $0.content.id) < ($1.content.sentAt, $1.content.id) }
    }

    func wake(_ node: SimulatedNode, _ client: ClientID, _ reason: WakeReason) {
        guard node.core.isSleeping(client), !node.isLocked, let inbox = node.disk.inboxes[client] else { return }
        let undelivered = undelivered(node, client)
        step(node) { core, turn in
            do throws(CommandError) {
                let actions = try core.wake(inbox.record, key: inbox.key, undelivered: undelivered, reason, &turn)
                count("wakes \(reason.rawValue)")
                return actions
            } catch {
                count("refused wakes")
                return []
            }
        }
        // Twice the capacity is the end of it, but for what is due at a moment.
        if reason != .activityRanking, !isCalm, node.core.awakeCount > 2 * node.core.capacity + 4 {
            violation("I7 node \(node.index) has \(node.core.awakeCount) inboxes awake of \(node.core.capacity)")
        }
    }

    /// Everything but what is in memory only goes; the machine must come back from the disk.
    func sleep(_ node: SimulatedNode, _ client: ClientID) {
        guard let record = node.core.record(client), let key = node.keys[client] else { return }
        count("sleeps")
        if let machine = node.core.conversation(client), machine.heldByteCount > 0 {
            violation("node \(node.index) puts an inbox to sleep that holds unread contents")
        }
        write(.save(client, Disk.Inbox(record: record, key: key)), node)
        var turn = turn(node)
        node.core.fallAsleep(client, &turn)
        node.random = turn.random
    }

    func sleepOrRebalance(_ node: SimulatedNode, _ client: ClientID) {
        if chance(70) {
            step(node) { core, turn in (try? core.sleep(client, &turn)) ?? [] }
        } else {
            count("rebalances")
            step(node) { core, turn in core.rebalance(&turn).actions }
        }
    }

    /// Whose messages have not arrived, although the other side is there; `nil` when all have.
    func undeliveredConversation() -> String? {
        struct Side {
            var node: Int
            var own: PublicKey
            /// Where it looks for each.
            var members: [PublicKey: [Endpoint]]
            /// For whom messages wait here.
            var waiting: Set<PublicKey>
            /// It sleeps, and cannot be woken: as many as may be are awake at its node, and nobody may put them to sleep.
            var isStuck = false
        }
        var sides: [ConversationID: [Side]] = [:]
        for node in nodes {
            for machine in node.core.conversations {
                sides[machine.conversation, default: []].append(
                    Side(
                        node: node.index,
                        own: machine.key.publicKey,
                        members: places(machine.currentMembers),
                        waiting: Set(
                            machine.currentMembers.map(\.key).filter { !machine.outbox(to: $0).isEmpty }
                        )
                    )
                )
            }
            let awake = node.core.conversations.map(\.client)
            let isFull = awake.count >= 2 * node.core.capacity && !awake.contains { node.core.protection($0).isEmpty }
            for summary in node.core.sleepers {
                sides[summary.conversation, default: []].append(
                    Side(
                        node: node.index,
                        own: summary.own,
                        members: places(saved(node, summary)),
                        waiting: Set(
                            undelivered(node, summary.client).flatMap(\.deliveries).filter { $0.state == .queued }
                                .map(\.member)
                        ),
                        isStuck: isFull
                    )
                )
            }
        }
        func isFound(_ one: Side, by other: Side) -> Bool {
            other.members[one.own]?.contains(nodes[one.node].endpoint) ?? false
        }
        for conversation in sides.keys.sorted() {
            let all = sides[conversation]!
            for side in all where !side.waiting.isEmpty && !side.isStuck {
                // Whoever finds it or is found by it, and so on: those that have moved are found through others.
                var near = [side]
                var rest = all.filter { $0.own != side.own }
                while let next = rest.firstIndex(where: { other in
                    near.contains { known in
                        known.members[other.own] != nil && other.members[known.own] != nil
                            && (isFound(known, by: other) || isFound(other, by: known))
                    }
                }) {
                    near.append(rest.remove(at: next))
                }
                if let other = near.dropFirst().first(where: {
                    !$0.isStuck && side.waiting.contains($0.own) && side.members[$0.own] != nil
                        && $0.members[side.own] != nil
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

    private func saved(_ node: SimulatedNode, _ summary: InboxSummary) -> [Member] {
        guard case .conversation(let record)? = node.disk.inboxes[summary.client]?.record.role else { return [] }
        return record.current
    }

    private func places(_ members: [Member]) -> [PublicKey: [Endpoint]] {
        Dictionary(members.map { ($0.key, $0.endpoints) }) { first, _ in first }
    }
}
