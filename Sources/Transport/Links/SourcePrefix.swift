extension PeerConnection {
    /// Stands for the network of the other side, a /24 of IPv4 or a /48 of IPv6, for counting; `nil` if it has none.
    package var sourcePrefix: UInt64? { Admission.Prefix(remoteAddress).number }
}

extension Admission.Prefix {
    /// No two prefixes have one; `nil` for what has no network.
    var number: UInt64? {
        switch self {
        case .v4(let bits): UInt64(bits)
        case .v6(let bits): bits | 1 << 63
        case .other: nil
        }
    }
}
