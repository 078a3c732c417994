import Cryptography
import Glibc
import SimulatedDisk
import Testing

@testable import Store

/// The guarantees that the store has given a history.
private struct Promise {
    /// Message payloads that a completed commit covers, by row and number. With several, any may be stored.
    var kept: [RowID: [Int: Set<String>]] = [:]
    var states: [RowID: Set<String>] = [:]
    /// Payloads whose destruction was confirmed.
    var destroyed: Set<String> = []
    var destroyedRows: Set<RowID> = []
    /// Rows whose destruction began: both outcomes are correct.
    var doubtful: Set<RowID> = []
    var tombstones: Set<String>?
    var fanOut: Set<String>?
}

/// Runs steps until one throws (a crash) or through all (faults), and records only acknowledged results.
private final class History {
    var promise = Promise()
    let store: Store
    let stopsAtErrors: Bool
    private(set) var failures = 0

    init(_ store: Store, stopsAtErrors: Bool) {
        self.store = store
        self.stopsAtErrors = stopsAtErrors
    }

    private func attempt(_ body: () throws -> Void) throws {
        do { try body() } catch {
            failures += 1
            if stopsAtErrors { throw error }
        }
    }

    private func put(_ row: RowID, _ number: Int, _ tier: Tier, _ expiry: Int64, _ payload: String) throws {
        try attempt {
            try store.put(row, number, tier, at: expiry, payload)
            try store.commitNow()
            promise.kept[row, default: [:]][number] = [payload]
        }
    }

    private func update(_ row: RowID, _ number: Int, _ payload: String) throws {
        try attempt {
            promise.kept[row]?[number]?.insert(payload)
            try store.update(row, id: messageID(number), payload: text(payload))
            try store.commitNow()
            if promise.kept[row]?[number] != nil { promise.kept[row]?[number] = [payload] }
        }
    }

    private func erase(_ row: RowID, _ number: Int) throws {
        try attempt {
            let payloads = promise.kept[row]?.removeValue(forKey: number) ?? []
            try store.erase(row, id: messageID(number))
            try store.commitNow()
            promise.destroyed.formUnion(payloads)
        }
    }

    /// Returns whether the message has certainly moved. If not, it may expire at either time, and must exist until the
    /// sooner.
    private func reschedule(_ row: RowID, _ number: Int, _ tier: Tier, _ expiry: Int64) throws -> Bool {
        var hasMoved = false
        try attempt {
            try store.reschedule(row, id: messageID(number), tier: tier, expiresAt: expiry)
            try store.commitNow()
            hasMoved = true
        }
        return hasMoved
    }

    private func state(_ row: RowID, _ state: String, padding: Int = 0) throws {
        try attempt {
            let padded = state + String(repeating: "-", count: padding)
            promise.states[row]?.insert(padded)
            try store.saveState(row, text(padded))
            try store.commitNow()
            promise.states[row] = [padded]
        }
    }

    private func destroy(_ row: RowID) throws {
        try attempt {
            promise.doubtful.insert(row)
            try store.destroyRow(row)
            promise.destroyedRows.insert(row)
        }
    }

    private func reap(_ moment: Int64, _ gone: [(RowID, Int)], rows: [RowID] = []) throws {
        var payloads: Set<String> = []
        for (row, number) in gone { payloads.formUnion(promise.kept[row]?.removeValue(forKey: number) ?? []) }
        promise.doubtful.formUnion(rows)
        try attempt {
            let report = store.reap(hide: moment, destroy: moment)
            if let failure = report.failures.first { throw failure }
            promise.destroyed.formUnion(payloads)
            promise.destroyedRows.formUnion(report.rows)
        }
    }

    private func row() throws -> RowID? {
        var row: RowID?
        try attempt { row = try store.createRow() }
        return row
    }

