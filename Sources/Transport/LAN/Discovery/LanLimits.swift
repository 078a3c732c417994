/// Every bound of LAN discovery. Times are in milliseconds.
package enum LanLimits {
    // MARK: Specification: others rely on these.

    /// UDP port of the announcements.
    package static let port: UInt16 = 7_441
    /// The IPv4 group, in the administratively scoped block (RFC 2365).
    package static let group4 = LanAddress(239, 255, 109, 102)
    /// The IPv6 group: link-local, and transient, for it is nobody's by assignment (RFC 4291, section 2.7).
    package static let group6 = LanAddress(high: 0xff12_0000_0000_0000, low: 0x0000_6d61_7966_6c79)
    /// How long a tag is in use.
    package static let slotLength: Int64 = 15 * 60 * 1_000
    /// Tags of so many slots before and after are good, for clocks differ.
    package static let slotTolerance: Int64 = 4
    /// Entries of a datagram: a power of two in these bounds.
    package static let entriesLeast = 8
    package static let entriesMost = 64

    // MARK: Implementation: may be tuned.

    /// Between two announcements while somebody is missing: at first, and at last.
    package static let waitFirst: Int64 = 2_000
    package static let waitLongest: Int64 = 60_000
    /// How long something new waits for more of it before it is announced: at random, half of this to all of it.
    package static let gathering: Int64 = 200
    /// Pairs that are listened for, and pairs of one announcement; the others have their turn in the next.
    package static let pairCount = 16_384
    package static let announcedCount = 512
    /// Interfaces that are used, and addresses of one of them by which is announced.
    package static let interfaceCount = 16
    package static let addressCount = 4
    /// What the kernel says of all interfaces: some thousands, each with a kilobyte and a half.
    package static let interfaceByteCount = 16 << 20
    /// Announcements of ours that may be answered, and for how long.
    package static let questionCount = 32
    package static let questionLifetime: Int64 = 10_000
    /// Datagrams that are looked at: from one address, and from all. Burst, and how long one more takes.
    package static let sourceBurst: Int64 = 32
    package static let sourceInterval: Int64 = 250
    package static let totalBurst: Int64 = 512
    package static let totalInterval: Int64 = 2
    /// Answers to one address, and to all.
    package static let answerBurst: Int64 = 8
    package static let answerInterval: Int64 = 1_000
    package static let answerTotalBurst: Int64 = 32
    package static let answerTotalInterval: Int64 = 50
    /// Addresses whose datagrams are counted.
    package static let sourceCount = 256
    /// The same place of the same peer is told again after this long, and another place of it after that.
    package static let foundInterval: Int64 = 10_000
    package static let foundPause: Int64 = 1_000
}
