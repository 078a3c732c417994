import Glibc

extension GatewayNetwork {
    /// Asks for a mapping by one method after the other, and removes it. Waits: not to be called on an event loop.
    /// - Returns: what there was, or why there was none.
    package func probe(
        _ place: MappingPlace,
        key: [UInt8],
        isGivenUp: @escaping @Sendable () -> Bool
    ) -> PortMappingStateMachine.Standing {
        var machine = PortMappingStateMachine()
        var waiting = machine.set(place)
        while !waiting.isEmpty, !isGivenUp() {
            switch waiting.removeFirst() {
            case .ask(let number, let question):
                let outcome = ask(question, key: key, isGivenUp: isGivenUp)
                if isGivenUp() {
                    // What the gateway may have made of the question that nobody waits for is taken back, too.
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

extension SystemGateways {
    /// Nothing is sent for it.
    package func source(toward address: LanAddress) -> LanAddress? {
        let type = CInt(SOCK_DGRAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
        let descriptor = socket(address.isIPv4 ? AF_INET : AF_INET6, type, 0)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        guard address.withSocketAddress(port: PCPMessage.port, scope: 0, { connect(descriptor, $0, $1) == 0 })
        else { return nil }
        var bytes = [UInt8](repeating: 0, count: 28)
        var count = socklen_t(bytes.count)
        let result = bytes.withUnsafeMutableBytes { bytes in
            bytes.withMemoryRebound(to: sockaddr.self) { getsockname(descriptor, $0.baseAddress!, &count) }
        }
        guard result == 0 else { return nil }
        // sockaddr_in: family 2, port 2, address 4. sockaddr_in6: family 2, port 2, flow 4, address 16.
        return LanAddress(address.isIPv4 ? bytes[4..<8] : bytes[8..<24])
    }
}
