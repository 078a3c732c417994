/// The link to another inbox.
package struct Link: Codable, Hashable, Sendable {
    /// `tcp` or `udp`; of a relayed one, what the link to the rendezvous node runs over.
    package var transport: String
    /// `ipv4` or `ipv6`.
    package var family: String
    /// Where the other side is, as seen from here.
    package var address: String
    /// When its handshake ended.
    package var since: Timestamp
    /// Round trip as the transport measures it, in milliseconds; null before it has.
    @Nullable package var rttMs: Double?
    /// Sealed bytes since then, in both directions.
    package var bytesIn: Int64
    package var bytesOut: Int64

    package init(
        transport: String,
        family: String,
        address: String,
        since: Timestamp,
        rttMs: Double? = nil,
        bytesIn: Int64,
        bytesOut: Int64
    ) {
        self.transport = transport
        self.family = family
        self.address = address
        self.since = since
        self.rttMs = rttMs
        self.bytesIn = bytesIn
        self.bytesOut = bytesOut
    }
}
