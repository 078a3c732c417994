/// Why reading from a link is paused. Reading resumes when no reason is left: disk and rate limit do not end each
/// other's pauses.
package struct ReadingPauses: Hashable, Sendable {
    package enum Reason: Hashable, Sendable {
        /// Received messages wait for the disk.
        case disk
        /// The peer exceeded its rate limit.
        case haste
    }

    private var reasons: Set<Reason> = []

    package init() {}

    package mutating func add(_ reason: Reason) { reasons.insert(reason) }

    /// - Returns: whether this was the last reason, so that reading resumes.
    package mutating func remove(_ reason: Reason) -> Bool { reasons.remove(reason) != nil && reasons.isEmpty }
}
