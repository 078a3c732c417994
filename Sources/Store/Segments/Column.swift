import Crypto

/// An expiry bucket that is open: its page, and the secret the page mixes into.
final class Column {
    let slot: Int
    let header: ColumnHeader
    let secret: SharedSecret
    /// Names the page in sidecars: a bucket may have had another page before.
    let tag: [UInt8]
    /// Those that are in memory, by number of their file.
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
