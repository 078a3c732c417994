/// The records of a segment that are in memory, by positions that they keep while older ones come before them.
struct RecordList {
    /// The position of the first record that a new list takes: room for more than any file holds.
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