    func run() throws {
        guard let a = try row(), let b = try row() else { return }
        try put(a, 1, .oneHour, start + 9_000, "a1")
        try put(a, 2, .oneHour, start + 9_500, "a2")
        try put(a, 3, .oneHour, start + 10_000 + 5_000, "a3")
        try state(a, "state a")
        try state(b, "state b")
        try update(a, 3, "a3, updated")
        try put(b, 1, .thirtyDays, start + 700 * hour, "b1")
        try erase(a, 2)
        try tombstones()
        try fanOuts()
        try put(a, 4, .oneHour, start + 9_900, "a4")
        try reap(start + 10_000, [(a, 1), (a, 4)])
        try destroy(b)
        if let c = try row() {
            try put(c, 1, .thirtyDays, start + 700 * hour, "c1")
            try attempt {
                promise.doubtful.insert(c)
                try store.scheduleDestruction(of: c, at: start + 12_000)
            }
            for round in 0..<5 { try state(a, "large \(round)", padding: 90_000) }
            try reap(start + 12_000, [], rows: [c])
        }
        try put(a, 5, .oneHour, start + hour, "a5")
        try erase(a, 3)
        try moves(a)
        try put(a, 6, .sevenDays, start + hour, "a6")
        try state(a, "last")
    }

    /// Moved to an earlier time: the old version must go with the new one, though its bucket lives on. To a later time:
    /// the message must not be lost with the old bucket.
    private func moves(_ row: RowID) throws {
        try put(row, 7, .thirtyDays, start + 700 * hour, "a7")
        try put(row, 8, .oneHour, start + 19_000, "a8")
        store.release(row)
        let isSooner = try reschedule(row, 7, .oneHour, start + 19_500)
        let isLater = try reschedule(row, 8, .sevenDays, start + 100 * hour)
        store.release(row)
        if !isSooner { promise.kept[row]?[7] = nil }
        if !isLater { promise.kept[row]?[8] = nil }
        try reap(start + 20_000, isSooner ? [(row, 7)] : [])
    }

    private func tombstones() throws {
        try attempt {
            let id = try store.addTombstone(keepUntil: start + 900 * hour, payload: text("tombstone"))
            promise.tombstones = ["tombstone", "tombstone, updated"]
            try store.updateTombstone(id, payload: text("tombstone, updated"))
            promise.tombstones = ["tombstone, updated"]
            let other = try store.addTombstone(keepUntil: start + 900 * hour, payload: text("removed"))
            try store.removeTombstone(other)
            promise.destroyed.insert("removed")
        }
    }

    private func fanOuts() throws {
        try attempt {
            try store.saveFanOut(id: messageID(1), expiresAt: start + 100 * hour, payload: text("all"))
            try store.commitNow()
            promise.fanOut = ["all", "fewer"]
            try store.saveFanOut(id: messageID(1), expiresAt: start + 100 * hour, payload: text("fewer"))
            try store.commitNow()
            promise.fanOut = ["fewer"]
        }
    }
}

