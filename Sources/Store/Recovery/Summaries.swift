import Crypto

/// What is known of inboxes without opening them: a cache beside the state logs, so that a start with thousands of
/// inboxes reads one file. Each entry is sealed under its row and dies with it; it counts only while the state log is
/// what it was when the entry was written.
///
///     magic (8) ‖ salt (16) ‖ { tag (16) ‖ length (4) ‖ sealed: log's file id (16) ‖ log's length (8) ‖ payload }
///
/// The tag is a keyed hash under the row, new with every salt: nothing on the disk ties an entry to a slot.
extension Store {
    static let summariesName = "summaries"
    private static let summariesMagic = Array("MFSUMS1\0".utf8)
    /// Most bytes of the file that are ever read.
    private static let summariesLimit: Int64 = 256 << 20
    private static let tagByteCount = 16

    /// Replaces the file. A power failure may cost it, which costs the next start time, and nothing else.
    /// - Parameter entries: of inboxes whose last state is on the disk; others are left out.
    package func saveSummaries(_ entries: [(row: RowID, payload: [UInt8])]) throws(StoreError) {
        _ = try unlockedKeys()
        commits.absorb()
        if isReadOnly { throw .readOnly(path: home.path) }
        let salt = randomBytes(16)
        var bytes = Self.summariesMagic + salt
        for (id, payload) in entries {
            // The next start may find in a log what it was refused.
            guard let row = rows[id], row.log.map({ commits.isDurable($0.file) }) ?? true,
                let fingerprint = logFingerprint(row)
            else { continue }
            var plaintext = fingerprint + payload
            defer { wipe(&plaintext) }
            let sealed = XChaChaPoly.seal(
                plaintext,
                key: summaryKey(row, salt),
                nonce: randomBytes(XChaChaPoly.nonceByteCount),
                authenticating: Self.summariesMagic + salt
            )
            guard let length = UInt32(exactly: sealed.count) else { continue }
            bytes += summaryTag(row, salt) + length.littleEndianBytes + sealed
        }
        let temporary = Self.summariesName + ".new"
        try onDisk(home.path(Self.summariesName)) { () throws(SystemError) in
            try? disk.remove(temporary, in: home.descriptor, isDirectory: false)
            let file = try disk.open(temporary, in: home.descriptor, [.write, .create])
            defer { disk.close(file) }
            try disk.write(file, at: 0, bytes)
            try disk.synchronize(file, dataOnly: false)
            try disk.rename(temporary, to: Self.summariesName, in: home.descriptor)
        }
    }

    /// The payloads that still say how it is. A file that is missing, damaged or old is not an error.
    package func loadSummaries() -> [RowID: [UInt8]] {
        guard !isLocked, let bytes = summaryBytes(), bytes.starts(with: Self.summariesMagic), bytes.count >= 24 else {
            return [:]
        }
        let salt = Array(bytes[8..<24])
        var rowOfTag: [[UInt8]: Row] = [:]
        for row in rows.values { rowOfTag[summaryTag(row, salt)] = row }
        var found: [RowID: [UInt8]] = [:]
        var position = 24
        while let length = bytes.integer(UInt32.self, at: position + Self.tagByteCount) {
            let start = position + Self.tagByteCount + 4
            guard Int(length) <= bytes.count - start else { break }
            let tag = Array(bytes[position..<(position + Self.tagByteCount)])
            position = start + Int(length)
            guard let row = rowOfTag[tag],
                let plaintext = try? XChaChaPoly.open(
                    bytes[start..<position],
                    key: summaryKey(row, salt),
                    authenticating: Self.summariesMagic + salt
                ),
                let fingerprint = logFingerprint(row), plaintext.starts(with: fingerprint)
            else { continue }
            found[row.id] = Array(plaintext[fingerprint.count...])
        }
        return found
    }

    private func summaryBytes() -> [UInt8]? {
        guard let file = try? home.open(Self.summariesName, []) else { return nil }
        defer { disk.close(file) }
        guard let count = try? disk.status(file).byteCount, count <= Self.summariesLimit else { return nil }
        return try? disk.read(file, at: 0, count: Int(count))
    }

    private func summaryTag(_ row: Row, _ salt: [UInt8]) -> [UInt8] {
        BLAKE2b.authenticate(
            key: row.secret.bytes,
            Array("mayfly row summary tag".utf8) + salt,
            byteCount: Self.tagByteCount
        )
    }

    private func summaryKey(_ row: Row, _ salt: [UInt8]) -> SecretBytes {
        BLAKE2b.derive(key: row.secret.bytes, Array("mayfly row summary".utf8), salt)
    }

    /// Which file the row's state log is and how long: both change with every state that is saved.
    private func logFingerprint(_ row: Row) -> [UInt8]? {
        if let log = row.log { return log.id + UInt64(clamping: log.file.end).littleEndianBytes }
        guard let directory = try? directories.open(row.directory) else { return nil }
        defer { disk.close(directory) }
        guard let file = try? disk.open(row.logName, in: directory, []) else { return nil }
        defer { disk.close(file) }
        guard let count = try? disk.status(file).byteCount,
            let header = try? disk.read(file, at: 0, count: StateLog.headerByteCount),
            let fileID = StateLog.fileID(header)
        else { return nil }
        return fileID + UInt64(clamping: count).littleEndianBytes
    }
}
