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
