import Adversary
import Cryptography
import Dispatch
import FoundationEssentials
import Glibc
import Store
import TestSupport

/// The store alone, at sizes that would take hours to reach through the control socket. Homes are filled in memory
/// (`/dev/shm`) through the store's interface, with records of 200-byte messages, and opened as a copy on the measured
/// file system.
struct StoreRun {
    let directory: String
    let table: Table
    private static let payload = [UInt8](repeating: 0x6d, count: 320)
    private static let inboxCount = 10_000
    private static let hour: Int64 = 3_600_000

    func measure() throws {
        try measureAppends()
        for (count, figure) in [(10_000, Figure.storeLastFew), (1_000_000, .storeLastMany)] { try last(count, figure) }
        for (count, figure) in [
            (10, Figure.storeExplodeFew), (10_000, .storeExplodeMany), (1_000_000, .storeExplodeMost),
        ] { try explode(count, figure) }
        for (count, figure) in [(10, Figure.storeExpireFew), (10_000, .storeExpireMany)] { try expire(count, figure) }
        try manyBuckets()
        try manyInboxes()
    }

    private var now: Int64 {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return Int64(time.tv_sec) * 1_000 + Int64(time.tv_nsec) / 1_000_000
    }

    private func open(_ home: String) throws -> Store {
        let store = try Store.open(home: home, now: now)
        try store.unlock(passphrase: nil)
        return store
    }

    private func commit(_ store: Store) throws {
        let done = DispatchSemaphore(value: 0)
        store.commit { _ in done.signal() }
        done.wait()
    }

    private func identifier(_ number: Int) -> Bytes16 { Bytes16(UInt64(number).byteSwapped, 0) }

    /// Stores messages in commits of this size.
    private func append(
        _ count: Int, to row: RowID, of store: Store, _ payload: [UInt8] = Self.payload, inCommitsOf size: Int,
        isHidden: Bool = false, expiresAt: (Int) -> Int64
    ) throws {
        for number in 0..<count {
            try store.append(
                row, id: isHidden ? Bytes16(UInt64(number), 2) : identifier(number), tier: .oneDay,
                expiresAt: expiresAt(number), payload: payload, isHidden: isHidden)
            if number % size == size - 1 { try commit(store) }
        }
    }

    private func measureAppends() throws {
        let home = "\(directory)/append"
        defer { try? FileManager.default.removeItem(atPath: home) }
        try Store.create(home: home, protection: .keyFile, passphrase: nil)
        let store = try open(home)
        let row = try store.createRow()
        let expiresAt = now + 20 * Self.hour
        let (message, chunk) = ([UInt8](repeating: 0x6d, count: 200), [UInt8](repeating: 0x63, count: 60 << 10))
        let (count, chunks) = (50_000, 2_048)
        let before = processorTime
        let wall = try microseconds {
            try append(count, to: row, of: store, message, inCommitsOf: 100) { _ in expiresAt }
        }
        table.add(.storeAppend, (processorTime - before) / Double(count))
        table.add(.storeAppendWall, Double(count) / wall * 1_000_000)
        let time = try microseconds {
            try append(chunks, to: row, of: store, chunk, inCommitsOf: 32, isHidden: true) { _ in expiresAt }
        }
        table.add(.storeChunks, Double(chunks * chunk.count) / 1_048_576 / (time / 1_000_000))
        store.close()
    }

    private var processorTime: Double {
        var time = timespec()
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
        return Double(time.tv_sec) * 1e6 + Double(time.tv_nsec) / 1e3
    }

    /// An inbox with messages in eight five-minute buckets, as if they had come over time.
    private func filled(_ count: Int, _ body: (String, RowID) throws -> Void) throws {
        try prepared { store in
            let row = try store.createRow()
            let expiresAt = now + 24 * Self.hour
            try append(count, to: row, of: store, inCommitsOf: 10_000) { expiresAt + Int64($0 * 8 / count) * 300_000 }
            return row
        } body: {
            try body($0, $1)
        }
    }

    /// The last 50 messages of an inbox that is unused since the unlock.
    private func last(_ count: Int, _ figure: Figure) throws {
        try filled(count) { home, row in
            let store = try open(home)
            func read() throws {
                guard try store.list(row, last: 50, now: now).count == 50 else { throw Failure("messages are missing") }
            }
            try table.time(figure) { try read() }
            if figure == .storeLastMany { try table.time(.storeLastAgain) { try read() } }
            store.close()
        }
    }

    /// Time until the keys of an inbox with all messages indexed are destroyed.
    private func explode(_ count: Int, _ figure: Figure) throws {
        let isMost = figure == .storeExplodeMost
        try filled(count) { home, row in
            if isMost {
                let bytes = try probe(home)
                table.add(.storeIndexMemory, Double(bytes[2] - bytes[1]) / Double(count))
            }
            let store = try open(home)
            let indexed = try microseconds { _ = try store.storedAmount(row) }
            if isMost { table.add(.storeIndexTime, indexed / 1_000) }
            try table.time(figure) { try store.destroyRow(row) }
            var longest = 0.0
            while store.hasRemains { longest = max(longest, microseconds { store.collect() }) }
            if isMost { table.add(.storeCollect, longest) }
            store.close()
        }
    }

