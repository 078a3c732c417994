import Crypto

/// An open expiry bucket: its page, and the secret from that page.
final class Column {
    let slot: Int
    let header: ColumnHeader
    let secret: SharedSecret
    /// Identifies the page in sidecars: the bucket may have had an earlier page.
    let tag: [UInt8]
    var segments: [Int: Segment] = [:]

    init(slot: Int, header: ColumnHeader, secret: SharedSecret) {
        self.slot = slot
        self.header = header
        self.secret = secret
        tag = BLAKE2b.authenticate(key: secret.bytes, Array("mayfly column tag".utf8), byteCount: 16)
    }

    /// No record of the column expires at or before this moment, in milliseconds.
    var start: Int64 { header.notAfter - header.tier.bucketWidth }
}
