import Crypto

/// An announcement, or the answer to one (Discovery.md, "Datagrams"). Dummy entries are random and look like the
/// others.
package struct LanDatagram: Hashable, Sendable {
    package enum Kind: UInt8, Hashable, Sendable {
        case announcement = 1
        case answer = 2
    }

    package struct Entry: Hashable, Sendable {
        package var tag: UInt64
        package var proof: UInt64

        package init(tag: UInt64, proof: UInt64) {
            self.tag = tag
            self.proof = proof
        }
    }

    package static let version: UInt8 = 1
    private static let headByteCount = 12
    private static let entryByteCount = 16
    /// 1,036.
    package static let byteCountMost = headByteCount + LanLimits.entriesMost * entryByteCount

    package var kind: Kind
    package var port: UInt16
    package var nonce: UInt64
    /// 8, 16, 32 or 64.
    package let entries: [Entry]

    /// Pads with random entries to the next power of two, and shuffles them. Drops entries beyond 64.
    package init(
        _ kind: Kind, port: UInt16, nonce: UInt64, entries: some Sequence<Entry>,
        using random: inout some RandomNumberGenerator
    ) {
        self.kind = kind
        self.port = port
        self.nonce = nonce
        var all = Array(entries.prefix(LanLimits.entriesMost))
        while !Self.isCount(all.count) { all.append(Entry(tag: random.next(), proof: random.next())) }
        all.shuffle(using: &random)
        self.entries = all
    }

    package init?(_ bytes: [UInt8]) {
        guard bytes.count > Self.headByteCount, bytes.count <= Self.byteCountMost, bytes[0] == Self.version,
            let kind = Kind(rawValue: bytes[1])
        else { return nil }
        let (count, rest) = (bytes.count - Self.headByteCount).quotientAndRemainder(dividingBy: Self.entryByteCount)
        let port = UInt16(bytes[2]) << 8 | UInt16(bytes[3])
        guard rest == 0, Self.isCount(count), port != 0 else { return nil }
        func number(_ start: Int) -> UInt64 { bytes[start..<start + 8].reduce(0) { $0 << 8 | UInt64($1) } }
        self.kind = kind
        self.port = port
        nonce = number(4)
        entries = (0..<count).map {
            let start = Self.headByteCount + $0 * Self.entryByteCount
            return Entry(tag: number(start), proof: number(start + 8))
        }
    }

    package var bytes: [UInt8] {
        var result = [Self.version, kind.rawValue, UInt8(port >> 8), UInt8(port & 0xff)] + bigEndian(nonce)
        result.reserveCapacity(Self.headByteCount + entries.count * Self.entryByteCount)
        for entry in entries { result += bigEndian(entry.tag) + bigEndian(entry.proof) }
        return result
    }

    private static func isCount(_ count: Int) -> Bool {
        count >= LanLimits.entriesLeast && count <= LanLimits.entriesMost && count & (count - 1) == 0
    }
}
