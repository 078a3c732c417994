import Messaging
import NIOCore
import NIOPosix

/// The machine's interfaces, and where others reach us, as of the last look: asking the system takes longer than a turn. On
/// the node's loop alone.
final class OwnAddresses: NodePart {
    let services: NodeServices
    private let listening: Listening
    /// Where others reach us through gateways.
    var mapped: () -> [Messaging.Endpoint] = { [] }
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

    init(_ services: NodeServices, _ listening: Listening) {
        self.services = services
        self.listening = listening
    }

    // MARK: The machine's

    var devices: [NIONetworkDevice] {
        if let devicesNow { return devicesNow }
        let devices = (try? System.enumerateDevices()) ?? []
        devicesNow = devices
        return devices
    }

    func forgetDevices() { devicesNow = nil }

    /// Addresses by which this machine can be reached, other than its own loopback.
    private func hosts(ipv6: Bool) -> [String] {
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

    /// Whether an address is of a network that this machine is on, other than its own loopback.
    func isNeighbour(_ address: SocketAddress) -> Bool {
        guard let bytes = address.networkBytes else { return false }
        return devices.contains { device in
            guard let own = device.address?.networkBytes, let mask = device.netmask?.networkBytes,
                own.count == bytes.count, mask.count == bytes.count, device.address?.isLoopback == false
            else { return false }
            return zip(zip(own, bytes), mask).allSatisfy { ($0.0 ^ $0.1) & $1 == 0 }
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
    func planLook(after pause: TimeAmount, _ look: @escaping () -> Void) {
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

    /// ``direct`` as of the last tick.
    var advertised: [Messaging.Endpoint] {
        if let advertisedNow { return advertisedNow }
        let endpoints = direct
        advertisedNow = endpoints
        return endpoints
    }

    /// Where others can reach this node directly: through its gateways, and at what it was told to advertise, else what it
    /// listens on; a wildcard stands for the addresses of this machine's interfaces.
    var direct: [Messaging.Endpoint] {
        let mapped = mapped()
        let own = configuration.advertise.isEmpty ? listenedAt : configuration.advertise
        return Array((mapped + own.filter { !mapped.contains($0) }).prefix(Limits.endpointCount))
    }

    private var listenedAt: [Messaging.Endpoint] {
        var result: [Messaging.Endpoint] = []
        let bound = listening.endpoints
        // Before it listens, what it will listen on, as far as that is known.
        let endpoints = bound.isEmpty ? configuration.listen.filter { $0.port != 0 } : bound
        for endpoint in endpoints {
            let isWildcard = endpoint.host == "0.0.0.0" || endpoint.host == "::"
            guard isWildcard else {
                result.append(endpoint)
                continue
            }
            for host in hosts(ipv6: endpoint.host == "::") {
                result.append(Messaging.Endpoint(host: host, port: endpoint.port))
            }
        }
        // A machine without a network can still talk to itself.
        if result.isEmpty {
            result = endpoints.map { Messaging.Endpoint(host: $0.host == "::" ? "::1" : "127.0.0.1", port: $0.port) }
        }
        return result
    }

    func relayPlaces(_ compute: () -> [RelayPlace]) -> [RelayPlace] {
        if let relayPlacesNow { return relayPlacesNow }
        let places = compute()
        relayPlacesNow = places
        return places
    }

    /// Takes ``advertised`` to be announced now.
    /// - Returns: whether members that have a link must be told. At the start every link tells by itself.
    func announce() -> Bool {
        let endpoints = advertised
        guard endpoints != announced || relaysHaveChanged else { return false }
        let isNews = announced != nil
        announced = endpoints
        relaysHaveChanged = false
        return isNews
    }
}

extension SocketAddress {
    /// In the order of the network; `nil` for what is no address of the Internet.
    fileprivate var networkBytes: [UInt8]? {
        switch self {
        // sockaddr_in: family 2, port 2, address 4. sockaddr_in6: family 2, port 2, flow 4, address 16.
        case .v4(let address): withUnsafeBytes(of: address.address) { Array($0[4..<8]) }
        case .v6(let address): withUnsafeBytes(of: address.address) { Array($0[8..<24]) }
        case .unixDomainSocket: nil
        }
    }

    fileprivate var isLoopback: Bool {
        switch self {
        case .v4: networkBytes?.first == 127
        case .v6: ipAddress == "::1"
        case .unixDomainSocket: true
        }
    }
}
