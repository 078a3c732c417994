/// Whether a gateway has lost its mappings since its last answer (RFC 6887, 8.5; RFC 6886, 3.6, is less strict).
package enum GatewayEpoch {
    /// The gateway's times are in seconds, the time between them on our own clock in milliseconds.
    package static func hasRestarted(before: UInt32, after: UInt32, elapsed: Int64) -> Bool {
        let (before, after) = (Int64(before), Int64(after))
        if after < before - 1 { return true }
        let server = after - before
        let client = max(0, elapsed) / 1_000
        return client + 2 < server - server / 16 || server + 2 < client - client / 16
    }
}
