/// Limits of LAN discovery. Times are in milliseconds.
package enum LanLimits {
    // MARK: Specification: others rely on these.

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

    // MARK: Implementation: may be tuned.

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
