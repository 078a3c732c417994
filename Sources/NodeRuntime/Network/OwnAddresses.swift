import Messaging
import NIOCore
import NIOPosix

/// The machine's interfaces, and where others reach us, as of the last look: asking the system takes longer than a turn. On
/// the node's loop alone.
final class OwnAddresses {
    private var devicesNow: [NIONetworkDevice]?
    /// Of the machine, as of the last look.
    private var seen: Set<String>?
    /// A look is planned.
    private var isLookPlanned = false
    private var watch: (any Channel)?
    private var advertisedNow: [Messaging.Endpoint]?
    private var relayPlacesNow: [RelayPlace]?
    /// What the members of our conversations were told last.
    private var announced: [Messaging.Endpoint]?
    /// Our ways through rendezvous nodes are others than those that were announced.
    var relaysHaveChanged = false

    // MARK: The machine's

    var devices: [NIONetworkDevice] {
        if let devicesNow { return devicesNow }
        let devices = (try? System.enumerateDevices()) ?? []
        devicesNow = devices
        return devices
    }

    func forgetDevices() { devicesNow = nil }

    /// Addresses by which this machine can be reached, other than its own loopback.
    func hosts(ipv6: Bool) -> [String] {
        devices.compactMap { device in
            switch device.address {
            case .v4(let address):
                guard !ipv6, address.host != "127.0.0.1", let ip = device.address?.ipAddress, !ip.hasPrefix("127.")
                else { return nil }
                return ip
            case .v6:
                // Link-local addresses mean nothing elsewhere.
                guard ipv6, let ip = device.address?.ipAddress, ip != "::1", !ip.hasPrefix("fe80") else { return nil }
                return ip
            case .unixDomainSocket, nil: return nil
            }
        }
    }

    /// Looks at the addresses.
    /// - Returns: those that are gone; `nil` when they are the same, or at the first look.
    func look() -> Set<String>? {
        let addresses = Set(devices.compactMap { $0.address?.ipAddress })
        defer { seen = addresses }
        guard let seen, seen != addresses else { return nil }
        forgetAdvertised()
        return seen.subtracting(addresses)
    }

    // MARK: Changes

    func watched(by channel: any Channel) { watch = channel }

    func stopWatching() { watch?.close(promise: nil) }

    /// Changes come many at once: one look for all of them.
    func planLook(on loop: any EventLoop, after pause: TimeAmount, _ look: @escaping () -> Void) {
        guard !isLookPlanned else { return }
        isLookPlanned = true
        loop.assumeIsolated().scheduleTask(in: pause) { [weak self] in
            guard let self else { return }
            isLookPlanned = false
            devicesNow = nil
            look()
        }
    }

    // MARK: Where others reach us

    func forgetAdvertised() {
        advertisedNow = nil
        relayPlacesNow = nil
    }

    func forgetRelayPlaces() { relayPlacesNow = nil }

    func advertised(_ compute: () -> [Messaging.Endpoint]) -> [Messaging.Endpoint] {
        if let advertisedNow { return advertisedNow }
        let endpoints = compute()
        advertisedNow = endpoints
        return endpoints
    }

    func relayPlaces(_ compute: () -> [RelayPlace]) -> [RelayPlace] {
        if let relayPlacesNow { return relayPlacesNow }
        let places = compute()
        relayPlacesNow = places
        return places
    }

    /// Takes these to be announced now.
    /// - Returns: whether members that have a link must be told. At the start every link tells by itself.
    func announce(_ endpoints: [Messaging.Endpoint]) -> Bool {
        guard endpoints != announced || relaysHaveChanged else { return false }
        let isNews = announced != nil
        announced = endpoints
        relaysHaveChanged = false
        return isNews
    }
}
