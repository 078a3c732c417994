import Crypto

/// Snapshots of an inbox's state, sealed under the row: the last valid one counts. The log has no expiry and dies with
/// the row.
///
///     magic (8) ‖ file id (16) ‖ records
final class StateLog {
    static let headerByteCount = 24
    /// A log is replaced when it exceeds this size and four times the state's.
    private static let replacementByteCount: Int64 = 256 << 10
    private static let magic = Magic("MFLOG1")

    struct State {
        let number: UInt32
        let span: RecordFile.Span
    }

    let file: RecordFile
    let id: [UInt8]
    unowned let row: Row
    /// Some bytes exist but no record opens: damage, not a log that was never written.
    var holdsUnreadableBytes = false
    /// The newest committed snapshot and those after it.
    private var states: [State] = []
    /// The replaced log, until this one has a durable state.
    private(set) var previous: StateLog?
    private var isAbandoned = false

    init(row: Row, fileID: [UInt8], number: Int, replacing previous: StateLog? = nil, isNew: Bool) {
        self.row = row
        self.previous = previous
        id = fileID
        let key = SharedSecret(BLAKE2b.derive(key: row.secret.bytes, Array("mayfly row log".utf8), fileID))
        file = RecordFile(
            number: number, place: FilePlace(kind: .log, directory: row.names.directory.name, file: row.names.log),
            associatedData: Array("mayfly state".utf8) + fileID, key: key,
            header: isNew ? Self.magic.bytes + fileID : nil)
        file.owner = self
    }

    /// The file id, or `nil` for another kind of file.
    static func fileID(_ bytes: [UInt8]) -> [UInt8]? {
        guard bytes.count >= headerByteCount, magic.begins(bytes) else { return nil }
        return Array(bytes[8..<24])
    }

    static func isNewer(_ bytes: [UInt8]) -> Bool { magic.isLater(bytes) }

    var latest: State? { states.last }

    func append(_ state: [UInt8], nonces: inout NoncePool) {
        let number = file.nextNumber
        states.append(State(number: number, span: file.append(state, nonces: &nonces)))
    }

    func found(_ state: State) { states = [state] }

    func needsReplacement(for state: [UInt8]) -> Bool {
        file.end > Self.replacementByteCount && file.end > 4 * Int64(state.count)
    }

    /// Takes the replaced log once it is no longer needed.
    func takePrevious() -> StateLog? {
        guard let last = states.first, last.span.offset < file.durable else { return nil }
        defer { previous = nil }
        previous?.isAbandoned = true
        return previous
    }
}

extension StateLog: RecordFileOwner {
    var isGone: Bool { isAbandoned || row.isGone }
    var directory: InboxDirectory { row.names.directory }
    var sidecarBytes: [UInt8]? { nil }
    var fileID: [UInt8]? { id }

    func commitFailed(in range: Range<Int64>) {
        for state in states where range.contains(state.span.offset) { file.zero(state.span) }
        states.removeAll { range.contains($0.span.offset) }
        guard states.isEmpty, row.log === self else { return }
        // This log has no state: continue with the previous log, or with the file on the disk.
        isAbandoned = true
        row.logIsLoaded = previous != nil
        row.log = previous
    }

    func committed() {
        if let last = states.lastIndex(where: { $0.span.offset < file.durable }) { states.removeFirst(last) }
    }

    func moveEnded(_ span: RecordFile.Span, isErased: Bool) {}
}
