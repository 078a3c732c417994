import Crypto

/// The first bytes of a connection, in the clear: a protocol byte and, mostly, a routing token (Links.md, "Preamble").
struct Preamble: Hashable, Sendable {
    enum Kind: UInt8, Hashable, Sendable {
        /// `M`: a link over TCP.
        case link = 0x4d
        /// `k`: a knock, a sealed message without a handshake (Links.md, "Knocks").
        case knock = 0x6b
        /// `c`: the exchange of a spoken code. The token is its greeting.
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

    /// The handshake prologue: magic ‖ version ‖ transport kind ‖ token. Altering any of them makes act 1 fail.
    static func prologue(_ token: RoutingToken) -> [UInt8] {
        Array("mayfly".utf8) + [1, Kind.link.rawValue] + token.bytes
    }
}
