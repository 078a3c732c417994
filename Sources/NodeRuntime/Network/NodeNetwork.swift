import Cryptography
import Logging
import Messaging
import NIOCore
import Transport

/// The node's addresses. When they change, links from lost addresses end, and members learn the new ones. The system
/// reports changes; ticks check too.
final class NodeNetwork: Part {
    /// Changes arrive in bursts.
    private static let gathering = TimeAmount.milliseconds(50)
    private var isLookPlanned = false

    func start() {
        watchAddresses()
        shell.routes.startSearch()
    }

    /// - Returns: ends when gateways have removed the mappings.
    func stop() -> EventLoopFuture<Void>? {
        shell.routes.stopSearch()
        shell.addresses.stopWatching()
        return shell.portMapper.stop()
    }

    private func watchAddresses() {
        guard let network = environment.lan else { return }
        // Made and used on the node's loop.
        let bound = NIOLoopBound(shell, eventLoop: loop)
        let told: @Sendable () -> Void = { bound.value.network.addressesMayHaveChanged() }
        network.watch(on: loop, changed: told).assumeIsolated().whenSuccess { [shell] channel in
            shell.addresses.watched(by: channel)
        }
    }

    /// One look for a burst of changes.
    private func addressesMayHaveChanged() {
        guard !isStopped, !isLookPlanned else { return }
        isLookPlanned = true
        loop.assumeIsolated().scheduleTask(in: Self.gathering) { [weak self] in
            guard let self, !isStopped else { return }
            isLookPlanned = false
            shell.addresses.forgetInterfaces()
            noteAddresses()
            shell.routes.lan?.look()
            shell.portMapper.look()
        }
    }

    func look() {
        noteAddresses()
        shell.portMapper.look()
        announce()
    }

    /// The contact inbox has a route: its key is used toward rendezvous nodes, and a derived key toward gateways.
    func contactRegistered() {
        shell.peerServices.changed()
        shell.portMapper.look()
    }

    /// Closes or moves links on lost addresses, dials again, and announces new endpoints. An address that reaches no
    /// other machine, such as a container's, triggers no dial.
    private func noteAddresses() {
        guard let change = shell.addresses.look() else { return }
        endLinks(from: change.lost)
        announce()
        guard change.hasMoved else { return }
        shell.listening.transport?.networkChanged()
        core.turn { core.machine.addressesChanged(hasNew: change.hasNew, &$0) }
        guard shell.routes.lan != nil else { return }
        after(Limits.pingPatience + 100) { self.shell.routes.lan?.stir() }
    }

    private func announce() { if shell.addresses.announce() { core.turn { core.machine.endpointsChanged(&$0) } } }

    /// Call this after listeners, mappings or advertised endpoints have changed.
    func listenersChanged() {
        endpointsMayHaveChanged()
        shell.portMapper.look()
        core.schedule()
    }

    func relaysMayHaveChanged() {
        shell.addresses.relaysHaveChanged = true
        endpointsMayHaveChanged()
    }

    func endpointsMayHaveChanged() {
        execute {
            guard !self.isStopped else { return }
            self.shell.addresses.forgetAdvertised()
            self.announce()
            self.shell.peerServices.noteStandings()
        }
    }

    /// A TCP connection from a lost address is dead, although TCP still retries.
    private func endLinks(from lost: Set<IPAddress>) {
        func isDead(_ connection: PeerConnection) -> Bool {
            connection.carrier == .tcp && connection.localAddress.flatMap { IPAddress($0) }.map(lost.contains) ?? false
        }
        for link in links.all where isDead(link.connection) { link.connection.abort() }
        shell.anonymousLinks.abortLinks(where: isDead)
    }

    /// The networks used for LAN discovery; `nil` if it is off.
    var discovery: String? { shell.routes.lan == nil ? nil : services.discovery?.description }
}

/// The rendezvous nodes that relay to this node, and this node's own service as a rendezvous node and as a mailbox.
final class PeerServices: Part {
    private var noted: [RendezvousNote] = []

    /// Call this when configuration or peers have changed, or the contact inbox is loaded.
    func changed() {
        guard core.machine.contact != nil else { return }
        tell()
        core.turn { core.machine.advance(&$0) }
    }

    func use() {
        tell()
        shell.mailNotices.load()
        shell.addresses.forgetRelayPlaces()
    }

    /// Tells the core whom this node serves, and which rendezvous nodes it uses.
    private func tell() {
        var relay = configuration.rendezvous?.terms ?? RelayTerms()
        if let isRendezvous = options.isRendezvous { relay.isServing = isRendezvous }
        let cards = shell.book.peers.compactMap { $0.isRendezvous && !$0.isBlocked ? $0.card : nil }
        core.turn {
            core.machine.withContact(&$0) { contact, turn in
                contact.serve(relay, turn) + contact.use(rendezvous: cards, turn)
            }
            core.machine.settleRelays(&$0)
        }
        guard core.machine.contact != nil else { return }
        var mailbox = configuration.mailbox?.terms ?? MailboxTerms()
        if let isMailbox = options.isMailbox { mailbox.isServing = isMailbox }
        shell.keptBoxes.prune()
        let boxes = shell.keptBoxes.boxesInMemory
        core.turn {
            core.machine.withContact(&$0) { contact, turn in contact.serve(mailbox, turn) + contact.count(boxes, turn) }
        }
        shell.ownMailbox.changed()
    }

    /// Our rendezvous nodes, and the state of our reservation at each.
    func standings() -> [(name: String, standing: RelayReservationStateMachine.Standing?)] {
        shell.book.peers.filter { $0.isRendezvous && !$0.isBlocked }.map { peer in
            (peer.name, peer.card.flatMap { core.machine.contact?.standing(at: $0.key) })
        }
    }

    /// Our service as a rendezvous node; `nil` if it is off.
    var relayService: (terms: RelayTerms, counts: RelayCounts)? {
        guard let relay = core.machine.contact?.relay, relay.terms.isServing else { return nil }
        return (relay.terms, relay.counts)
    }

    /// Our service as a mailbox; `nil` if it is off and stores no box.
    var mailboxService: MailboxServiceStanding? {
        guard let mailbox = core.machine.contact?.mailbox, mailbox.terms.isServing || mailbox.counts.boxes > 0 else {
            return nil
        }
        return MailboxServiceStanding(terms: mailbox.terms, counts: mailbox.counts, boxes: mailbox.occupancy)
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

package struct MailboxServiceStanding: Sendable {
    package let terms: MailboxTerms
    package let counts: MailboxCounts
    package let boxes: [MailboxServiceStateMachine.Occupancy]
}
