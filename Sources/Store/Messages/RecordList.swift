/// The records of a segment in memory. Their positions stay valid when older records are prepended.
struct RecordList {
    /// First position of a new list: leaves room for more older records than any file holds.
    private static let beginning = 1 << 28
    private var storage: [MessageRecord] = []
    private var base = Self.beginning

    var indices: Range<Int> { base..<(base + storage.count) }
    var count: Int { storage.count }
    var all: [MessageRecord] { storage }
    var first: MessageRecord? { storage.first }

    subscript(_ position: Int) -> MessageRecord {
        get { storage[position - base] }
        _modify { yield &storage[position - base] }
    }

    mutating func append(_ record: MessageRecord) { storage.append(record) }

    /// - Parameter older: the oldest first.
    mutating func prepend(_ older: [MessageRecord]) {
        base -= older.count
        storage = older + storage
    }
}
