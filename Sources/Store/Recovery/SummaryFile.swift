import Crypto

/// A cache of inbox summaries beside the state logs, so that a start with thousands of inboxes reads one file. Each
/// entry is sealed under its row and dies with it. It is valid only while the state log is unchanged.
///
///     magic (8) ‖ salt (16) ‖ { tag (16) ‖ length (4) ‖ sealed: log's file id (16) ‖ log's length (8) ‖ payload }
///
/// The tag is a keyed hash under the row, new with every salt: nothing on the disk ties an entry to a slot.
struct SummaryFile {
    private static let name = "summaries"
    private static let magic = Array("MFSUMS1\0".utf8)
    /// A longer file is never read.
    private static let maximumByteCount: Int64 = 256 << 20
    private static let tagByteCount = 16

    let services: StoreServices
    let grid: Grid

    func save(_ entries: [(row: RowID, payload: [UInt8])]) throws(StoreError) {
        _ = try services.unlockedKeys()
        services.commits.absorb()
        if services.isReadOnly { throw .readOnly(path: services.home.path) }
        let salt = randomBytes(16)
        var bytes = Self.magic + salt
        for (id, payload) in entries {
            // Skip an undurable state: the next start may find another one in the log.
            guard let row = grid.rows[id], row.log.map({ services.commits.isDurable($0.file) }) ?? true,
                let fingerprint = logFingerprint(row)
            else { continue }
            var plaintext = fingerprint + payload
            defer { wipe(&plaintext) }
            let sealed = XChaChaPoly.seal(
                plaintext, key: summaryKey(row, salt), nonce: randomBytes(XChaChaPoly.nonceByteCount),
                authenticating: Self.magic + salt)
            guard let length = UInt32(exactly: sealed.count) else { continue }
            bytes += summaryTag(row, salt) + length.littleEndianBytes + sealed
        }
        let temporary = Self.name + ".new"
        try onDisk(services.home.path(Self.name)) { () throws(SystemError) in
            try? services.disk.remove(temporary, in: services.home.descriptor, isDirectory: false)
            let file = try services.disk.open(temporary, in: services.home.descriptor, [.write, .create])
            defer { services.disk.close(file) }
            try services.disk.write(file, at: 0, bytes)
            try services.disk.synchronize(file, dataOnly: false)
            try services.disk.rename(temporary, to: Self.name, in: services.home.descriptor)
        }
    }

    func load() -> [RowID: [UInt8]] {
        guard !services.isLocked, let bytes = summaryBytes(), bytes.starts(with: Self.magic), bytes.count >= 24 else {
            return [:]
        }
        let salt = Array(bytes[8..<24])
        var rowOfTag: [[UInt8]: Row] = [:]
        for row in grid.rows.values { rowOfTag[summaryTag(row, salt)] = row }
        var found: [RowID: [UInt8]] = [:]
        var position = 24
        while let length = bytes.integer(UInt32.self, at: position + Self.tagByteCount) {
            let start = position + Self.tagByteCount + 4
            guard Int(length) <= bytes.count - start else { break }
            let tag = Array(bytes[position..<(position + Self.tagByteCount)])
            position = start + Int(length)
            guard let row = rowOfTag[tag],
                let plaintext = try? XChaChaPoly.open(
                    bytes[start..<position], key: summaryKey(row, salt), authenticating: Self.magic + salt),
                let fingerprint = logFingerprint(row), plaintext.starts(with: fingerprint)
            else { continue }
            found[row.id] = Array(plaintext[fingerprint.count...])
        }
        return found
    }

    private func summaryBytes() -> [UInt8]? {
        guard let file = try? services.home.open(Self.name, []) else { return nil }
        defer { services.disk.close(file) }
        guard let count = try? services.disk.status(file).byteCount, count <= Self.maximumByteCount else { return nil }
        return try? services.disk.read(file, at: 0, count: Int(count))
    }

    private func summaryTag(_ row: Row, _ salt: [UInt8]) -> [UInt8] {
        BLAKE2b.authenticate(
            key: row.secret.bytes, Array("mayfly row summary tag".utf8) + salt, byteCount: Self.tagByteCount)
    }

    private func summaryKey(_ row: Row, _ salt: [UInt8]) -> SecretBytes {
        BLAKE2b.derive(key: row.secret.bytes, Array("mayfly row summary".utf8), salt)
    }

    /// The file id and the length of the row's state log: every saved state changes the pair.
    private func logFingerprint(_ row: Row) -> [UInt8]? {
        if let log = row.log { return log.id + UInt64(clamping: log.file.end).littleEndianBytes }
        // The journal has a state that the log on the disk lacks.
        if services.commits.backlog.contains(where: { $0.place.directory == row.names.directory.name }) { return nil }
        guard let directory = try? services.directories.open(row.directory) else { return nil }
        defer { services.disk.close(directory) }
        guard let file = try? services.disk.open(row.logName, in: directory, []) else { return nil }
        defer { services.disk.close(file) }
        guard let count = try? services.disk.status(file).byteCount,
            let header = try? services.disk.read(file, at: 0, count: StateLog.headerByteCount),
            let fileID = StateLog.fileID(header)
        else { return nil }
        return fileID + UInt64(clamping: count).littleEndianBytes
    }
}
