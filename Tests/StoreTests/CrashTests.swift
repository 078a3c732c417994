import Cryptography
import Glibc
import SimulatedDisk
import Testing

@testable import Store

@Suite struct CrashTests {
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
        for (locks, call) in [false, true].flatMap({ locks in (1...12).map { (locks, $0) } }) {
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
            if !isDurable {
                failures += 1
                // The failure is reported once; the next message is accepted.
                try store.put(row, 3, .thirtyDays, at: start + 700 * hour, "later")
                try store.commitNow()
            }
            func check(_ store: Store) throws {
                let comment: Comment = "call \(call), locking: \(locks)"
                #expect(try isDurable || store.get(row, 3, now: start) == "later", comment)
                #expect(try !isDurable || store.get(row, 2, now: start) == "kept", comment)
                #expect(try !isDurable || store.loadState(row) == text("state"), comment)
            }
            try check(store)
            disk.reboot(seed: seedOfNothingSurviving)
            let again = try openHome(disk)
            try check(again)
            again.close()
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
        #expect(try again.list(row, now: start).map(\.id) == [2, 3, 4].map { messageID($0) })
        again.close()
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
