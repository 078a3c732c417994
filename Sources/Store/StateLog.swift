import Primitives

/// Snapshots of an inbox's state, sealed under the row: the last valid one counts. It has no expiry of its own and dies
/// with the row.
///
///     magic (8) ‖ file id (16) ‖ records
final class StateLog {
    static let headerByteCount = 24
    /// A log is rewritten when it is larger than this and than four times the state.
    static let compactionByteCount: Int64 = 256 << 10
    private static let magic = Array("MFLOG1\0\0".utf8)

    let file: RecordFile
    let row: Row
    /// Its inbox is destroyed.
    var isGone: Bool { row.isGone }
    /// There are records and none of them opens: damage, not a log that was never written.
    var holdsUnreadableBytes = false
    /// The newest snapshot, committed or not.
    var latest: (number: UInt32, span: RecordFile.Span)?
    /// The newest one that a completed commit covers.
    var durable: (number: UInt32, span: RecordFile.Span)?
    var covered: [(sequence: UInt64, latest: (number: UInt32, span: RecordFile.Span)?)] = []

    init(row: Row, fileID: [UInt8], number: Int, isNew: Bool) {
        self.row = row
        let key = SharedSecret(BLAKE2b.derive(key: row.secret.bytes, Array("mayfly row log".utf8), fileID))
        file = RecordFile(
            number: number,
            directory: row.directory,
            name: row.logName,
            associatedData: Array("mayfly state".utf8) + fileID,
            key: key,
            header: isNew ? Self.magic + fileID : []
        )
    }

    /// The file id, or `nil` for another kind of file.
    static func fileID(_ bytes: [UInt8]) -> [UInt8]? {
        guard bytes.count >= headerByteCount, bytes.starts(with: magic) else { return nil }
        return Array(bytes[8..<24])
    }

    func append(_ state: [UInt8]) {
        latest = (file.nextNumber, file.append(state))
    }

    func needsCompaction(for state: [UInt8]) -> Bool {
        file.end > Self.compactionByteCount && file.end > 4 * Int64(state.count)
    }
}
