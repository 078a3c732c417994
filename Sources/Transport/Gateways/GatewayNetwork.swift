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
