import Cryptography
import TestSupport
import Testing

@testable import Store

/// Compares the home of the page Store with the code. `Tests/Vectors/vectors.py` makes the examples.
@Suite struct StoreVectors {
    private let examples: VectorFile
    private let disk = PosixFileSystem()

    init() throws { examples = try VectorFile("Store") }

    /// A key page from the vector's beginning, end and hash; byte i of its payload is i mod 251.
    private func keyPage(_ name: String, header: [UInt8]) throws -> [UInt8] {
        let vector = try examples[name]
        let count = SlotFile.pageByteCount - header.count - XChaChaPoly.overheadByteCount
        return try check(
            vector,
            header
                + XChaChaPoly.seal(
                    (0..<count).map { UInt8($0 % 251) },
                    key: SecretBytes(copying: try examples["keystore"].bytes("KS")), nonce: try vector.bytes("nonce"),
                    authenticating: try vector.bytes("associated data")))
    }

    private func tombstonePage() throws -> [UInt8] {
        let vector = try examples["tombstone page"]
        let begins = try vector.bytes("plaintext begins")
        let plaintext = begins + [UInt8](repeating: 0, count: 4_024 - begins.count)
        return try check(
            vector,
            Array(try vector.bytes("page begins").prefix(32))
                + XChaChaPoly.seal(
                    plaintext, key: SecretBytes(copying: try examples["keystore"].bytes("KT")),
                    nonce: try vector.bytes("nonce"), authenticating: try vector.bytes("associated data")))
    }

