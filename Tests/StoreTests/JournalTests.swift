import Cryptography
import Glibc
import SimulatedDisk
import Testing

@testable import Store

@Suite struct JournalTests {
    private let disk: SimulatedDisk
    private let store: Store
    private let rows: [RowID]

    init() throws {
        disk = try makeHome()
        store = try openHome(disk)
        rows = [try store.createRow(), try store.createRow()]
    }

    private var journal: [UInt8] { disk.files()["/home/journal"] ?? [] }
    private var segments: [String] { disk.files().keys.filter { $0.hasSuffix(".seg") }.sorted() }

    /// Three commits: two messages of two inboxes, a state, and another message.
    /// - Parameter hasFailure: Whether a commit after the first fails.
    private func fill(hasFailure: Bool = false) throws {
        for (number, row) in rows.enumerated() { try store.put(row, number, at: start + hour, "message \(number)") }
        try store.commitNow()
        if hasFailure {
            try store.put(rows[1], 30, at: start + hour, "refused")
            disk.with { $0.fault = .init(at: $0.operations + 2, code: EIO, isLasting: false) }
            #expect(throws: StoreError.self) { try store.commitNow() }
            #expect(disk.with { $0.struckCall } == "fsync")
            disk.with { $0.fault = nil }
        }
        try store.saveState(rows[0], text("state"))
        try store.commitNow()
        try store.put(rows[0], 7, .thirtyDays, at: start + 700 * hour, "message 7")
        try store.commitNow()
    }

    private func cut() -> SimulatedDisk { disk.durableCopy() }

    private func texts(_ store: Store) throws -> [String] { try store.liveRows().flatMap { try store.texts($0) } }

    /// A store in a new home whose commits wait for `run`.
    private final class WaitingStore {
        let disk: SimulatedDisk
        let store: Store
        let rows: [RowID]
        private(set) var answered: Set<Int> = []
        private(set) var failures: [any Error] = []
        private let pending = PendingCommits()

        init(rowCount: Int) throws {
            disk = try makeHome()
            store = try openHome(disk, committingOn: pending.thread)
            rows = try (0..<rowCount).map { [store] _ in try store.createRow() }
            pending.run()
        }

        /// Two commits per row. The second erases a state that is in the journal, which forces a checkpoint.
        func submitAll() {
            nonisolated(unsafe) let target = self
            for (number, row) in rows.enumerated() where !answered.contains(number) {
                do {
                    try store.saveState(row, text("first"))
                    store.commit { _ in }
                    try store.put(row, number, at: start + hour, "message \(number)")
                    try store.saveState(row, text("second"))
                } catch {
                    failures.append(error)
                    continue
                }
                store.commit { if case .success = $0 { target.answered.insert(number) } }
            }
            pending.run()
        }

        /// Every acknowledged commit survives a power cut that keeps only durable data.
        func check(_ comment: Comment) throws {
            let again = try openHome(disk.durableCopy())
            for number in answered {
                #expect(try again.get(rows[number], number, now: start) == "message \(number)", comment)
                #expect(try again.loadState(rows[number]) == text("second"), comment)
            }
            again.close()
        }
    }

    @Test func `queued checkpoints write every record once`() throws {
        func operationCount(_ rowCount: Int) throws -> Int {
            let waiting = try WaitingStore(rowCount: rowCount)
            let before = waiting.disk.operations
            waiting.submitAll()
            #expect(waiting.failures.isEmpty && waiting.answered.count == rowCount)
            let count = waiting.disk.operations - before
            try waiting.check("\(rowCount) rows")
            return count
        }
        #expect(try operationCount(40) < 3 * operationCount(20))
    }

    @Test(arguments: [true, false])
    func `a queued checkpoint stays correct when an earlier one fails or the power is cut`(isCut: Bool) throws {
        let whole = try WaitingStore(rowCount: 3)
        let first = whole.disk.operations
        whole.submitAll()
        for operation in first + 1...whole.disk.operations {
            let waiting = try WaitingStore(rowCount: 3)
            waiting.disk.with { state in
                if isCut {
                    state.crashAt = operation
                } else {
                    state.fault = .init(at: operation, code: EIO, isLasting: false)
                }
            }
            waiting.submitAll()
            if !isCut {
                for _ in 0..<3 where waiting.answered.count < 3 { waiting.submitAll() }
                #expect(waiting.answered.count == 3, "operation \(operation): \(waiting.failures)")
            }
            try waiting.check("operation \(operation)")
        }
    }

