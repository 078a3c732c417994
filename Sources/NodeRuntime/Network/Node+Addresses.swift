import Messaging
import NIOCore
import NIOPosix
import Transport

/// The machine's addresses come and go, and with them what stands on them. The system says so at once; where it does not,
/// they are looked at with every tick.
extension Node {
    /// Changes come many at once.
    private static let gathering = TimeAmount.milliseconds(50)

    func watchAddresses() {
        guard let network = environment.lan else { return }
        let told: @Sendable () -> Void = { [weak self] in
            self?.assumeIsolated { $0.addressesMayHaveChanged() }
        }
        network.watch(on: loop, changed: told).assumeIsolated().whenSuccess { [weak self] channel in
            guard let self else { return channel.close(promise: nil) }
            self.assumeIsolated { node in
                if node.isStopped { channel.close(promise: nil) } else { node.addressWatch = channel }
            }
        }
    }

    /// They are looked at when all changes are over.
    private func addressesMayHaveChanged() {
        guard !isLookingAtAddresses, !isStopped else { return }
        isLookingAtAddresses = true
        loop.assumeIsolated().scheduleTask(in: Self.gathering) {
            self.assumeIsolated { node in
                node.isLookingAtAddresses = false
                guard !node.isStopped else { return }
                node.devicesNow = nil
                node.noteAddresses()
                node.interfacesMayHaveChanged()
                node.lookAtGateways()
            }
        }
    }

    /// What stands on an address that is gone ends or moves, who does not answer is dialled anew, and all learn where we
    /// are now. Nothing happens while the addresses are the same.
    func noteAddresses() {
        let addresses = Set(machineDevices.compactMap { $0.address?.ipAddress })
        let before = addressesSeen
        addressesSeen = addresses
        guard let before, before != addresses else { return }
        advertisedNow = nil
        relayPlacesNow = nil
        endLinks(from: before.subtracting(addresses))
        transport?.networkChanged()
        announceEndpoints()
        turn { core.addressesChanged(&$0) }
        guard lan != nil else { return }
        loop.assumeIsolated().scheduleTask(in: .milliseconds(Limits.pingPatience + 100)) {
            self.assumeIsolated { $0.stirDiscovery() }
        }
    }

    /// A connection from an address that this machine has no longer is dead, whatever TCP still hopes for.
    private func endLinks(from lost: Set<String>) {
        func isDead(_ connection: PeerConnection) -> Bool {
            connection.carrier == .tcp && connection.localAddress?.ipAddress.map(lost.contains) ?? false
        }
        for id in links.keys.sorted() {
            if let connection = links[id]?.connection, isDead(connection) { connection.abort() }
        }
        for id in relayGuests.keys.sorted() {
            if let connection = relayGuests[id]?.connection, isDead(connection) { connection.abort() }
        }
    }
}
