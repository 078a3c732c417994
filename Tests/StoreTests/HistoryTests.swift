import Cryptography
import SimulatedDisk
import Testing

@testable import Store

/// Reading histories from their newest message, and statuses.
@Suite struct HistoryTests {
    private let disk: SimulatedDisk

    init() throws { disk = try makeHome() }

    private func reopened(_ count: Int, _ more: (Store, RowID) throws -> Void = { _, _ in }) throws -> (Store, RowID) {
        let store = try openHome(disk)
        let row = try store.createRow()
        for number in 0..<count {
            try store.put(row, number, .oneDay, at: start + 20 * hour, padded(number))
            if number % 500 == 499 { try store.commitNow() }
        }
        try more(store, row)
        try store.commitNow()
        store.close()
        return (try openHome(disk), row)
    }

    private func padded(_ number: Int) -> String { "\(number)|" + String(repeating: ".", count: 200) }

    private func numbers(_ messages: [StoredMessage]) -> [Int] {
        messages.map { Int(String(decoding: $0.payload.prefix { $0 != UInt8(ascii: "|") }, as: UTF8.self)) ?? -1 }
    }

    private func loadedCount(_ store: Store) -> Int { store.grid.segments.values.reduce(0) { $0 + $1.records.count } }

    @Test func `a list of the last messages reads the segment's end, and leaves the rest unread`() throws {
        let (store, row) = try reopened(3_000)
        #expect(numbers(try store.list(row, last: 50, now: start)) == Array(2_950..<3_000))
        #expect(loadedCount(store) < 500)
        #expect(try store.nextPlace(row) == 3_000)
        #expect(try store.get(row, 2_800, now: start) == padded(2_800))
        #expect(loadedCount(store) < 3_000)
        #expect(numbers(try store.list(row, last: 1_000, now: start)) == Array(2_000..<3_000))
        #expect(try store.storedAmount(row).recordCount == 3_000)
        #expect(try store.get(row, 3, now: start) == padded(3))
        #expect(numbers(try store.list(row, now: start)) == Array(0..<3_000))
        #expect(loadedCount(store) == 3_000)
        #expect(try !store.contains(row, id: messageID(5_000)))
        #expect(store.damage.isEmpty)
        store.close()
    }

    @Test func `new versions and expiries of old messages are found in any segment`() throws {
        let (store, row) = try reopened(1_000) { store, row in
            try store.checkpointNow()
            try store.update(row, id: messageID(5), payload: text("5|changed"))
            try store.reschedule(row, id: messageID(999), tier: .thirtyDays, expiresAt: start + 600 * hour)
            for number in 1_000..<2_000 {
                try store.put(row, number, .thirtyDays, at: start + 600 * hour, padded(number))
            }
            try store.update(row, id: messageID(6), payload: text("6|changed"))
        }
        #expect(try store.get(row, 6, now: start) == "6|changed")
        #expect(try store.get(row, 5, now: start) == "5|changed")
        #expect(try store.get(row, 999, now: start + 21 * hour) == padded(999))
        #expect(numbers(try store.list(row, last: 1_001, now: start)) == Array(999..<2_000))
        #expect(numbers(try store.list(row, now: start)) == Array(0..<2_000))
        store.close()
    }

    @Test func `a message in the unread part of a segment is erased and updated like any other`() throws {
        let (store, row) = try reopened(2_000)
        #expect(numbers(try store.list(row, last: 1, now: start)) == [1_999])
        try store.erase(row, id: messageID(7))
        try store.update(row, id: messageID(8), payload: text("8|changed"))
        try store.commitNow()
        let again = try store.reopened()
        #expect(try again.get(row, 7, now: start) == nil)
        #expect(try again.get(row, 8, now: start) == "8|changed")
        #expect(numbers(try again.list(row, now: start)) == Array(0..<2_000).filter { $0 != 7 })
        again.close()
    }

    @Test func `a due message in the unread part of a segment is hidden, overwritten and reported`() throws {
        let due = start + 20 * hour - 60_000
        let (store, row) = try reopened(10) { store, row in
            try store.put(row, 10, .oneDay, at: due, padded(10))
            for number in 11..<1_500 { try store.put(row, number, .oneDay, at: start + 20 * hour, padded(number)) }
        }
        #expect(numbers(try store.list(row, last: 1, now: start)) == [1_499])
        // The queue may still hold the beginning of the bucket.
        #expect(store.nextExpiry ?? .max <= due)
        let report = store.reap(hide: due, destroy: due)
        #expect(report.expired.map(\.id) == [messageID(10)] && report.recordsOverwritten == 1)
        #expect(try store.get(row, 10, now: start) == nil)
        #expect(store.nextExpiry == start + 20 * hour)
        store.close()
    }

