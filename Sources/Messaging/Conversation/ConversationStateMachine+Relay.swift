import Primitives

/// Our places at rendezvous nodes: another when a member is gone, and the earlier one for as long as it is needed.
extension ConversationStateMachine {
    /// After members are gone: they know where we can be reached, and are to know it no longer. The caller saves.
    mutating func changeRelay(_ turn: inout Turn) -> [NodeAction] {
        guard !record.isRemoved else { return [] }
        record.relay.memberGone(now: turn.now)
        noteRelay(now: turn.now)
        return endpointsChanged(&turn) + pruneRelay(turn)
    }

    /// Gives earlier places up that no member and no invite needs.
    mutating func pruneRelay(_ turn: Turn) -> [NodeAction] {
        guard !record.relay.retired.isEmpty else { return [] }
        let named = issuer?.relayGenerations(now: turn.now) ?? []
        // Who was removed tells nobody of another place: the creator may know an earlier one.
        let isTold = isFound && !record.isRemoved
        let isLess = record.relay.prune(isTold: isTold, named: named, now: turn.now)
        noteRelay(now: turn.now)
        return isLess ? [.save(client)] : []
    }

    mutating func advanceRelay(_ turn: inout Turn) -> [NodeAction] {
        guard record.relay.advance(now: turn.now) else { return pruneRelay(turn) }
        noteRelay(now: turn.now)
        return [.save(client)] + endpointsChanged(&turn) + pruneRelay(turn)
    }

    /// After each change of ``ConversationRecord/relay``.
    mutating func noteRelay(now: Timestamp) {
        let generations = [record.relay.current] + record.relay.retired.map(\.generation).reversed()
        // Without our key the places stay as they are; the unlock makes up for it.
        if relayGenerations != generations, !key.isWiped {
            let known = Dictionary(zip(relayGenerations, relaySeeds)) { first, _ in first }
            relaySeeds = generations.map { known[$0] ?? RelaySeed(key: key, generation: $0) }
            relayGenerations = generations
        }
        let isHeld = !record.relay.retired.isEmpty
        let named = isHeld ? issuer?.relayGenerations(now: now) ?? [] : []
        let expiry = isHeld ? issuer?.nextRelayExpiry(now: now) : nil
        relayDeadline = [record.relay.nextDeadline(named: named), expiry].compactMap { $0 }.min()
    }

    /// Of the present generation.
    var relaySeed: RelaySeed { relaySeeds[0] }
}
