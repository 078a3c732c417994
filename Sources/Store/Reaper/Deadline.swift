struct Deadline: Comparable {
    let moment: Int64
    /// The segment's file number, or -1 - slot for a row.
    private let number: Int

    init(_ segment: Segment) {
        moment = segment.earliest
        number = segment.file.number
    }

    init(_ row: Row, _ moment: Int64) {
        self.moment = moment
        number = -1 - Int(row.id.slot)
    }

    var file: Int? { number >= 0 ? number : nil }
    var slot: UInt32 { UInt32(truncatingIfNeeded: -1 - number) }

    static func < (left: Deadline, right: Deadline) -> Bool {
        (left.moment, left.number) < (right.moment, right.number)
    }
}
