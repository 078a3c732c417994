/// The greatest of the values of the last few slots of a time that its owner counts: rounds, or cycles.
///
/// What section 5.5.5 of draft-ietf-ccwg-bbr-06 asks for, exactly: values that a later and greater one has made
/// meaningless are dropped, so no more are kept than there are slots.
struct WindowedMaximum: Hashable, Sendable {
    private struct Entry: Hashable {
        let slot: UInt64
        var value: Double
    }
    /// Slots rise, values fall.
    private var entries: [Entry] = []

    /// 0 if there is none.
    var value: Double { entries.first?.value ?? 0 }

    /// - Parameters:
    ///   - slot: never less than that of the call before.
    ///   - length: slots that count, this one included.
    mutating func insert(_ value: Double, at slot: UInt64, length: UInt64) {
        while let last = entries.last, last.value <= value { entries.removeLast() }
        // A lesser value of the same slot is behind a greater one for good.
        if entries.last?.slot != slot { entries.append(Entry(slot: slot, value: value)) }
        while let first = entries.first, first.slot + length <= slot { entries.removeFirst() }
    }
}
