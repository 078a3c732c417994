import Crypto

/// The first bytes of a connection, in the clear: a protocol byte and 16 bytes, mostly a routing token (protocol, section 2).
struct Preamble: Hashable, Sendable {
    enum Kind: UInt8, Hashable, Sendable {
        /// `M`: a link over TCP.
        case link = 0x4d
        /// `k`: a knock, which is a sealed message without a handshake (protocol, section 7).
        case knock = 0x6b
        /// `c`: the exchange of a code to say aloud. The token is its greeting.
        case code = 0x63
    }

    static let byteCount = 1 + RoutingToken.byteCount
    let kind: Kind
    let token: RoutingToken

    init(kind: Kind, token: RoutingToken) {
        self.kind = kind
        self.token = token
    }

    /// `nil` for another length or an unknown protocol byte.
    init?(_ bytes: [UInt8]) {
        guard bytes.count == Self.byteCount, let kind = Kind(rawValue: bytes[0]) else { return nil }
        guard let token = RoutingToken(bytes.dropFirst()) else { return nil }
        self.init(kind: kind, token: token)
    }

    var bytes: [UInt8] { [kind.rawValue] + token.bytes }

    /// What both sides mix into the handshake, so that a change to any of it fails at act 1: magic ‖ version ‖ transport
    /// kind ‖ token.
    static func prologue(_ token: RoutingToken) -> [UInt8] {
        Array("mayfly".utf8) + [1, Kind.link.rawValue] + token.bytes
    }
}
