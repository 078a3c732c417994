/// Ascending ranges of numbers that neither touch nor overlap. The caller bounds their count.
struct OffsetRanges: Hashable, Sendable {
    private(set) var ranges: [Range<UInt64>] = []

    init() {}

    var isEmpty: Bool { ranges.isEmpty }
    var count: Int { ranges.count }
    var first: Range<UInt64>? { ranges.first }
    var last: Range<UInt64>? { ranges.last }

    private func firstIndex(endingFrom offset: UInt64) -> Int {
        var low = 0
        var high = ranges.count
        while low < high {
            let middle = (low + high) / 2
            if ranges[middle].upperBound < offset { low = middle + 1 } else { high = middle }
        }
        return low
    }

    func contains(_ offset: UInt64) -> Bool {
        let index = firstIndex(endingFrom: offset)
        // A range that ends at the offset does not contain it, but the next one may.
        return ranges[index...].prefix(2).contains { $0.contains(offset) }
    }

    mutating func insert(_ range: Range<UInt64>) {
        guard !range.isEmpty else { return }
        if let last = ranges.last {
            if range.lowerBound > last.upperBound { return ranges.append(range) }
            if range.lowerBound >= last.lowerBound {
                if range.upperBound > last.upperBound { ranges[ranges.count - 1] = last.lowerBound..<range.upperBound }
                return
            }
        } else {
            return ranges.append(range)
        }
        let start = firstIndex(endingFrom: range.lowerBound)
        var end = start
        var merged = range
        while end < ranges.count, ranges[end].lowerBound <= range.upperBound {
            merged = min(merged.lowerBound, ranges[end].lowerBound)..<max(merged.upperBound, ranges[end].upperBound)
            end += 1
        }
        ranges.replaceSubrange(start..<end, with: CollectionOfOne(merged))
    }

    mutating func remove(_ range: Range<UInt64>) {
        guard !range.isEmpty, !ranges.isEmpty else { return }
        let start = firstIndex(endingFrom: range.lowerBound)
        var end = start
        var rest: [Range<UInt64>] = []
        while end < ranges.count, ranges[end].lowerBound < range.upperBound {
            let old = ranges[end]
            if old.lowerBound < range.lowerBound { rest.append(old.lowerBound..<min(old.upperBound, range.lowerBound)) }
            if old.upperBound > range.upperBound { rest.append(max(old.lowerBound, range.upperBound)..<old.upperBound) }
            end += 1
        }
        guard end > start else { return }
        ranges.replaceSubrange(start..<end, with: rest)
    }

    mutating func removeAll(below offset: UInt64) { remove(0..<offset) }

    mutating func removeFirst() -> Range<UInt64>? { ranges.isEmpty ? nil : ranges.removeFirst() }

    func missing(in range: Range<UInt64>) -> [Range<UInt64>] {
        var result: [Range<UInt64>] = []
        var position = range.lowerBound
        for known in ranges[firstIndex(endingFrom: range.lowerBound)...] {
            guard known.lowerBound < range.upperBound else { break }
            if known.lowerBound > position { result.append(position..<known.lowerBound) }
            position = max(position, known.upperBound)
        }
        if position < range.upperBound { result.append(position..<range.upperBound) }
        return result
    }
}