    @Test func `a commit is one write and one barrier, however many inboxes and states it has`() throws {
        try fill()
        for (number, row) in rows.enumerated() {
            try store.put(row, 10 + number, at: start + hour, "more")
            try store.saveState(row, text("state \(number)"))
        }
        let before = disk.operations
        try store.commitNow()
        #expect(disk.operations - before == 2)
        #expect(segments.isEmpty)
    }

    @Test func `a checkpoint leaves no written record in the journal`() throws {
        try fill()
        #expect(journal.contains { $0 != 0 })
        #expect(store.nextTask == start + GroupCommit.checkpointDelay)
        let due = start + GroupCommit.checkpointDelay
        store.reap(hide: due, destroy: due)
        #expect(segments.count == 3)
        // The marker is a head, an empty table and its seal.
        #expect(journal.count { $0 != 0 } <= JournalBlock.headerByteCount + XChaChaPoly.overheadByteCount)
        #expect(store.nextTask ?? 0 > due)
        let again = try openHome(cut())
        #expect(try texts(again) == ["message 0", "message 7", "message 1"])
        again.close()
    }

    @Test func `neither records already written out nor destroyed ones make a further checkpoint due`() throws {
        try fill()
        // The journal has the erased record, so this commit checkpoints.
        try store.erase(rows[0], id: messageID(0))
        try store.put(rows[1], 8, at: start + hour, "message 8")
        try store.commitNow()
        #expect(store.commits.checkpointAt == nil && !store.commits.hasUnwritten)
        try store.put(rows[1], 9, at: start + hour, "message 9")
        try store.commitNow()
        try store.destroyRow(rows[1])
        for _ in 0..<2 {
            guard let due = store.commits.checkpointAt else { break }
            store.reap(hide: due, destroy: due)
        }
        #expect(store.commits.checkpointAt == nil)
        #expect(try texts(store) == ["message 7"])
    }

    @Test func `a half-full journal and a large commit each cause a checkpoint at once`() throws {
        let half = store.journal.halfByteCount / 2
        try store.put(rows[0], 1, at: start + hour, "first")
        try store.commitNow()
        #expect(segments.isEmpty)
        try store.put(rows[0], 2, at: start + hour, String(repeating: "x", count: half))
        try store.commitNow()
        #expect(segments.count == 1 && !store.commits.hasUnwritten)
        try store.put(rows[1], 3, at: start + hour, String(repeating: "y", count: 4 * half))
        try store.commitNow()
        #expect(segments.count == 2 && !store.commits.hasUnwritten)
        let again = try openHome(cut())
        #expect(try texts(again).map(\.count) == [5, half, 4 * half])
        again.close()
    }

    @Test(arguments: [false, true]) func `a damaged block is reported, and the acknowledged blocks after it are read`(
        hasFailure: Bool
    ) throws {
        try fill(hasFailure: hasFailure)
        let sound = try openHome(cut())
        // The missing number of the failed commit is not reported as damage.
        #expect(sound.damage.isEmpty)
        #expect(try texts(sound) == ["message 0", "message 7", "message 1"])
        sound.close()
        for page in 0..<3 {
            let copy = cut()
            var bytes = try #require(copy.files()["/home/journal"])
            bytes[page * 4_096 + 60] ^= 1
            copy.replace("/home/journal", with: bytes)
            let again = try openHome(copy)
            #expect(again.damage.contains { $0.contains("journal") }, "page \(page)")
            let found = try texts(again)
            #expect(found.contains("message 7") == (page != 2), "page \(page), \(found), \(again.damage)")
            #expect(found.contains("message 1") == (page != 0), "page \(page), \(found)")
            again.close()
            let last = try openHome(copy)
            #expect(last.damage.isEmpty)
            last.close()
        }
    }

