import Crypto
import Messaging
import NIOCore
import NIOPosix
import Transport

/// The node's addresses. When they change, links from lost addresses end, and members learn the new ones. The system
/// reports changes; ticks check too.
final class NodeNetwork: Part {
    /// Changes arrive in bursts.
    private static let gathering = TimeAmount.milliseconds(50)

    // MARK: Local addresses

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
            if shell.services.isStopped { channel.close(promise: nil) } else { shell.addresses.watched(by: channel) }
        }
    }

    private func addressesMayHaveChanged() {
        guard !isStopped else { return }
        shell.addresses.planLook(after: Self.gathering) { [weak self] in
            guard let self, !isStopped else { return }
            noteAddresses()
            shell.routes.lan?.look()
            shell.portMapper.look()
        }
    }

    func look(asksGateways: Bool) {
        noteAddresses()
        if asksGateways { shell.portMapper.look() }
        announce()
    }

    /// The contact inbox has a route: its key is used toward rendezvous nodes, and a derived key toward gateways.
    func contactRegistered() {
        shell.rendezvous.changed()
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
            self.shell.rendezvous.noteStandings()
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
