/// What a rendezvous node does for others: from its configuration.
package struct RelayTerms: Hashable, Sendable {
    /// Whether it serves at all.
    package var isServing = false
    /// Whether it serves everybody who holds its card, or its named peers only.
    package var isOpen = false
    package var userCount = Limits.relayUserCount
    package var reservationsPerUser = Limits.reservationsPerUser
    package var streamsPerUser = Limits.streamsPerUser
    package var streamsPerReservation = Limits.streamsPerReservation
    package var streamCount = Limits.relayedStreamCount
    /// Bytes a second, in one direction of a stream and in all.
    package var byteRate = Limits.relayedByteRate
    package var byteRateTotal = Limits.relayedByteRateTotal
    package var idle = Limits.relayIdle

    package init() {}
}

/// What a rendezvous node has done, without a name, for `status`.
package struct RelayCounts: Hashable, Sendable {
    /// Now.
    package var users = 0
    package var reservations = 0
    package var streams = 0
    /// Since the start.
    package var opened: UInt64 = 0
    package var byteCount: UInt64 = 0
    /// Reservations and streams that were refused.
    package var refused: UInt64 = 0
    /// Streams that were ended because one end sent what it may not.
    package var violations: UInt64 = 0

    package init() {}
}
