import Glibc

/// A default gateway, and our own addresses toward it.
package struct GatewayRoute: Hashable, Sendable {
    package let gateway: IPAddress
    package let interface: UInt32
    /// Ours of the gateway's family on that interface: IPv4 in the gateway's network, IPv6 global.
    package let locals: [IPAddress]
}

/// Access to the gateways of this machine. ``SystemGateways`` is the real implementation.
package protocol GatewayNetwork: Sendable {
    func routes() -> [GatewayRoute]

    /// Asks and blocks until the answer: do not call on an event loop.
    /// - Parameters:
    ///   - key: 32 bytes, from which the nonces of PCP are derived.
    ///   - isGivenUp: polled during the wait; sent requests are not taken back.
    func ask(_ question: PortMappingStateMachine.Question, key: [UInt8], isGivenUp: @escaping @Sendable () -> Bool)
        -> PortMappingStateMachine.Outcome

    /// Removes a mapping and blocks until the answer or the timeout: do not call on an event loop.
    func remove(_ mapping: Mapping, key: [UInt8])
}

extension GatewayNetwork {
    /// Tries the methods one after the other for a mapping and removes it again. Blocks: do not call on an event loop.
    /// - Returns: the mapping's status or the failure.
    package func probe(_ place: MappingPlace, key: [UInt8], isGivenUp: @escaping @Sendable () -> Bool)
        -> PortMappingStateMachine.Standing
    {
        var machine = PortMappingStateMachine()
        var waiting = machine.set(place)
        while !waiting.isEmpty, !isGivenUp() {
            switch waiting.removeFirst() {
            case .ask(let number, let question):
                let outcome = ask(question, key: key, isGivenUp: isGivenUp)
                if isGivenUp() {
                    // Remove also the mapping that the gateway may have made for the abandoned question.
                    let standing = machine.standing
                    let now = monotonicMilliseconds()
                    let last = waiting + machine.stop() + machine.answered(number, outcome, now: now)
                    for case .remove(let mapping) in last { remove(mapping, key: key) }
                    return standing
                }
                waiting += machine.answered(number, outcome, now: monotonicMilliseconds())
            case .remove(let mapping): remove(mapping, key: key)
            case .changed: break
            }
        }
        let standing = machine.standing
        for case .remove(let mapping) in waiting + machine.stop() { remove(mapping, key: key) }
        return standing
    }
}

/// The gateways in the kernel's route tables, asked by PCP, NAT-PMP and UPnP.
package final class SystemGateways: GatewayNetwork {
    private let upnp = UPnPClient()

    package init() {}

    package func routes() -> [GatewayRoute] {
        let interfaces = Sockets().interfaces() ?? []
        let found = [
            Self.text("/proc/net/route").flatMap(RouteTable.ipv4),
            Self.text("/proc/net/ipv6_route").flatMap(RouteTable.ipv6),
        ]
        return found.compactMap { $0 }.compactMap { route in
            guard let interface = interfaces.first(where: { $0.name == route.interface }) else { return nil }
            let own = interface.addresses.filter { $0.address.isIPv4 == route.gateway.isIPv4 }
            let locals =
                route.gateway.isIPv4
                ? own.filter { $0.address.shares($0.prefixLength, with: route.gateway) }.map(\.address).sorted().prefix(
                    1) : own.map(\.address).filter(\.isGlobal).sorted().prefix(MappingLimits.addressCount)
            return GatewayRoute(gateway: route.gateway, interface: interface.index, locals: Array(locals))
        }
    }

    /// Reads a file of /proc, which has no size.
    private static func text(_ path: String) -> String? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 4_096)
        // Enough: a gateway is among the first routes of a large table.
        while bytes.count < 1 << 20 {
            let count = read(descriptor, &chunk, chunk.count)
            guard count > 0 else { break }
            bytes += chunk[..<count]
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    package func ask(
        _ question: PortMappingStateMachine.Question, key: [UInt8], isGivenUp: @escaping @Sendable () -> Bool
    ) -> PortMappingStateMachine.Outcome {
        switch question {
        case .find(.upnp, let place): upnp.map(place, suggesting: place.port, isGivenUp)
        case .find(let method, let place):
            PCPClient(method: method, place: place, key: key, isGivenUp: isGivenUp).map(suggesting: nil)
        case .renew(let mapping) where mapping.method == .upnp:
            upnp.map(mapping.place, suggesting: mapping.tcp, isGivenUp)
        case .renew(let mapping): client(mapping, key, isGivenUp).map(suggesting: mapping)
        }
    }

    package func remove(_ mapping: Mapping, key: [UInt8]) {
        if mapping.method == .upnp { upnp.remove(mapping) } else { client(mapping, key) { false }.remove() }
    }

    private func client(_ mapping: Mapping, _ key: [UInt8], _ isGivenUp: @escaping @Sendable () -> Bool) -> PCPClient {
        PCPClient(method: mapping.method, place: mapping.place, key: key, isGivenUp: isGivenUp)
    }
}
