#if DEBUG || FUZZING
    import Cryptography
    import Glibc
    import SimulatedDisk
    @testable import Store

    /// A home on a simulated disk, changed by an attacker without its keys before it is opened.
    enum FuzzHome {
        private static let start = StoreForms.moment
        private static let hour: Int64 = 3_600_000
        private static let argon2 = Argon2Parameters(iterations: 1, memoryByteCount: 8_192)

        struct Stored {
            let expiresAt: Int64
            let payload: [UInt8]
        }

        /// The unchanged home, made once; every input gets a copy.
        private final class Base: @unchecked Sendable {
            var disk = SimulatedDisk()
            /// The same home with a truncated row file, because scanning free pages takes three quarters of opening.
            /// Directories without a row are kept there.
            var cutDisk = SimulatedDisk()
            var stored: [Bytes16: Stored] = [:]
            /// Names of the directory entries by the node they lead to.
            var names: [Int: String] = [:]
            var files: [Int] = []
        }

        private static let base: Result<Base, any Error> = Result {
            let base = Base()
            try Store.create(
                home: "/home", protection: .keyFile, passphrase: nil, fileSystem: base.disk, argon2: argon2,
                journal: SimulatedDisk.journalByteCount)
            let store = try open(base.disk, now: start)
            try store.unlock(passphrase: nil)
            var number: UInt64 = 0
            for index in 0..<2 {
                let row = try store.createRow()
                for (tier, life) in [(Tier.oneHour, hour), (.oneDay, 24 * hour), (.thirtyDays, 30 * 24 * hour)] {
                    for _ in 0..<2 {
                        number += 1
                        let id = Bytes16(number.byteSwapped, 0x0707_0707_0707_0707)
                        let one = Stored(
                            expiresAt: start + life - Int64(number) * 1_000, payload: [1, 2, UInt8(number)])
                        try store.append(
                            row, id: id, tier: tier, expiresAt: one.expiresAt, payload: one.payload,
                            isHidden: number.isMultiple(of: 5))
                        base.stored[id] = one
                    }
                }
                try store.saveState(row, [UInt8(index)])
                if index == 1 { try store.scheduleDestruction(of: row, at: start + 2 * hour) }
            }
            let fanOut = Bytes16(0x0909_0909_0909_0909, 0x0909_0909_0909_0909)
            base.stored[fanOut] = Stored(expiresAt: start + 24 * hour, payload: [5])
            try store.saveFanOut(id: fanOut, expiresAt: start + 24 * hour, payload: [5])
            _ = try store.addTombstone(keepUntil: start + 24 * hour, payload: [1, 2, 3])
            store.commit { _ in }
            try store.saveSummaries(store.liveRows().map { ($0, [7, 7]) })
            try store.saveClockMark(start)
            store.close()
            base.disk.with { state in
                for (_, node) in state.nodes { for (name, number) in node.entries { base.names[number] = name } }
                base.files = state.nodes.keys.sorted().filter { state.nodes[$0]?.isDirectory == false }
                // The lowest pages are used first. Shorter files save reading free pages and still grow; the row file
                // may not be shorter than it was made.
                for (number, name) in base.names where name == SlotFile.columnsName || name == SlotFile.tombstonesName {
                    edit(&state, number) { $0.resize(to: 16 * SlotFile.pageByteCount) }
                }
            }
            base.disk = base.disk.copy()
            base.disk.with { $0.isWrittenThrough = true }
            base.cutDisk = base.disk.snapshot()
            base.cutDisk.with { state in
                for (number, name) in base.names where name == SlotFile.rowsName {
                    edit(&state, number) { $0.resize(to: 4 * SlotFile.pageByteCount) }
                }
            }
            return base
        }

        private static func open(_ disk: SimulatedDisk, now: Int64) throws -> Store {
            try Store.open(home: "/home", fileSystem: disk, now: now, argon2Floor: argon2, committingOn: .caller)
        }

        private static func edit(
            _ state: inout SimulatedDisk.State, _ number: Int, _ body: (inout SimulatedBytes) -> Void
        ) {
            guard var node = state.nodes.removeValue(forKey: number) else { return }
            // Edits one of the two while the other is empty, so that no page is copied.
            node.durable = SimulatedBytes()
            body(&node.content)
            node.durable = node.content
            state.nodes[number] = node
        }

        static var seeds: [[UInt8]] {
            var seeds: [[UInt8]] = [FuzzScript().byte(14).bytes]
            // One change of each kind to each file, at the time of the last commit and long after.
            for kind in 1..<16 {
                for file in [0, 1, 2, 3, 4, 5, 7, 9] {
                    let script = FuzzScript().byte(1 + kind % 4 + 7 * (file % 3), kind, file).short(file * 700)
                    seeds.append(script.byte(1).run([1, 2, 3, 4, 5, 6, 7, 8]).number(UInt64(start)).bytes)
                }
            }
            return seeds
        }

        /// A damaged home must never return an unknown or expired message, nor trap. The first byte selects the time of
        /// opening, and what follows: reading, using or opening again.
        @Sendable static func check(_ bytes: [UInt8]) throws {
            let base = try base.get()
            let patience = FuzzPatience(bytes)
            let disk = (patience == .short ? base.cutDisk : base.disk).snapshot()
            var input = FuzzInput(bytes)
            let offsets = [0, hour / 2, hour, 2 * hour, 25 * hour, 40 * 24 * hour, -hour]
            let head = Int(input.byte())
            let now = start + offsets[head % offsets.count]
            let life = patience == .short ? 0 : head / offsets.count % 3
            for _ in 0..<16 where !input.isAtEnd { disk.with { state in change(&state, base, &input) } }
            guard let store = try? open(disk, now: now) else { return }
            defer { store.close() }
            do { try store.unlock(passphrase: nil) } catch { return }
            let rows = patience == .short ? head & 1..<(head & 1) + 1 : 0..<2
            try read(store, base, rows, now: now)
            guard life > 0 else { return }
            for row in store.liveRows() {
                let id = Bytes16(.max, .max)
                _ = try? store.append(row, id: id, tier: .oneHour, expiresAt: now + hour, payload: [9])
                try? store.saveState(row, [1, 1, 1])
                try? store.scheduleDestruction(of: row, at: now + hour)
            }
            store.commit { _ in }
            _ = store.reap(hide: now + 3 * hour, destroy: now + 3 * hour)
            try read(store, base, rows, now: now + 3 * hour)
            guard life > 1 else { return }
            store.collect(limit: .max)
            store.lock()
            do { try store.unlock(passphrase: nil) } catch { return }
            try read(store, base, rows, now: now + 3 * hour)
            for row in store.liveRows() { try? store.destroyRow(row) }
        }

        private static func read(_ store: Store, _ base: Base, _ rows: Range<Int>, now: Int64) throws {
            func check(_ message: StoredMessage) throws {
                guard let one = base.stored[message.id] else {
                    // Appended above by this test.
                    return try expect(message.payload == [9], "a message is served that nobody stored")
                }
                try expect(message.payload == one.payload, "a message reads otherwise")
                try expect(now < one.expiresAt, "a message is served \(now - one.expiresAt) ms after its time")
            }
            for (_, row) in zip(0..., store.liveRows()).filter({ rows.contains($0.0) }) {
                for message in (try? store.list(row, now: now)) ?? [] { try check(message) }
                for id in base.stored.keys {
                    guard let payload = try? store.read(row, id: id, now: now) else { continue }
                    try check(StoredMessage(id: id, expiresAt: 0, payload: payload))
                }
                _ = try? store.storedAmount(row)
                try? store.visitHidden(row) { _, _ in true }
                if let state = try? store.loadState(row) {
                    try expect(state.count == 1 || state == [1, 1, 1], "a state of \(state.count) bytes")
                }
            }
            for message in (try? store.fanOuts(now: now)) ?? [] { try check(message) }
            for tombstone in (try? store.tombstones()) ?? [] {
                try expect(tombstone.payload == [1, 2, 3], "a tombstone reads otherwise")
            }
            for (_, summary) in store.loadSummaries() { try expect(summary == [7, 7], "a summary reads otherwise") }
        }

        private static func change(_ state: inout SimulatedDisk.State, _ base: Base, _ input: inout FuzzInput) {
            let kind = input.index(below: 16)
            let number = input.one(of: base.files)
            guard let size = state.nodes[number]?.content.count else { return }
            let at = (Int(input.short()) << 4 | Int(input.byte() & 15)) % max(1, size)
            switch kind {
            case 1:
                guard size > 0 else { return }
                let change = input.byte() | 1
                edit(&state, number) { $0.write([$0.read(at: at, count: 1)[0] ^ change][...], at: at) }
            case 2: overwrite(&state, number, at, input.run())
            case 3: edit(&state, number) { $0.resize(to: min(at, size)) }
            case 4:
                let more = input.run()
                edit(&state, number) { $0.write(more[...], at: size) }
            case 5:
                let other = input.one(of: base.files)
                guard let content = state.nodes[number]?.content, let twin = state.nodes[other]?.content else { return }
                edit(&state, number) { $0 = twin }
                edit(&state, other) { $0 = content }
            case 6:
                // Replaces a page or sector by one of the same or another file.
                let other = input.one(of: base.files)
                let width = input.byte() & 1 == 0 ? SlotFile.pageByteCount : 512
                let from = Int(input.byte()) * width
                let part = state.nodes[other]?.content.read(at: from, count: width) ?? []
                overwrite(&state, number, at / width * width, part)
            case 7:
                for (parent, node) in state.nodes where node.entries.values.contains(number) {
                    state.nodes[parent]?.entries = node.entries.filter { $0.value != number }
                }
            case 8:
                let at = Int(input.byte() % 8) * SlotFile.pageByteCount
                forge(SlotFile.columnsName, "mayfly column header", at: at, count: 64, &state, base) { old in
                    let tier = input.one(of: Tier.allCases.map(\.rawValue))
                    var body = Array("MFCOL1\0\0".utf8) + [tier, 0, 0, 0]
                    body += UInt32(truncatingIfNeeded: input.number()).littleEndianBytes
                    body += input.number().littleEndianBytes + input.number().littleEndianBytes
                    return body + old[32..<48]
                }
            case 9:
                let magic = Array("MFTOMB1\0".utf8) + input.number().littleEndianBytes
                let at = Int(input.byte() % 4) * SlotFile.pageByteCount
                forge(SlotFile.tombstonesName, "mayfly tombstone", at: at, &state, base) { _ in magic }
            case 10:
                let at = Int(input.byte() & 1) * SlotFile.pageByteCount
                forge(Keystore.name, "mayfly keystore", at: at, count: 128, &state, base) { old in
                    var copy = old
                    copy.replaceSubrange(8..<16, with: input.number().littleEndianBytes)
                    // Random Argon2 parameters of a passphrase would take too long; their bounds have tests of their
                    // own.
                    copy[16] = Protection.keyFile.rawValue
                    let size = input.number().littleEndianBytes + input.number().littleEndianBytes
                    copy.replaceSubrange(24..<40, with: size)
                    return copy
                }
            case 11:
                let value = input.number().littleEndianBytes
                let at = Int(input.byte() & 1) * 512
                forge(ClockMark.name, "mayfly clock", at: at, check: 8, &state, base) { _ in value }
            case 12: forgeFrame(&state, number, &input)
            case 13:
                // Renames the file into any directory.
                let name = input.text().filter { $0 != "/" && $0 != "\0" }
                let directories = state.nodes.keys.sorted().filter { state.nodes[$0]?.isDirectory == true }
                let directory = input.one(of: directories)
                if !name.isEmpty { state.nodes[directory]?.entries[name] = number }
            case 14: state.nodes[number]?.mode = UInt32(input.short()) & 0o7777
            case 15:
                edit(&state, number) { content in
                    content = SimulatedBytes()
                    content.resize(to: min(1 << 18, at << 2))
                }
            default: break
            }
        }

        private static func overwrite(_ state: inout SimulatedDisk.State, _ number: Int, _ at: Int, _ bytes: [UInt8]) {
            edit(&state, number) { $0.write(bytes.prefix(max(0, $0.count - at)), at: at) }
        }

        /// Overwrites a plaintext header, whose checksum anyone can compute.
        /// - Parameter body: made of the present `count` bytes; nothing happens if the file has fewer.
        private static func forge(
            _ name: String, _ label: String, at offset: Int, count: Int = 0, check: Int = 16,
            _ state: inout SimulatedDisk.State, _ base: Base, _ body: ([UInt8]) -> [UInt8]
        ) {
            guard let number = base.names.first(where: { $0.value == name })?.key,
                let old = state.nodes[number]?.content.read(at: offset, count: count), old.count == count
            else { return }
            let body = body(old)
            let hash = BLAKE2b.hash(Array(label.utf8), body, byteCount: 16)
            overwrite(&state, number, offset, body + hash[..<check])
        }

        /// Appends a frame with any number and a valid checksum to a segment or log.
        private static func forgeFrame(_ state: inout SimulatedDisk.State, _ number: Int, _ input: inout FuzzInput) {
            guard let head = state.nodes[number]?.content.read(at: 0, count: 24) else { return }
            let data =
                head.count == 24 && head.starts(with: Array("MFLOG1\0\0".utf8))
                ? Array("mayfly state".utf8) + head[8..<24] : []
            let length = UInt32(input.byte())
            let frame = StoreForms.frame(length, UInt32(truncatingIfNeeded: input.number()), associatedData: data)
            let bytes = frame + [UInt8](repeating: input.byte(), count: Int(length))
            edit(&state, number) { $0.write(bytes[...], at: $0.count) }
        }
    }
#endif
