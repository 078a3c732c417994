import Crypto

/// The seeds of our places at rendezvous nodes in one conversation, and when one of them may be given up.
struct RelayPlaces: Sendable {
    /// The present one first, then those that some may still use; never empty once noted with a key that is there.
    private(set) var seeds: [RelaySeed] = []
    private var generations: [UInt64] = []
    /// When a generation begins or may end; `nil` for never.
    private(set) var deadline: Timestamp?

    /// After each change of ``ConversationRecord/relay``.
    mutating func note(_ relay: RelayGenerations, _ issuer: IssuerStateMachine?, key: IdentityKey, now: Timestamp) {
        let known = [relay.current] + relay.retired.map(\.generation).reversed()
        // Without our key the places stay as they are; the unlock makes up for it.
        if generations != known, !key.isWiped {
            let old = Dictionary(zip(generations, seeds)) { first, _ in first }
            seeds = known.map { old[$0] ?? RelaySeed(key: key, generation: $0) }
            generations = known
        }
        let isHeld = !relay.retired.isEmpty
        let named = isHeld ? issuer?.relayGenerations(now: now) ?? [] : []
        let expiry = isHeld ? issuer?.nextRelayExpiry(now: now) : nil
        deadline = [relay.nextDeadline(named: named), expiry].compactMap { $0 }.min()
    }
}
