import Crypto
import Logging
import Messaging

/// The rendezvous nodes by which others reach this node, and what it does for others as one.
final class RendezvousNodes: CorePart {
    let core: ProtocolCore
    private let peers: PeerBook
    private let addresses: OwnAddresses
    private let mailboxes: Mailboxes
    /// What the log has last said of each.
    private var noted: [RendezvousNote] = []

    init(_ core: ProtocolCore, _ peers: PeerBook, _ addresses: OwnAddresses, _ mailboxes: Mailboxes) {
        self.core = core
        self.peers = peers
        self.addresses = addresses
        self.mailboxes = mailboxes
    }

    /// The configuration or the peers have changed, or the contact inbox is there.
    func changed() {
        guard core.machine.contact != nil else { return }
        serve()
        mailboxes.changed()
        // They are dialled now.
        core.turn { core.machine.advance(&$0) }
    }

    /// The inboxes have been loaded.
    func use() {
        serve()
        mailboxes.notices.load()
        mailboxes.changed()
        addresses.forgetRelayPlaces()
    }

    /// Says whom this node serves, and who serves it.
    private func serve() {
        let terms = terms
        let cards = peers.peers.compactMap { $0.isRendezvous && !$0.isBlocked ? $0.card : nil }
        core.turn {
            core.machine.withContact(&$0) { contact, turn in
                contact.serve(terms, turn) + contact.use(rendezvous: cards, turn)
            } + core.machine.settleRelays(&$0)
        }
    }

    private var terms: RelayTerms {
        var terms = configuration.rendezvous?.terms ?? RelayTerms()
        if let isRendezvous = options.isRendezvous { terms.isServing = isRendezvous }
        return terms
    }

    /// Whom others may ask, and what became of it.
    func standings() -> [(name: String, standing: RelayReservationStateMachine.Standing?)] {
        peers.peers.filter { $0.isRendezvous && !$0.isBlocked }.map { peer in
            (peer.name, peer.card.flatMap { core.machine.contact?.standing(at: $0.key) })
        }
    }

    /// What this node does for others; `nil` if it serves nobody.
    var service: (terms: RelayTerms, counts: RelayCounts)? {
        guard let relay = core.machine.contact?.relay, relay.terms.isServing else { return nil }
        return (relay.terms, relay.counts)
    }

    /// What has become of our reservations since the last look. Peers are told apart by number: the log has no names.
    func noteStandings() {
        guard log.logLevel <= .notice else { return }
        let standings = standings().map(\.standing)
        var noted = noted.prefix(standings.count).map(\.self)
        for (index, standing) in standings.enumerated() {
            if !noted.indices.contains(index) { noted.append(RendezvousNote(seen: standing, since: now)) }
            if noted[index].take(standing, now: now) { note(.rendezvous(number: index + 1, standing)) }
        }
        self.noted = noted
    }
}