    private func check(_ vector: Vector, _ bytes: [UInt8]) throws -> [UInt8] {
        #expect(bytes.count == SlotFile.pageByteCount)
        #expect(
            try bytes.starts(with: vector.bytes("page begins")) && bytes.suffix(16) == vector.bytes("page ends")[...])
        #expect(SHA256.hash(bytes) == (try vector.bytes("page's SHA-256")))
        return bytes
    }

    private func columnHeader() throws -> [UInt8] { Array(try examples["column page"].bytes("page begins").prefix(64)) }

    private func makeHome(_ path: String, keystore: String = "keystore") throws {
        func file(_ name: String, _ bytes: [UInt8]) throws {
            let file = try disk.open(path + "/" + name, in: nil, [.write, .create])
            defer { disk.close(file) }
            try disk.write(file, at: 0, bytes)
        }
        func slots(_ name: String, _ index: Int64, _ page: [UInt8]) throws {
            var bytes = [UInt8](repeating: 0x5a, count: SlotFile.growth * SlotFile.pageByteCount)
            bytes.replaceSubrange(Int(index) * page.count..<(Int(index) + 1) * page.count, with: page)
            try file(name, bytes)
        }
        let copy = try examples["keystore"].bytes(keystore)
        let padded = copy + [UInt8](repeating: 0x5a, count: SlotFile.pageByteCount - copy.count)
        let (row, column, tombstone) = (
            try examples["row page"], try examples["column page"], try examples["tombstone page"]
        )
        let (segment, clock) = (try examples["segment"], try examples["clock"])
        let directory = "inboxes/" + (try row.text("directory"))
        let stem = directory + "/" + (try segment.text("segment id"))
        for name in ["", "/inboxes", "/" + directory] { try disk.makeDirectory(path + name, in: nil) }
        try file("keystore", padded + padded)
        if keystore == "keystore" { try file("key", try examples["keystore"].bytes("key")) }
        try slots("rows.slots", try row.number("index"), try keyPage("row page", header: []))
        try slots("columns.slots", try column.number("index"), try keyPage("column page", header: try columnHeader()))
        try slots("tombstones.slots", try tombstone.number("index"), try tombstonePage())
        let mark = try clock.bytes("copy")
        try file("clock", mark + [UInt8](repeating: 0, count: 512 - mark.count) + mark)
        let block = try examples["journal"].bytes("block")
        try file("journal", block + [UInt8](repeating: 0, count: 16 * JournalBlock.pageByteCount - block.count))
        try file(directory + "/" + (try row.text("log name")) + ".log", try examples["state log"].bytes("log"))
        try file(stem + ".expiry", try segment.bytes("sidecar"))
        try file(stem + ".seg", try segment.bytes("segment"))
    }

    @Test func `the program reads a home made of the page's examples`() throws {
        let temporary = TemporaryDirectory()
        try makeHome(temporary.home)
        let now = try examples["clock"].number("time")
        let store = try Store.open(home: temporary.home, now: now, committingOn: .caller)
        defer { store.close() }
        #expect(store.clockMark() == now)
        try store.unlock(passphrase: nil)
        let vector = try examples["row page"]
        let row = try #require(store.liveRows().first)
        #expect(try store.liveRows().count == 1 && Int64(row.slot) == vector.number("index"))
        #expect(row.generation == (try vector.bytes("generation").integer(UInt64.self, at: 0)))
        let identity = try store.secret(row, label: "identity key 0")
        #expect(identity.withBytes { Array($0) } == (try vector.bytes("identity key 0")))
        #expect(try store.loadState(row) == text("the state"))
        let id = try #require(Bytes16(examples["segment"].bytes("plaintext")[20..<36]))
        #expect(try store.read(row, id: id, now: now) == text("a message"))
        #expect(
            try store.list(row, now: now).map { String(decoding: $0.payload, as: UTF8.self) } == [
                "a message", "a message in the journal",
            ])
        #expect(try store.tombstones().map(\.payload) == [text("a tombstone")])
        #expect(store.damage.isEmpty, "\(store.damage)")

        let end = try #require(try examples["segment"].bytes("plaintext").integer(Int64.self, at: 0))
        #expect(try store.read(row, id: id, now: end) == nil)
    }

    @Test func `the key file and the passphrase give the keys of the page's examples`() throws {
        let vector = try examples["keystore"]
        let keys = GridKeys(root: SecretBytes(copying: try vector.bytes("root")))
        for (name, key) in [
            ("KS", keys.sealing.withBytes { Array($0) }), ("KX", keys.mixing.withBytes { Array($0) }),
            ("KT", keys.tombstones.withBytes { Array($0) }), ("KC", keys.control.withBytes { Array($0) }),
            ("KJ", keys.journal.bytes.withBytes { Array($0) }),
        ] { #expect(key == (try vector.bytes(name)), "\(name)") }
        let temporary = TemporaryDirectory()
        try makeHome(temporary.home, keystore: "keystore of it")
        let now = try examples["clock"].number("time")
        let store = try Store.open(home: temporary.home, now: now, committingOn: .caller)
        defer { store.close() }
        #expect(throws: StoreError.wrongPassphrase) { try store.unlock(passphrase: secretBytes("correct horse")) }
        try store.unlock(passphrase: secretBytes(try vector.text("passphrase")))
        #expect(store.liveRows().count == 1)
    }

    @Test func `the program writes the bytes of the page's examples`() throws {
        let root = SecretBytes(copying: try examples["keystore"].bytes("root"))
        let keys = GridKeys(root: root)
        let (rowVector, columnVector) = (try examples["row page"], try examples["column page"])
        func open(_ name: String, _ bytes: [UInt8], _ vector: Vector, _ header: Int) throws -> SharedSecret {
            let index = Int(try vector.number("index"))
            return try #require(KeyPage.open(bytes, file: name, index: index, headerByteCount: header, keys: keys))
        }
        let secret = try open("rows.slots", try keyPage("row page", header: []), rowVector, 0)
        #expect(secret.bytes.withBytes { Array($0) } == (try rowVector.bytes("S")))
        let row = Row(slot: UInt32(try rowVector.number("index")), secret: secret)
        #expect(row.directory == (try rowVector.text("directory")))
        #expect(try row.logName == rowVector.text("log name") + ".log" && row.names.tag == rowVector.bytes("tag"))

        let columnBytes = try keyPage("column page", header: try columnHeader())
        let header = try #require(ColumnHeader(page: columnBytes))
        #expect(header.encoded == (try columnHeader()) && header.tier == .oneHour)
        let column = Column(slot: 2, header: header, secret: try open("columns.slots", columnBytes, columnVector, 64))
        #expect(column.secret.bytes.withBytes { Array($0) } == (try columnVector.bytes("E")))
        #expect(column.tag == (try columnVector.bytes("tag")))

        let segment = try examples["segment"]
        let id = try segment.bytes("segment id")
        let sidecar = ExpirySidecar(
            segmentID: id, header: column.header, columnTag: column.tag, inboxTag: row.names.tag,
            key: row.names.sidecarKey.bytes)
        #expect(sidecar.encoded == (try segment.bytes("sidecar")))
        let key = Segment.key(row: row, column: column, segmentID: id)
        #expect(key.bytes.withBytes { Array($0) } == (try segment.bytes("segment key")))
        let plaintext = try segment.bytes("plaintext")
        let message = try #require(Bytes16(plaintext[20..<36]))
        #expect(
            plaintext == MessageRecord.header(
                id: message, expiresAt: header.notAfter, order: 0, version: 0, kind: .listed,
                bounds: MessageRecord.Bounds()) + text("a message"))

        let block = try examples["journal"].bytes("block")
        let padding = [UInt8](repeating: 0, count: JournalBlock.pageByteCount - block.count)
        let journal = try #require(JournalBlock(block + padding, page: 0, key: keys.journal))
        #expect(journal.sequence == 1 && journal.previous == 0 && journal.first == 1 && journal.entries.count == 1)
        #expect(journal.bodies == (try examples["journal"].bytes("body")))
        #expect(JournalBlock(block + padding, page: 1, key: keys.journal) == nil)
        var table: [UInt8] = []
        for entry in journal.entries { entry.encode(to: &table) }
        #expect(table == (try examples["journal"].bytes("table")))

        let log = try examples["state log"]
        let state = StateLog(row: row, fileID: try log.bytes("file id"), number: 1, isNew: false)
        var found: [String] = []
        let bytes = try log.bytes("log")
        #expect(StateLog.fileID(bytes) == (try log.bytes("file id")))
        let loaded = state.file.load(bytes, from: StateLog.headerByteCount) { number, _, record in
            guard case .opened(let plaintext) = record else { return }
            found.append("\(number) \(String(decoding: plaintext, as: UTF8.self))")
        }
        #expect(loaded.isSound && loaded.isWhole && found == ["0 a state", "1 the state"])
    }
}
