/// A default gateway, and our own addresses toward it.
package struct GatewayRoute: Hashable, Sendable {
    package let gateway: LanAddress
    package let interface: UInt32
    /// Of the gateway's family, on that interface: of IPv4 the one of the gateway's network; of IPv6 those that are global.
    package let locals: [LanAddress]

    package init(gateway: LanAddress, interface: UInt32, locals: [LanAddress]) {
        self.gateway = gateway
        self.interface = interface
        self.locals = locals
    }
}

/// The gateways of this machine, and what they can be asked. ``SystemGateways`` are the real ones.
package protocol GatewayNetwork: Sendable {
    /// The default gateway of each family, if there is one.
    func routes() -> [GatewayRoute]

    /// Asks, and waits for the answer: not to be called on an event loop.
    /// - Parameters:
    ///   - key: 32 bytes, from which the nonces of PCP come.
    ///   - isGivenUp: looked at while it waits; what was sent is sent.
    func ask(_ question: PortMappingStateMachine.Question, key: [UInt8], isGivenUp: @escaping @Sendable () -> Bool)
        -> PortMappingStateMachine.Outcome

    /// Removes a mapping, and waits until that is done, or no answer comes: not to be called on an event loop.
    func remove(_ mapping: Mapping, key: [UInt8])
}