    /// Time until a bucket's key is destroyed, of an inbox that is unused since the unlock.
    private func expire(_ count: Int, _ figure: Figure) throws {
        let end = (now + 24 * Self.hour) / 300_000 * 300_000
        try prepared { store in
            try append(count, to: try store.createRow(), of: store, inCommitsOf: count) { _ in end }
        } body: { home, _ in
            let store = try open(home)
            let report = table.time(figure) { store.reap(hide: end, destroy: end) }
            guard report.columnsDestroyed == 1, report.failures.isEmpty else { throw Failure("no bucket ended") }
            store.close()
        }
    }

    /// Overdue buckets at a start: every possible bucket of the lifetimes up to a week.
    private func manyBuckets() throws {
        let start = now / Self.hour * Self.hour
        let late = start + 31 * 24 * Self.hour
        try prepared { store in
            var count = 0
            let row = try store.createRow()
            for tier in [Tier.sixHours, .oneDay, .sevenDays, .thirtyDays] {
                for edge in stride(
                    from: start + 2 * Self.hour, through: start + tier.lifetime, by: Int(tier.bucketWidth))
                where count < 1_000 {
                    try store.append(row, id: identifier(count), tier: tier, expiresAt: edge, payload: Self.payload)
                    count += 1
                    if count % 100 == 0 { try commit(store) }
                }
            }
            guard count == 1_000 else { throw Failure("\(count) buckets") }
        } body: { home, _ in
            let store = try table.time(.storeReap) {
                let store = try Store.open(home: home, now: late)
                let report = store.reap(hide: late, destroy: late)
                guard report.failures.isEmpty else { throw Failure("a bucket is left") }
                return store
            }
            store.close()
        }
    }

    private func manyInboxes() throws {
        try prepared {
            try fillInboxes($0)
        } body: { home, rows in
            let bytes = try probe(home)
            table.add(.storeInboxMemory, Double(bytes[1] - bytes[0]) / Double(Self.inboxCount))
            let store = try table.time(.storeUnlock) { try open(home) }
            let wakes = try stride(from: 7, to: Self.inboxCount, by: Self.inboxCount / 50).map { index in
                try microseconds {
                    guard try store.loadState(rows[index]) != nil,
                        try store.list(rows[index], last: 1, now: now).count == 1
                    else { throw Failure("an inbox is not what it was") }
                }
            }
            table.add(.storeWake, wakes.median)
            store.close()
        }
    }

    private func fillInboxes(_ store: Store) throws -> [RowID] {
        var rows: [RowID] = []
        for number in 0..<Self.inboxCount {
            let row = try store.createRow()
            rows.append(row)
            try store.saveState(row, [UInt8](repeating: 0x73, count: 1_500))
            for message in 0..<2 {
                try store.append(
                    row, id: identifier(message), tier: .oneDay, expiresAt: now + 20 * Self.hour, payload: Self.payload)
            }
            if number % 100 == 99 {
                try commit(store)
                for row in rows.suffix(100) { store.release(row) }
            }
        }
        return rows
    }

    /// A home, filled in memory and copied to the measured file system.
    private func prepared<Made>(_ fill: (Store) throws -> Made, body: (String, Made) throws -> Void) throws {
        let source = "/dev/shm/mayfly-bench-\(getpid())"
        let home = "\(directory)/store"
        defer { for path in [source, home] { try? FileManager.default.removeItem(atPath: path) } }
        try Store.create(home: source, protection: .keyFile, passphrase: nil)
        let store = try open(source)
        let made = try fill(store)
        try commit(store)
        store.close()
        _ = try Child.run(["/bin/cp", "-a", source, home])
        try? FileManager.default.removeItem(atPath: source)
        sync()
        try body(home, made)
    }

    /// Resident bytes of a fresh process before opening the home, after the unlock, and after the first use of the
    /// first inbox.
    private func probe(_ home: String) throws -> [Int] {
        let answer = String(decoding: try Child.run(["/proc/self/exe", Self.probeOption, home]), as: UTF8.self)
        let numbers = answer.split { $0 == " " || $0 == "\n" }.compactMap { Int($0) }
        guard numbers.count == 3 else { throw Failure("the probe of \(home) failed") }
        return numbers
    }

    static let probeOption = "--probe"
    static let aloneOption = "--store"

    static func answerProbe(home: String) throws {
        let run = StoreRun(directory: "", table: Table())
        // The allocator and libsodium reserve their memory first.
        _ = SecretBytes(randomByteCount: 32)
        let before = run.residentByteCount
        let store = try run.open(home)
        let unlocked = run.residentByteCount
        if let row = store.liveRows().first { _ = try store.messageIDs(row, beginningWith: [], limit: 1, now: run.now) }
        print(before, unlocked, run.residentByteCount)
        store.close()
    }

    private var residentByteCount: Int {
        guard let text = try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8) else { return 0 }
        let pages = text.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0
        return pages * Int(sysconf(Int32(_SC_PAGESIZE)))
    }
}
