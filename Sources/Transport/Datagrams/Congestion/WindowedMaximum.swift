/// The maximum over the last few slots; the owner counts slots as rounds or cycles. Exact, as draft-ietf-ccwg-bbr-06,
/// section 5.5.5 asks: a value is dropped once a later one exceeds it, so there is at most one per slot.
struct WindowedMaximum: Hashable, Sendable {
    private struct Entry: Hashable {
        let slot: UInt64
        var value: Double
    }
    /// Slots ascend, values descend.
    private var entries: [Entry] = []

    var value: Double { entries.first?.value ?? 0 }

    /// - Parameters:
    ///   - slot: never decreases between calls.
    ///   - length: slots that count, this one included.
    mutating func insert(_ value: Double, at slot: UInt64, length: UInt64) {
        while let last = entries.last, last.value <= value { entries.removeLast() }
        // A smaller value of the same slot can never become the maximum.
        if entries.last?.slot != slot { entries.append(Entry(slot: slot, value: value)) }
        while let first = entries.first, first.slot + length <= slot { entries.removeFirst() }
    }
}
