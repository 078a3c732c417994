import Cryptography
import Glibc
import SimulatedDisk
import Testing

@testable import Store

@Suite struct DamageTests {
    private func home() throws -> (disk: SimulatedDisk, rows: [RowID]) {
        let (disk, store) = try makeStore()
        let rows = [try store.createRow(), try store.createRow()]
        for row in rows {
            for number in 1...3 { try store.put(row, number, at: start + 5_000, "text \(number)") }
            try store.saveState(row, text("state"))
        }
        try store.commitNow()
        store.close()
        return (disk, rows)
    }

    private func counts(_ disk: SimulatedDisk, _ rows: [RowID], _ comment: Comment? = nil) throws -> (
        Set<Int>, damage: Int
    ) {
        let store = try openHome(disk)
        defer { store.close() }
        var counts: [Int] = []
        for row in rows where store.liveRows().contains(row) {
            let messages = try store.list(row, now: start)
            for message in messages { #expect(message.payload.starts(with: text("text ")), comment) }
            counts.append(messages.count)
        }
        return (Set(counts), store.damage.count)
    }

    private func paths(_ disk: SimulatedDisk, _ suffix: String) -> [String] {
        disk.files().keys.filter { $0.hasSuffix(suffix) }.sorted()
    }

    @Test func `a missing, foreign, changed or truncated sidecar is reported, and its segment counts as expired`()
        throws
    {
        let (disk, rows) = try home()
        let sidecars = paths(disk, ".expiry")
        try #require(sidecars.count == 2)
        let own = try #require(disk.files()[sidecars[0]])
        let foreign = try #require(disk.files()[sidecars[1]])
        var variants: [[UInt8]?] = [nil, foreign, own + [0]]
        for count in 0..<own.count { variants.append(Array(own[..<count])) }
        for index in own.indices {
            var changed = own
            changed[index] ^= UInt8(1 << (index % 8))
            variants.append(changed)
        }
        for variant in variants {
            let copy = disk.copy()
            copy.replace(sidecars[0], with: variant)
            let (found, damage) = try counts(copy, rows)
            #expect(found == [0, 3] && damage == 1)
            #expect(paths(copy, ".seg").count == 1)
        }
    }

    @Test func `a changed column header shortens lifetimes, with a valid check or without`() throws {
        let (disk, rows) = try home()
        let columns = try #require(disk.files()["/home/columns.slots"])
        for index in 0..<ColumnHeader.byteCount + 8 {
            let copy = disk.copy()
            var changed = columns
            changed[index] ^= 1
            copy.replace("/home/columns.slots", with: changed)
            #expect(try counts(copy, rows).0 == [0], "byte \(index)")
        }
        let copy = disk.copy()
        let longer = ColumnHeader(tier: .oneHour, expiresAt: start + 50 * 10_000)
        copy.replace("/home/columns.slots", with: longer.encoded + columns[ColumnHeader.byteCount...])
        let (found, damage) = try counts(copy, rows)
        #expect(found == [0] && damage > 0)
        #expect(copy.files()["/home/columns.slots"]?.prefix(4_096) != (longer.encoded + columns[64..<4_096])[...])
    }

    @Test func `a fuse whose header is changed to a later time burns at the unlock`() throws {
        let (disk, rows) = try home()
        let store = try openHome(disk)
        try store.scheduleDestruction(of: rows[0], at: start + 60_000)
        store.close()
        var columns = try #require(disk.files()["/home/columns.slots"])
        let slot = try #require((0..<64).first { ColumnHeader(page: Array(columns[($0 * 4_096)...]))?.tier == .fuse })
        let header = try #require(ColumnHeader(page: Array(columns[(slot * 4_096)...])))
        let later = ColumnHeader(
            tier: .fuse, expiresAt: start + 900 * hour, rowSlot: header.rowSlot, rowFingerprint: header.rowFingerprint)
        columns.replaceSubrange((slot * 4_096)..<(slot * 4_096 + 64), with: later.encoded)
        disk.replace("/home/columns.slots", with: columns)
        #expect(try openHome(disk).liveRows() == [rows[1]])
    }

    /// A home whose first unlock misread the page of one inbox; the next unlock opens it.
    private func homeWithOneSetAside() throws -> (disk: SimulatedDisk, rows: [RowID]) {
        let (disk, rows) = try home()
        let pages = try #require(disk.files()["/home/rows.slots"])
        var misread = pages
        misread[Int(rows[0].slot) * 4_096 + 1_000] ^= 4
        disk.replace("/home/rows.slots", with: misread)
        let store = try openHome(disk)
        #expect(store.liveRows() == [rows[1]])
        store.close()
        #expect(disk.paths().contains { $0.contains(".lost-") })
        disk.replace("/home/rows.slots", with: pages)
        return (disk.copy(), rows)
    }

    @Test func `an inbox set aside returns once its page opens, also while another page is unreadable`() throws {
        let (disk, rows) = try homeWithOneSetAside()
        let page = Int(rows[1].slot) * 4_096
        disk.with { $0.unreadable["rows.slots"] = page..<(page + 4_096) }
        let store = try openHome(disk)
        #expect(store.liveRows() == [rows[0]])
        #expect(try store.isUsed(rows[0]))
        #expect(try store.list(rows[0], now: start).count == 3)
        #expect(store.damage.contains { $0.hasSuffix("the inbox is back") })
        store.close()
        disk.with { $0.unreadable = [:] }
        #expect(try counts(disk, rows) == ([3], 0))
    }

    @Test(arguments: [false, true]) func `an inbox set aside does not count as unused, whichever call the disk refuses`(
        isLasting: Bool
    ) throws {
        let (home, rows) = try homeWithOneSetAside()
        /// Destroys rows that are unused and have no state, like the node does.
        func load(_ store: Store) {
            for row in store.liveRows() {
                do { if try store.loadState(row) == nil, try !store.isUsed(row) { try store.destroyRow(row) } } catch {
                    continue
                }
            }
        }
        let trial = home.copy()
        load(try openHome(trial))
        for operation in 1...trial.operations {
            let disk = home.copy()
            disk.with { $0.fault = .init(at: operation, code: EIO, isLasting: isLasting, isForOneCall: true) }
            if let store = try? openHome(disk) {
                load(store)
                if !store.damage.contains(where: { $0.hasSuffix("the inbox is back") }), store.liveRows() == rows {
                    #expect(throws: StoreError.self, "operation \(operation)") { try store.isUsed(rows[0]) }
                }
                disk.with { $0.fault = nil }
                if store.liveRows() == rows {
                    #expect(try store.loadState(rows[0]) == text("state"), "operation \(operation)")
                }
                store.close()
            }
            disk.with { $0.fault = nil }
            let again = try openHome(disk)
            #expect(again.liveRows() == rows, "operation \(operation)")
            for row in again.liveRows() { #expect(try again.list(row, now: start).count == 3) }
            again.close()
        }
    }

    @Test func `an inbox set aside does not count as unused on a read-only disk`() throws {
        let (disk, rows) = try homeWithOneSetAside()
        disk.with { $0.isReadOnly = true }
        let store = try openHome(disk)
        #expect(try store.loadState(rows[0]) == nil)
        #expect(try store.isUsed(rows[0]))
        store.close()
    }

    @Test func `a segment truncated at any byte serves its whole records`() throws {
        let (disk, rows) = try home()
        let path = try #require(paths(disk, ".seg").first)
        let bytes = try #require(disk.files()[path])
        let record = bytes.count / 3
        for count in 0..<bytes.count {
            let copy = disk.copy()
            copy.replace(path, with: Array(bytes[..<count]))
            let (found, damage) = try counts(copy, rows)
            // A cut between two records cannot be detected.
            #expect(found == [count / record, 3] && damage == (count % record == 0 ? 0 : 1))
        }
        // Records appended after a torn tail are found again.
        let copy = disk.copy()
        copy.replace(path, with: Array(bytes[..<(bytes.count - 5)]))
        let store = try openHome(copy)
        for row in rows { try store.put(row, 4, at: start + 5_000, "text 4") }
        try store.commitNow()
        store.close()
        #expect(try counts(copy, rows).0 == [3, 4])
    }

    @Test func `a segment with any bit flipped never traps, and loses at most one record`() throws {
        let (disk, rows) = try home()
        let path = try #require(paths(disk, ".seg").first)
        let bytes = try #require(disk.files()[path])
        for index in bytes.indices {
            let copy = disk.copy()
            var changed = bytes
            changed[index] ^= UInt8(1 << (index % 8))
            copy.replace(path, with: changed)
            let (found, damage) = try counts(copy, rows, "byte \(index)")
            // Reading forward does not need the length at a record's end.
            let isTrailer = index % (bytes.count / 3) >= bytes.count / 3 - RecordFrames.trailerByteCount
            #expect(found == (isTrailer ? [3] : [2, 3]), "byte \(index)")
            #expect(damage == 1, "byte \(index)")
        }
    }

    @Test func `records moved, repeated or copied from another segment are not served`() throws {
        let (disk, rows) = try home()
        let files = paths(disk, ".seg")
        let bytes = try #require(disk.files()[files[0]])
        let other = try #require(disk.files()[files[1]])
        let size = bytes.count / 3
        let (a, b, c) = (Array(bytes[..<size]), Array(bytes[size..<(2 * size)]), Array(bytes[(2 * size)...]))
        for (changed, expected) in [(b + a + c, 2), (a + a + b + c, 3), (a + Array(other[size...]), 1), (c, 1)] {
            let copy = disk.copy()
            copy.replace(files[0], with: changed)
            let (found, damage) = try counts(copy, rows)
            #expect(found == [expected, 3] && damage > 0)
        }
    }

    @Test func `a state log damaged at any byte gives its last valid state or an error`() throws {
        let (disk, rows) = try home()
        let path = try #require(paths(disk, ".log").first)
        let bytes = try #require(disk.files()[path])
        for index in bytes.indices {
            for isCut in [true, false] {
                let copy = disk.copy()
                var changed = bytes
                changed[index] ^= 1
                copy.replace(path, with: isCut ? Array(bytes[..<index]) : changed)
                let store = try openHome(copy)
                var found: [[UInt8]?] = []
                var isDamaged = false
                for row in rows {
                    do throws(StoreError) { found.append(try store.loadState(row)) } catch {
                        guard case .damaged = error else { throw error }
                        isDamaged = true
                    }
                }
                // The other inbox is whole. A log that is cut to its header holds no state.
                #expect(found.contains(text("state")))
                let isTrailer = !isCut && index >= bytes.count - RecordFrames.trailerByteCount
                #expect(isDamaged || isTrailer || (isCut && index <= 24 && found.contains(nil)))
                for row in rows { try store.saveState(row, text("later")) }
                try store.commitNow()
                store.close()
                let again = try openHome(copy)
                for row in rows { #expect(try again.loadState(row) == text("later")) }
                again.close()
            }
        }
    }

    @Test func `foreign files are removed or ignored`() throws {
        let (disk, rows) = try home()
        let directory = try disk.open("/home/inboxes", in: nil, .directory)
        try disk.makeDirectory(String(repeating: "ab", count: 16), in: directory)
        _ = try disk.open("stray", in: directory, [.write, .create])
        #expect(try counts(disk, rows) == ([3], 2))
        // A directory that looks like an inbox is set aside, and removed after a week.
        #expect(try disk.list(directory).count == 3)
        try openHome(disk, now: start + InboxDirectories.lostInterval).close()
        #expect(try disk.list(directory).count == 2)
    }

    @Test(arguments: [.max, .min, -1, (1 << 48) + 1] as [Int64], [0, 512])
    func `an impossible time in the clock file is ignored and reported as damage`(time: Int64, offset: Int) throws {
        var (disk, store) = try makeStore()
        for step in 1...2 as ClosedRange<Int64> { try store.saveClockMark(start + step) }
        store.close()
        let bytes = time.littleEndianBytes
        let copy = bytes + BLAKE2b.hash(Array("mayfly clock".utf8), bytes, byteCount: 16)[..<8]
        var file = try #require(disk.files()["/home/clock"])
        file.replaceSubrange(offset..<(offset + 16), with: copy)
        disk.replace("/home/clock", with: file)
        #expect((start...(start + 2)).contains(try HomeInspection(home: "/home", fileSystem: disk).clockMark ?? -1))
        store = try openHome(disk)
        #expect((start...(start + 2)).contains(store.clockMark()))
        #expect(store.damage == ["/home/clock is damaged"])
        try store.saveClockMark(start + 3)
        store = try store.reopened()
        #expect(store.clockMark() == start + 3 && store.damage.isEmpty)
        store.close()
        file.replaceSubrange((512 - offset)..<(528 - offset), with: copy)
        disk.replace("/home/clock", with: file)
        store = try openHome(disk)
        #expect(store.clockMark() == 0 && store.damage == ["/home/clock is damaged"])
        store.close()
    }

    @Test func `an inbox whose last state was refused is in no summary, even before the store knows`() throws {
        let disk = try makeHome()
        let pending = PendingCommits()
        let store = try openHome(disk, committingOn: pending.thread)
        let row = try store.createRow()
        for isRefused in [false, true] {
            try store.saveState(row, text("state"))
            store.commit { _ in }
            disk.with { $0.fault = isRefused ? .init(at: $0.operations + 2, code: EIO, isLasting: false) : nil }
            pending.run()
            disk.with { $0.fault = nil }
            // The store does not know the outcome of the commit yet.
            try store.saveSummaries([(row, text("summary"))])
            #expect(store.loadSummaries().isEmpty == isRefused)
        }
        store.close()
    }

    @Test func `truncated or changed summaries are dropped, and the others are unchanged`() throws {
        let (disk, store) = try makeStore()
        var expected: [RowID: [UInt8]] = [:]
        for number in 1...3 {
            let row = try store.createRow()
            try store.saveState(row, text("state \(number)"))
            expected[row] = text("summary \(number)")
        }
        try store.commitNow()
        try store.saveSummaries(expected.sorted { $0.key < $1.key }.map { ($0.key, $0.value) })
        #expect(store.loadSummaries() == expected)
        let path = "/home/summaries"
        let bytes = try #require(disk.files()[path])
        func check(_ changed: [UInt8], _ comment: Comment) {
            disk.replace(path, with: changed)
            for (row, payload) in store.loadSummaries() { #expect(expected[row] == payload, comment) }
        }
        for count in 0..<bytes.count {
            check(Array(bytes[..<count]), "\(count) bytes")
            var flipped = bytes
            flipped[count] ^= 0x41
            check(flipped, "byte \(count)")
        }
        check(bytes + bytes, "twice")
        store.close()
    }
}
