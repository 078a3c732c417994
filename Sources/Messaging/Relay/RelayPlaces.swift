import Cryptography

/// The seeds of a conversation's reservations at rendezvous nodes, and their deadlines.
struct RelayPlaces: Sendable {
    /// The current seed first, then retired ones still in use. Never empty after a `note` with the key present.
    private(set) var seeds: [RelaySeed] = []
    private var generations: [UInt64] = []
    private(set) var deadline: Timestamp?

    /// Call after each change of ``ConversationRecord/relay``.
    mutating func note(_ relay: RelayGenerations, _ issuer: InviteBook?, key: IdentityKey, now: Timestamp) {
        let known = [relay.current] + relay.retired.map(\.generation).reversed()
        // While locked, seeds cannot be derived; the unlock calls this again.
        if generations != known, !key.isWiped {
            let old = Dictionary(zip(generations, seeds)) { first, _ in first }
            seeds = known.map { old[$0] ?? RelaySeed(key: key, generation: $0) }
            generations = known
        }
        let isHeld = !relay.retired.isEmpty
        let named = isHeld ? issuer?.relayGenerations(now: now) ?? [] : []
        let expiry = isHeld ? issuer?.nextRelayExpiry(now: now) : nil
        deadline = earliest(relay.nextDeadline(named: named), expiry)
    }
}