/// Opens the disk after the power cut, with the clock set back so that only destruction hides a message.
private func check(_ promise: Promise, on disk: SimulatedDisk, _ comment: Comment) throws {
    let store = try openHome(disk)
    defer { store.close() }
    var readable: Set<String> = []
    for row in store.liveRows() {
        #expect(!promise.destroyedRows.contains(row), comment)
        let messages = try store.list(row, now: start)
        #expect(Set(messages.map(\.id)).count == messages.count, comment)
        readable.formUnion(messages.map { String(decoding: $0.payload, as: UTF8.self) })
        let state = try store.loadState(row).map { String(decoding: $0, as: UTF8.self) }
        if let states = promise.states[row], !states.isEmpty { #expect(states.contains(state ?? "none"), comment) }
    }
    for (row, messages) in promise.kept where !promise.doubtful.contains(row) {
        try #require(store.liveRows().contains(row), comment)
        for (number, payloads) in messages {
            let found = try store.get(row, number, now: start)
            #expect(payloads.contains(found ?? "nothing"), comment)
        }
    }
    for row in promise.states.keys where !promise.doubtful.contains(row) {
        #expect(store.liveRows().contains(row), comment)
    }
    let tombstones = Set(try store.tombstones().map { String(decoding: $0.payload, as: UTF8.self) })
    if let wanted = promise.tombstones { #expect(!tombstones.isDisjoint(with: wanted), comment) }
    let fanOuts = try store.fanOuts(now: start).map { String(decoding: $0.payload, as: UTF8.self) }
    if let wanted = promise.fanOut { #expect(fanOuts.count == 1 && wanted.contains(fanOuts[0]), comment) }
    #expect(promise.destroyed.isDisjoint(with: readable.union(tombstones)), comment)
    let row = try store.createRow()
    try store.put(row, 1, at: start + hour, "after")
    try store.commitNow()
    #expect(try store.get(row, 1, now: start) == "after")
}

@Suite struct CrashTests {
    /// Found by the whole-node simulation: a segment without a sidecar took messages after its inbox had gone to sleep.
    @Test func `a segment that failed before its inbox rests takes no later messages`() throws {
        var kept = 0
        for call in 1...16 {
            let (disk, store, row) = try makeRow()
            try store.commitNow()
            disk.with { $0.fault = .init(at: $0.operations + call, code: EIO, isLasting: false) }
            try? store.put(row, 1, at: start + hour / 2, "first")
            try? store.commitNow()
            disk.with { $0.fault = nil }
            store.release(row)
            for _ in 0..<2 { store.reap(hide: start, destroy: start) }
            guard (try? store.put(row, 2, at: start + hour / 2, "second")) != nil, (try? store.commitNow()) != nil
            else { continue }
            kept += 1
            store.close()
            disk.reboot(seed: 1)
            let again = try openHome(disk)
            #expect(try again.get(row, 2, now: start) == "second", "call \(call)")
            again.close()
        }
        #expect(kept > 8)
    }

    @Test func `a clock mark left in the cache by an earlier run is saved again, or refused`() throws {
        var refusals = 0
        for call in 1...4 {
            let (disk, store) = try makeStore()
            disk.with { $0.fault = .init(at: $0.operations + call, code: EIO, isLasting: true, isForOneCall: true) }
            #expect(((try? store.saveClockMark(start)) != nil) == (call > 2), "call \(call)")
            store.close()
            guard let again = try? openHome(disk) else { continue }
            let isSaved = (try? again.saveClockMark(start)) != nil
            if !isSaved { refusals += 1 }
            disk.with { $0.fault = nil }
            try again.saveClockMark(start - 1)
            again.close()
            disk.reboot(seed: seedOfNothingSurviving)
            let last = try openHome(disk)
            #expect(last.clockMark() >= start - 1, "call \(call)")
            if isSaved { #expect(last.clockMark() == start, "call \(call)") }
            last.close()
        }
        #expect(refusals > 0)
    }

    @Test func `a failure of the store's own commit is reported to the next commit`() throws {
        var failures = 0
        for locks in [false, true] {
            for call in 1...12 {
                let (disk, store, row) = try makeRow()
                try store.put(row, 1, at: start + 3_000, "due")
                try store.commitNow()
                try store.put(row, 2, .thirtyDays, at: start + 700 * hour, "kept")
                try store.saveState(row, text("state"))
                disk.with { $0.fault = .init(at: $0.operations + call, code: EIO, isLasting: false) }
                if locks {
                    store.lock()
                    try? store.unlock(passphrase: nil)
                } else {
                    store.reap(hide: start + 3_000, destroy: start + 3_000)
                }
                disk.with { $0.fault = nil }
                if store.isLocked { try store.unlock(passphrase: nil) }
                let isDurable = (try? store.commitNow()) != nil
                let comment: Comment = "call \(call), locking: \(locks)"
                if isDurable {
                    #expect(try store.get(row, 2, now: start + 3_000) == "kept", comment)
                    #expect(try store.loadState(row) == text("state"), comment)
                } else {
                    failures += 1
                    // The failure is reported once; the next message is accepted.
                    try store.put(row, 3, .thirtyDays, at: start + 700 * hour, "later")
                    try store.commitNow()
                }
                disk.reboot(seed: seedOfNothingSurviving)
                let again = try openHome(disk)
                if isDurable {
                    #expect(try again.get(row, 2, now: start) == "kept", comment)
                    #expect(try again.loadState(row) == text("state"), comment)
                } else {
                    #expect(try again.get(row, 3, now: start) == "later", comment)
                }
                again.close()
            }
        }
        #expect(failures > 3)
    }

    @Test func `a failure of the store's own commit still under way is reported to the next commit`() throws {
        let disk = try makeHome()
        let pending = PendingCommits()
        let store = try openHome(disk, committingOn: pending.thread)
        let row = try store.createRow()
        nonisolated(unsafe) var answers: [Bool] = []
        func commit() {
            store.commit { result in if case .success = result { answers.append(true) } else { answers.append(false) } }
        }
        try store.put(row, 1, at: start + 3_000, "due")
        commit()
        pending.run()
        try store.put(row, 2, .thirtyDays, at: start + 700 * hour, "kept")
        store.reap(hide: start + 3_000, destroy: start + 3_000)
        commit()
        #expect(answers == [true] && pending.count == 1)
        disk.with { $0.fault = .init(at: $0.operations + 1, code: EIO, isLasting: false) }
        pending.run()
        #expect(answers == [true, false])
        #expect(try store.get(row, 2, now: start + 3_000) == nil)
        commit()
        pending.run()
        #expect(answers == [true, false, true])
        store.close()
    }

    private func operationCount(_ home: SimulatedDisk) throws -> Int {
        let disk = home.copy()
        let history = History(try openHome(disk), stopsAtErrors: true)
        try history.run()
        disk.reboot(seed: 3)
        try check(history.promise, on: disk, "the undisturbed history")
        #expect(!history.promise.destroyed.isEmpty && history.promise.destroyedRows.count == 2)
        return disk.operations
    }

    @Test(arguments: [1] as [UInt64])
    func `a power cut at any operation loses no committed data and restores no destroyed data`(seed: UInt64) throws {
        let home = try makeHome()
        let count = try operationCount(home)
        #expect(count > 200)
        for operation in 1...count {
            let disk = home.copy()
            disk.with { $0.crashAt = operation }
            var promise = Promise()
            if let store = try? openHome(disk) {
                let history = History(store, stopsAtErrors: true)
                try? history.run()
                promise = history.promise
            }
            disk.reboot(seed: seed &* 1_000_003 &+ UInt64(operation))
            try check(promise, on: disk, "operation \(operation), seed \(seed)")
        }
    }

    @Test(arguments: [EIO], [true, false]) func `a failure of any operation causes no false success`(
        code: Int32, isLasting: Bool
    ) throws {
        let home = try makeHome()
        let count = try operationCount(home)
        for operation in 1...count {
            let disk = home.copy()
            disk.with { $0.fault = .init(at: operation, code: code, isLasting: isLasting) }
            var promise = Promise()
            if let store = try? openHome(disk) {
                let history = History(store, stopsAtErrors: false)
                try history.run()
                promise = history.promise
            }
            disk.reboot(seed: seedOfNothingSurviving)
            try check(promise, on: disk, "operation \(operation), errno \(code), lasting \(isLasting)")
        }
    }

    @Test func `a failed commit fails the commits queued behind it, and the next one succeeds`() throws {
        let disk = try makeHome()
        let pending = PendingCommits()
        let store = try openHome(disk, committingOn: pending.thread)
        let row = try store.createRow()
        nonisolated(unsafe) var results: [Bool] = []
        func commit(_ number: Int) throws {
            try store.put(row, number, at: start + hour, "message \(number)")
            store.commit { result in if case .success = result { results.append(true) } else { results.append(false) } }
        }
        try commit(1)
        pending.run()
        try commit(2)
        // An erasure ends a group commit: the next commit is written separately.
        try store.erase(row, id: messageID(1))
        try commit(3)
        try commit(4)
        disk.with { $0.fault = .init(at: $0.operations + 1, code: EIO, isLasting: false) }
        pending.run()
        #expect(results == [true, false, false, false])
        #expect(try store.list(row, now: start).isEmpty)
        for number in 2...4 { try commit(number) }
        pending.run()
        #expect(results == [true, false, false, false, true, true, true])
        // The next reap repeats the refused erasure.
        store.reap(hide: start, destroy: start)
        pending.run()
        disk.reboot(seed: seedOfNothingSurviving)
        let again = try openHome(disk)
        #expect(try again.list(row, now: start).map(\.id.bytes) == [2, 3, 4].map { messageID($0) })
        again.close()
    }

    @Test func `a passing error during opening or reading destroys nothing`() throws {
        let home = try makeHome()
        let first = try openHome(home)
        let rows = [try first.createRow(), try first.createRow()]
        for row in rows {
            for number in 1...2 { try first.put(row, number, at: start + Int64(number) * 20_000, "text") }
            try first.saveState(row, text("state"))
        }
        try first.scheduleDestruction(of: rows[0], at: start + hour)
        _ = try first.addTombstone(keepUntil: start + hour, payload: text("tombstone"))
        try first.saveClockMark(start)
        try first.commitNow()
        first.close()
        func readAll(_ store: Store) throws {
            for row in rows {
                #expect(try store.list(row, now: start).count == 2)
                #expect(try store.loadState(row) == text("state"))
            }
            #expect(try store.tombstones().count == 1)
        }
        let trial = home.copy()
        try readAll(openHome(trial))
        #expect(trial.operations > 20)
        for operation in 1...trial.operations {
            let disk = home.copy()
            disk.with { $0.fault = .init(at: operation, code: EIO, isLasting: false) }
            if let store = try? openHome(disk) {
                for row in rows { _ = try? store.list(row, now: start) }
                for row in rows { _ = try? store.loadState(row) }
                store.reap(hide: start + 1, destroy: start + 1)
                #expect(store.clockMark() == start)
                store.close()
            }
            disk.with { $0.fault = nil }
            let store = try openHome(disk)
            try readAll(store)
            #expect(store.scheduledDestruction(of: rows[0]) == start + hour)
            #expect(store.damage.isEmpty, "operation \(operation): \(store.damage)")
        }
    }

    @Test func `a later fsync does not undo a failed one`() throws {
        let (disk, store, row) = try makeRow()
        try store.put(row, 1, at: start + hour, "one")
        try store.commitNow()
        try store.put(row, 2, at: start + hour, "two")
        disk.with { $0.fault = .init(at: $0.operations + 2, code: EIO, isLasting: false) }
        #expect(throws: StoreError.self) { try store.commitNow() }
        #expect(try store.get(row, 2, now: start) == nil)
        #expect(try store.get(row, 1, now: start) == "one")
        try store.put(row, 2, at: start + hour, "two, again")
        try store.commitNow()
        #expect(store.damage.count == 1)
        disk.reboot(seed: seedOfNothingSurviving)
        let again = try openHome(disk)
        #expect(try again.get(row, 1, now: start) == "one")
        #expect(try again.get(row, 2, now: start) == "two, again")
    }

    @Test func `a message whose update fails to be stored is listed once, unchanged`() throws {
        let (disk, store, row) = try makeRow()
        for number in 1...3 { try store.put(row, number, at: start + hour, "message \(number)") }
        try store.commitNow()
        for number in [3, 1] {
            try store.update(row, id: messageID(number), payload: text("changed"))
            disk.with { $0.fault = .init(at: $0.operations + 1, code: ENOSPC, isLasting: false) }
            #expect(throws: StoreError.self) { try store.commitNow() }
            #expect(try store.texts(row) == ["message 1", "message 2", "message 3"])
        }
    }

    /// A seed whose first draw makes the disk lose everything that is not durable.
    private var seedOfNothingSurviving: UInt64 {
        (1...100).first { seed in
            var generator = SimulatedDisk.Generator(seed: seed)
            return generator.next() % 3 == 0
        } ?? 1
    }
}
