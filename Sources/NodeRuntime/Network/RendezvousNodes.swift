import Crypto
import Logging
import Messaging

/// Rendezvous nodes that relay to this node, and this node's own service as one.
final class RendezvousNodes: Part {
    private var noted: [RendezvousNote] = []

    /// Call this when configuration or peers have changed, or the contact inbox is loaded.
    func changed() {
        guard core.machine.contact != nil else { return }
        serve()
        shell.mailboxes.changed()
        core.turn { core.machine.advance(&$0) }
    }

    func use() {
        serve()
        shell.mailNotices.load()
        shell.mailboxes.changed()
        shell.addresses.forgetRelayPlaces()
    }

    /// Tells the core whom this node serves, and which rendezvous nodes it uses.
    private func serve() {
        let terms = terms
        let cards = shell.book.peers.compactMap { $0.isRendezvous && !$0.isBlocked ? $0.card : nil }
        core.turn {
            core.machine.withContact(&$0) { contact, turn in
                contact.serve(terms, turn) + contact.use(rendezvous: cards, turn)
            }
            core.machine.settleRelays(&$0)
        }
    }

    private var terms: RelayTerms {
        var terms = configuration.rendezvous?.terms ?? RelayTerms()
        if let isRendezvous = options.isRendezvous { terms.isServing = isRendezvous }
        return terms
    }

    /// Our rendezvous nodes, and the state of our reservation at each.
    func standings() -> [(name: String, standing: RelayReservationStateMachine.Standing?)] {
        shell.book.peers.filter { $0.isRendezvous && !$0.isBlocked }.map { peer in
            (peer.name, peer.card.flatMap { core.machine.contact?.standing(at: $0.key) })
        }
    }

    /// Our service as a rendezvous node; `nil` if it is off.
    var service: (terms: RelayTerms, counts: RelayCounts)? {
        guard let relay = core.machine.contact?.relay, relay.terms.isServing else { return nil }
        return (relay.terms, relay.counts)
    }

    /// Logs changes of our reservations. Peers appear by number, since the log has no names.
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
