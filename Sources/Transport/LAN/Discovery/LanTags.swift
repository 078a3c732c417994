/// Which tag stands for which pair, in the slots around now. One dictionary probe answers for a tag; no curve operation.
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

    /// Time goes on: the tags of slots that are too far away go, and those of new slots come.
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