    @Test func `a journal of another home or an earlier time adds no records`() throws {
        try fill()
        let early = try #require(cut().files()["/home/journal"])
        let other = try makeHome()
        other.replace("/home/journal", with: early)
        let foreign = try openHome(other)
        #expect(foreign.liveRows().isEmpty && foreign.damage.contains { $0.contains("makes no commit") })
        foreign.close()
        // Checkpointed, erased, and begun anew: the old blocks do not reappear beside the new ones.
        try store.erase(rows[0], id: messageID(0))
        try store.commitNow()
        try store.put(rows[1], 9, at: start + hour, "new")
        try store.commitNow()
        let copy = cut()
        var bytes = try #require(copy.files()["/home/journal"])
        bytes.replaceSubrange(4_096..<12_288, with: early[4_096..<12_288])
        copy.replace("/home/journal", with: bytes)
        let again = try openHome(copy)
        #expect(Set(try texts(again)) == ["message 1", "message 7", "new"])
        again.close()
    }

    @Test func `an erased record is not in a journal that an earlier start failed to overwrite`() throws {
        try fill()
        let copy = cut()
        let trial = copy.copy()
        try openHome(trial).close()
        var blocked = 0
        for operation in 1...trial.operations {
            let disk = copy.copy()
            disk.with { $0.fault = .init(at: operation, code: EIO, isLasting: false) }
            guard let store = try? openHome(disk) else { continue }
            disk.with { $0.fault = nil }
            let isWrittenOut = disk.files().keys.count { $0.hasSuffix(".seg") } == 3
            let isOverwritten = disk.files()["/home/journal"]?.prefix(4_096).allSatisfy { $0 == 0 } ?? true
            guard isWrittenOut, store.commits.backlog.isEmpty, !isOverwritten else {
                store.close()
                continue
            }
            blocked += 1
            try store.erase(rows[0], id: messageID(0))
            try store.commitNow()
            let payloads = try readable(on: disk)
            #expect(payloads.contains(text("message 1")), "operation \(operation)")
            #expect(!payloads.contains(text("message 0")), "operation \(operation)")
            store.close()
        }
        #expect(blocked > 0)
    }

    @Test(arguments: [ENOSPC, EIO])
    func `an inbox the disk refuses to checkpoint is not served meanwhile, except on a full disk`(code: Int32) throws {
        try fill()
        let copy = cut()
        let trial = copy.copy()
        try openHome(trial).close()
        var refused = 0
        for operation in 1...trial.operations {
            let disk = copy.copy()
            disk.with { $0.fault = .init(at: operation, code: code, isLasting: true, isForOneCall: true) }
            let opened = try? openHome(disk)
            // A failed read may fail the start.
            guard ["write", "fsync", "mkdir"].contains(disk.with { $0.struckCall } ?? "") else {
                opened?.close()
                continue
            }
            if let again = opened {
                for row in again.liveRows() { do { _ = try again.list(row, now: start) } catch { refused += 1 } }
                disk.with { $0.fault = nil }
                #expect(try texts(again) == ["message 0", "message 7", "message 1"], "operation \(operation)")
                #expect(try again.loadState(rows[0]) == text("state"), "operation \(operation)")
                again.close()
            }
            disk.with { $0.fault = nil }
            let last = try openHome(disk)
            #expect(try texts(last) == ["message 0", "message 7", "message 1"], "operation \(operation)")
            last.close()
        }
        #expect(code == ENOSPC ? refused == 0 : refused > 4)
    }

    @Test func `a home without its journal opens, reports it, and stores new messages`() throws {
        try fill()
        store.close()
        for isCut in [true, false] {
            let copy = disk.copy()
            copy.replace("/home/journal", with: isCut ? [1, 2, 3] : nil)
            let again = try openHome(copy)
            #expect(again.damage.contains { $0.contains("/home/journal") })
            try again.put(rows[1], 20, at: start + hour, "without")
            try again.commitNow()
            again.close()
            let last = try openHome(copy.durableCopy())
            #expect(try texts(last).contains("without"))
            last.close()
        }
    }
}
