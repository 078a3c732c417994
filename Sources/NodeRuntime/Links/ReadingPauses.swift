/// Why nothing is read from a link now. It is read again when no reason is left: neither a slow disk nor a hasty peer ends
/// what the other has begun.
package struct ReadingPauses: Hashable, Sendable {
    package enum Reason: Hashable, Sendable {
        /// What came has to wait for the disk.
        case disk
        /// Too much came that changes nothing.
        case haste
    }

    private var reasons: Set<Reason> = []

    package init() {}

    package mutating func add(_ reason: Reason) { reasons.insert(reason) }

    /// - Returns: whether it is to be read again: this was the last reason.
    package mutating func remove(_ reason: Reason) -> Bool { reasons.remove(reason) != nil && reasons.isEmpty }
}
