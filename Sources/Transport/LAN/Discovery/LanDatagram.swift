import Cryptography

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

/// Key of the tags of one direction of a pair of inboxes, used for nothing else. The last reference wipes it.
package final class LanSecret: Sendable {
    private let secret: SecretBytes

    /// HKDF-SHA-256 of the routing secret, 32 bytes, info "mayfly/1 lan".
    package init(routingSecret: UnsafeRawBufferPointer) {
        secret = HKDF.derive(secret: routingSecret, info: Array("mayfly/1 lan".utf8))
    }

    /// Identifies the announcing inbox to its peer: HMAC-SHA-256(K, 1 ‖ slot), cut to 8 bytes.
    package func tag(slot: Int64) -> UInt64 { code([1], bigEndian(UInt64(bitPattern: slot))) }

    /// Binds an announcement to its source, so that it cannot be replayed from elsewhere: HMAC-SHA-256(K, 2 ‖ slot ‖
    /// nonce ‖ port ‖ address), cut to 8 bytes.
    package func proof(slot: Int64, nonce: UInt64, port: UInt16, address: IPAddress) -> UInt64 {
        code([2], bigEndian(UInt64(bitPattern: slot)), place(nonce, port, address))
    }

    /// Binds an answer to its question and source: HMAC-SHA-256(K, 3 ‖ nonce ‖ port ‖ address), cut to 8 bytes.
    package func answerProof(nonce: UInt64, port: UInt16, address: IPAddress) -> UInt64 {
        code([3], place(nonce, port, address))
    }

    private func place(_ nonce: UInt64, _ port: UInt16, _ address: IPAddress) -> [UInt8] {
        bigEndian(nonce) + [UInt8(port >> 8), UInt8(port & 0xff)] + address.mappedBytes
    }

    private func code(_ parts: [UInt8]...) -> UInt64 {
        let message = parts.flatMap { $0 }
        let code = secret.withBytes { HMACSHA256.authenticate(key: $0, message) }
        return code.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    }
}

/// Maps the tags of the current slots to pairs, by one dictionary lookup.
struct LanTags: Sendable {
    struct Match: Hashable, Sendable {
        let pair: UInt64
        let slot: Int64
    }

    private var entries: [UInt64: Match] = [:]
    private var slot: Int64

    init(slot: Int64) { self.slot = slot }

    func match(_ tag: UInt64) -> Match? { entries[tag] }

    mutating func add(_ pair: UInt64, _ secret: LanSecret) {
        for slot in Self.slots(around: slot) { entries[secret.tag(slot: slot)] = Match(pair: pair, slot: slot) }
    }

    mutating func remove(_ pair: UInt64, _ secret: LanSecret) {
        for slot in Self.slots(around: slot) {
            let tag = secret.tag(slot: slot)
            if entries[tag]?.pair == pair { entries[tag] = nil }
        }
    }

    mutating func move(to newSlot: Int64, _ secrets: some Sequence<(key: UInt64, secret: LanSecret)>) {
        guard newSlot != slot else { return }
        let old = Self.slots(around: slot)
        let new = Self.slots(around: newSlot)
        slot = newSlot
        entries = entries.filter { new.contains($0.value.slot) }
        for (pair, secret) in secrets {
            for slot in new where !old.contains(slot) {
                entries[secret.tag(slot: slot)] = Match(pair: pair, slot: slot)
            }
        }
    }

    private static func slots(around slot: Int64) -> ClosedRange<Int64> {
        slot - LanLimits.slotTolerance...slot + LanLimits.slotTolerance
    }
}

/// Limits of LAN discovery. Times are in milliseconds.
package enum LanLimits {
    // Specification: others rely on these.

    /// UDP port of the announcements.
    package static let port: UInt16 = 7_441
    /// The IPv4 group, in the administratively scoped block (RFC 2365).
    package static let group4 = IPAddress(239, 255, 109, 102)
    /// The IPv6 group: link-local and transient, because it is not assigned (RFC 4291, section 2.7).
    package static let group6 = IPAddress(high: 0xff12_0000_0000_0000, low: 0x0000_6d61_7966_6c79)
    /// Lifetime of a tag.
    package static let slotLength: Int64 = 15 * 60 * 1_000
    /// Tags of this many slots before and after are accepted, because clocks differ.
    package static let slotTolerance: Int64 = 4
    /// Entries of a datagram: a power of two in these bounds.
    package static let entriesLeast = 8
    package static let entriesMost = 64

    // Implementation: may be tuned.

    /// Interval between announcements while a peer is missing: first and longest.
    package static let waitFirst: Int64 = 2_000
    package static let waitLongest: Int64 = 60_000
    /// Upper bound of a new announcement's random delay, which gathers changes. The lower bound is half.
    package static let gathering: Int64 = 200
    /// Pairs to listen for, and pairs per announcement; the others follow in the next one.
    package static let pairCount = 16_384
    package static let announcedCount = 512
    /// Interfaces used, and announcing addresses of each.
    package static let interfaceCount = 16
    package static let addressCount = 4
    /// The kernel's dump of all interfaces: some thousands with 1.5 kB each.
    package static let interfaceByteCount = 16 << 20
    /// Own announcements that may be answered, and for how long.
    package static let questionCount = 32
    package static let questionLifetime: Int64 = 10_000
    /// Rate limit of processed datagrams, per address and in total: burst, and interval of each further one.
    package static let sourceBurst: Int64 = 32
    package static let sourceInterval: Int64 = 250
    package static let totalBurst: Int64 = 512
    package static let totalInterval: Int64 = 2
    /// Rate limit of answers, per address and in total.
    package static let answerBurst: Int64 = 8
    package static let answerInterval: Int64 = 1_000
    package static let answerTotalBurst: Int64 = 32
    package static let answerTotalInterval: Int64 = 50
    /// Interval of repeated reports of one address of a peer, and of changing addresses.
    package static let foundInterval: Int64 = 10_000
    package static let foundPause: Int64 = 1_000
}
