import Primitives

/// Places of inboxes at rendezvous nodes: one for each, awake or asleep, and for each tombstone.
extension NodeStateMachine {
    /// For what a stream at a rendezvous node of ours is.
    package enum RelayTarget: Hashable, Sendable {
        case inbox(ClientID)
        case tombstone(ConversationID)
    }

    /// `nil` for a reservation that we do not have, or no longer.
    /// - Parameter rendezvous: who has announced the stream.
    package func relayTarget(of reservation: ReservationID, at rendezvous: PublicKey) -> RelayTarget? {
        guard let contact, let seed = contact.seed(of: reservation, at: rendezvous) else { return nil }
        if seed == contact.cardSeed { return .inbox(contact.client) }
        if let client = inboxes.client(of: seed) { return .inbox(client) }
        return explosions.relaySeeds[seed].map { .tombstone($0) }
    }

    /// Over which link a rendezvous node of ours speaks.
    package func remote(of link: LinkID) -> PublicKey? { links[link]?.remote }

    var isRelayDue: Bool { inboxes.usesRendezvous && (inboxes.relaysHaveChanged || explosions.relaysHaveChanged) }

    /// Tells the contact inbox for which inboxes there are to be places, the oldest first.
    package mutating func settleRelays(_ turn: inout Turn) -> [NodeAction] {
        guard isRelayDue else { return [] }
        inboxes.relaysHaveChanged = false
        explosions.relaysHaveChanged = false
        let present = clients.flatMap { inboxes.relaySeeds(of: $0) }
        let past = explosions.records.flatMap(\.relaySeeds)
        return withContact(&turn) { contact, _ in contact.want(present + past) }
    }
}