    @Test func `a resting inbox too large for one reap is read over several reaps, and rests again`() throws {
        let due = start + 20 * hour - 60_000
        let (store, row) = try reopened(0) { store, row in
            try store.put(row, 0, .oneDay, at: due, padded(0))
            for number in 1...24 {
                try store.put(row, number, .oneDay, at: start + 20 * hour, String(repeating: "x", count: 1 << 19))
                try store.commitNow()
            }
        }
        #expect(try store.list(row, last: 1, now: start).count == 1)
        store.release(row)
        #expect(store.grid.segments.isEmpty)
        var now = due
        var expired: [Bytes16] = []
        while expired.isEmpty, now < due + 10 {
            expired = store.reap(hide: now, destroy: now).expired.map(\.id)
            now += 1
        }
        #expect(expired == [messageID(0)] && now - due > 1, "\(now - due) reaps")
        let later = due + Retry.interval + GroupCommit.checkpointDelay
        store.reap(hide: later, destroy: later)
        #expect(store.grid.segments.isEmpty)
        #expect(store.nextExpiry == start + 20 * hour)
        store.close()
    }

    @Test func `a segment with an erased end is read up to there`() throws {
        let (store, row) = try reopened(400)
        for number in 200..<400 { try store.erase(row, id: messageID(number)) }
        try store.commitNow()
        let again = try store.reopened()
        #expect(numbers(try again.list(row, last: 3, now: start)) == [197, 198, 199] && again.damage.isEmpty)
        again.close()
    }

    private func statuses(_ store: Store, _ row: RowID, _ places: ClosedRange<UInt64> = 0...(.max)) throws -> [String] {
        var found: [String] = []
        try store.visitStatuses(row, concerning: places, now: start) { status in
            found.append(String(decoding: status, as: UTF8.self))
            return true
        }
        return found
    }

    @Test func `a status is in no list or count, and is found with the messages it concerns`() throws {
        let (store, row) = try reopened(1_000) { store, row in
            try store.appendStatus(
                row, tier: .oneDay, expiresAt: start + 20 * hour, concerning: 0...999, text("of the first thousand"))
            for number in 1_000..<2_000 { try store.put(row, number, .oneDay, at: start + 20 * hour, padded(number)) }
            let place = try #require(try store.locate(row, messageID(1_999)))
            #expect(place.tier == .oneDay && place.expiresAt == start + 20 * hour)
            try store.appendStatus(
                row, tier: .oneHour, expiresAt: start + hour / 2 - 1, concerning: (place.order - 9)...place.order,
                text("of the last"))
        }
        #expect(numbers(try store.list(row, last: 2, now: start)) == [1_998, 1_999])
        let place = try #require(try store.place(row, of: messageID(1_990)))
        #expect(try statuses(store, row, place...(place + 50)) == ["of the last"])
        #expect(try statuses(store, row, (place - 9)...(place - 1)) == [])
        #expect(loadedCount(store) < 500)
        let first = try #require(try store.place(row, of: messageID(999)))
        #expect(try statuses(store, row, first...first) == ["of the first thousand"])
        #expect(try statuses(store, row) == ["of the first thousand", "of the last"])
        #expect(try store.list(row, now: start).count == 2_000)
        #expect(try !store.hasHidden(row))
        let report = store.reap(hide: start + hour / 2 - 1, destroy: start + hour / 2 - 1)
        #expect(report.expired.isEmpty && report.recordsOverwritten == 1)
        #expect(try statuses(store, row) == ["of the first thousand"])
        store.close()
    }

    @Test func `an inbox knows that it has hidden records without reading them`() throws {
        let (store, row) = try reopened(1) { store, row in
            try store.append(
                row, id: messageID(9_000), tier: .oneDay, expiresAt: start + 20 * hour, payload: text("part"),
                isHidden: true)
            for number in 1..<1_000 { try store.put(row, number, .oneDay, at: start + 20 * hour, padded(number)) }
        }
        #expect(try store.hasHidden(row) && loadedCount(store) < 300)
        #expect(try store.get(row, 9_000, now: start) == "part")
        store.close()
    }
}
