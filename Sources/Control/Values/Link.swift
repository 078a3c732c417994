package struct Link: JSONRecord, Hashable, Sendable {
    /// `tcp` or `udp`; for a relayed link, the transport to the rendezvous node.
    package var transport = ""
    /// `ipv4` or `ipv6`.
    package var family = ""
    /// The remote address as this node sees it.
    package var address = ""
    /// End of the handshake.
    package var since: Timestamp = Timestamp(milliseconds: 0)
    /// Round trip measured by the transport, in milliseconds; null before the first measurement.
    package var rttMs: Double?
    /// Sealed bytes since the handshake, in each direction.
    package var bytesIn: Int64 = 0
    package var bytesOut: Int64 = 0

    package init(
        transport: String, family: String, address: String, since: Timestamp, rttMs: Double? = nil, bytesIn: Int64,
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

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("transport", &transport)
        try fields.field("family", &family)
        try fields.field("address", &address)
        try fields.field("since", &since)
        try fields.nullable("rttMs", &rttMs)
        try fields.field("bytesIn", &bytesIn)
        try fields.field("bytesOut", &bytesOut)
    }
}

/// How the last link to a member was lost.
package struct LostLink: JSONRecord, Hashable, Sendable {
    /// `tcp` or `udp`.
    package var transport = ""
    /// `unacknowledged` (no acknowledgement for half a minute on an open connection) or `connectionLost`.
    package var reason = ""

    package var words: String {
        guard reason == "unacknowledged" else { return "the connection broke" }
        return "sent data was not acknowledged: the member is gone, or the path drops large packets"
    }

    package init(transport: String, reason: String) {
        self.transport = transport
        self.reason = reason
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("transport", &transport)
        try fields.field("reason", &reason)
    }
}
