package struct RelayTerms: Hashable, Sendable {
    package var isServing = false
    /// Serves any holder of its card, not named peers only.
    package var isOpen = false
    package var userCount = Limits.relayUserCount
    package var reservationsPerUser = Limits.reservationsPerUser
    package var streamsPerUser = Limits.streamsPerUser
    package var streamsPerReservation = Limits.streamsPerReservation
    package var streamCount = Limits.relayedStreamCount
    /// Bytes a second in one direction of a stream, and in all.
    package var byteRate = Limits.relayedByteRate
    package var byteRateTotal = Limits.relayedByteRateTotal
    package var idle = Limits.relayIdle

    package init() {}
}

/// Anonymous statistics of a rendezvous node for `status`.
package struct RelayCounts: Hashable, Sendable {
    /// Now.
    package var users = 0
    package var reservations = 0
    package var streams = 0
    /// Since the start.
    package var opened: UInt64 = 0
    package var byteCount: UInt64 = 0
    package var refused: UInt64 = 0
    /// Streams ended by a protocol violation.
    package var violations: UInt64 = 0

    package init() {}
}
