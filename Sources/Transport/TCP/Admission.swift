import NIOCore

/// Who may go on before anyone is authenticated: how many connections, how many handshakes, how many from one network.
struct Admission: Sendable {
    /// A /24 of IPv4, a /48 of IPv6, or everything that is neither.
    enum Prefix: Hashable, Sendable {
        case v4(UInt32)
        case v6(UInt64)
        case other

        init(_ address: SocketAddress?) {
            switch address {
            case .v4(let address):
                // sockaddr_in: family, port, then 4 bytes of address.
                let bytes = withUnsafeBytes(of: address.address) { Array($0[4..<8]) }
                self = .v4(bytes.prefix(3).reduce(0) { $0 << 8 | UInt32($1) })
            case .v6(let address):
                // sockaddr_in6: family, port, flow, then 16 bytes of address.
                let bytes = withUnsafeBytes(of: address.address) { Array($0[8..<24]) }
                let isMapped = bytes.prefix(10).allSatisfy { $0 == 0 } && bytes[10] == 0xff && bytes[11] == 0xff
                self =
                    isMapped
                    ? .v4(bytes[12..<15].reduce(0) { $0 << 8 | UInt32($1) })
                    : .v6(bytes[0..<6].reduce(0) { $0 << 8 | UInt64($1) })
            case .unixDomainSocket, nil:
                self = .other
            }
        }
    }

    private let limits: TransportLimits
    private var waiting: PendingConnections
    private var inFlight = 0
    private var byPrefix: [Prefix: Int] = [:]

    init(limits: TransportLimits) {
        self.limits = limits
        waiting = PendingConnections(limit: limits.connectionsBeforeToken)
    }

    /// A connection that has not shown a token.
    /// - Returns: the connection that has to go for it, if there are too many.
    mutating func arrive(_ id: UInt64, using generator: inout some RandomNumberGenerator) -> UInt64? {
        waiting.arrive(id, using: &generator)
    }

    /// A connection has shown its token, or is gone.
    mutating func leave(_ id: UInt64) { waiting.leave(id) }

    /// A connection with a good token wants to go on.
    /// - Returns: why it may not.
    mutating func begin(_ prefix: Prefix) -> Rejection? {
        guard inFlight < limits.handshakesInFlight else { return .tooManyHandshakes }
        guard byPrefix[prefix, default: 0] < limits.handshakesPerPrefix else { return .tooManyFromPrefix }
        inFlight += 1
        byPrefix[prefix, default: 0] += 1
        return nil
    }

    /// One that ``begin(_:)`` let go on has come to its end.
    mutating func finish(_ prefix: Prefix) {
        inFlight -= 1
        let count = byPrefix[prefix, default: 1] - 1
        byPrefix[prefix] = count == 0 ? nil : count
    }
}
