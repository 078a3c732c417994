import Cryptography

/// The slot of an inbox's key page and the page's generation, so that a reused slot is another row.
package struct RowID: Hashable, Comparable, Sendable, CustomStringConvertible {
    package let slot: UInt32
    package let generation: UInt64

    package static func < (left: RowID, right: RowID) -> Bool {
        (left.slot, left.generation) < (right.slot, right.generation)
    }

    package var description: String { "\(slot)-\(String(generation, radix: 16))" }
}

/// An inbox's row while the store is unlocked. All keys of the inbox derive from `secret` and are lost with it.
///
///     unknown ── first use, or its turn of the scan ──▶ open ── release ──▶ resting ── use, or a record is due ─▶ open
///        └──────────────────────────── the directory holds nothing but the log ────────────────────┘
///
/// Most rows of a large home are unknown or resting: a few hundred bytes each.
final class Row {
    /// The position of a live version. A trivial type, so that freeing a million of them takes no time.
    struct Place {
        /// Number of the segment's file. 32 bits outlast any process.
        let file: UInt32
        private var bits: UInt32
        private static let olderBit: UInt32 = 1 << 31

        init(_ segment: Segment, _ position: Int, hasOlder: Bool) {
            file = UInt32(truncatingIfNeeded: segment.file.number)
            bits = UInt32(truncatingIfNeeded: position) & ~Self.olderBit | (hasOlder ? Self.olderBit : 0)
        }

        var record: Int { Int(bits & ~Self.olderBit) }
        /// Older versions may exist in other places.
        var hasOlder: Bool { bits & Self.olderBit != 0 }
        mutating func noteOlder() { bits |= Self.olderBit }
    }

    struct RestingSegment {
        let id: Bytes16
        let column: Int
        /// No record expires before this moment.
        let moment: Int64
    }

    enum Contents {
        /// The directory was not read since the unlock.
        case unknown
        case resting([RestingSegment])
        case open
    }

    /// When the disk last refused a read, and the pause before the next attempt: 1 s, doubling to 64 s.
    struct Refusal {
        private static let longestPause: Int64 = 64_000
        private var moment: Int64
        private var pause = Retry.interval

        init(at moment: Int64) { self.moment = moment }

        mutating func goOn(at moment: Int64) {
            self.moment = moment
            pause = min(2 * pause, Self.longestPause)
        }

        /// When to retry. At once if the clock was set back behind `moment`.
        func end(at now: Int64) -> Int64 { now < moment ? now : moment + pause }
    }

    /// Names derived from the secret: 16 random-looking bytes each, so nothing on the disk ties a name to a slot.
    final class Names {
        let directory: InboxDirectory
        let log: Bytes16
        let tag: [UInt8]
        let sidecarKey: SharedSecret

        init(_ secret: SharedSecret) {
            directory = InboxDirectory(Self.directory(secret))
            log = Self.inline(secret, "log name")
            tag = Self.bytes(secret, "tag")
            sidecarKey = SharedSecret(BLAKE2b.derive(key: secret.bytes, Array("mayfly row sidecar".utf8)))
        }

        static func directory(_ secret: SharedSecret) -> Bytes16 { inline(secret, "directory") }

        private static func inline(_ secret: SharedSecret, _ label: String) -> Bytes16 {
            bytes(secret, label).withUnsafeBytes { Bytes16(copying: $0) }
        }

        static func bytes(_ secret: SharedSecret, _ label: String) -> [UInt8] {
            BLAKE2b.authenticate(key: secret.bytes, Array("mayfly row \(label)".utf8), byteCount: 16)
        }
    }

    let id: RowID
    /// S in Store.md, "Keys".
    let secret: SharedSecret
    private var loadedNames: Names?

    /// When to destroy the row, in milliseconds since the epoch.
    var fuse: Int64?
    /// The page is destroyed or about to be. Only files and memory remain to be removed.
    var isGone = false
    /// The inbox is unused: the reaper releases what it reads.
    var isAsleep = true
    var contents = Contents.unknown
    var segments: [Int: Segment] = [:]
    /// By file number, a fixed order: each segment's operations may reach the disk.
    var orderedSegments: [Segment] { segments.values.sorted { $0.file.number < $1.file.number } }
    /// The segment that took the last append, by column slot.
    var appending: [Int: Segment] = [:]
    var lastAppended: Segment?
    var index: [Bytes16: Place] = [:]
    /// Live messages in append order. Entries of removed messages are skipped and swept from time to time.
    var timeline: [(order: UInt64, id: Bytes16)] = []
    var timelineIsSorted = true
    /// Status records in memory. They are removed with their segment.
    private var statuses: [(order: UInt64, place: Place)] = []
    private var statusesAreSorted = true
    var nextOrder: UInt64 = 0
    private(set) var visibleCount = 0
    /// Sealed bytes of the live messages.
    private(set) var storedByteCount: Int64 = 0
    /// Messages found twice with different expiries: their move was interrupted.
    var halfMoved: Set<Bytes16> = []
    var log: StateLog?
    var logIsLoaded = false

    init(slot: UInt32, secret: SharedSecret) {
        self.secret = secret
        id = RowID(slot: slot, generation: Names.bytes(secret, "generation").integer(UInt64.self, at: 0) ?? 0)
    }

    var names: Names {
        if let loadedNames { return loadedNames }
        let names = Names(secret)
        loadedNames = names
        return names
    }

    var directory: String { Hex.encode(names.directory.name.bytes) }
    var logName: String { FilePlace(kind: .log, directory: names.directory.name, file: names.log).fileName }

    /// The directory's name, without keeping the other names in memory.
    var directoryOnce: String { Hex.encode((loadedNames?.directory.name ?? Names.directory(secret)).bytes) }

    func derive(label: String) -> SecretBytes {
        BLAKE2b.derive(key: secret.bytes, Array("mayfly row use: \(label)".utf8))
    }

    func derive(label: String, with column: SharedSecret) -> SecretBytes {
        BLAKE2b.derive(key: secret.joined(with: column), Array("mayfly row and column use: \(label)".utf8))
    }

    var isOpen: Bool { if case .open = contents { true } else { false } }

    /// When the first record of a resting row expires.
    var restingMoment: Int64? {
        guard case .resting(let segments) = contents, let first = segments.lazy.map(\.moment).min(), first < .max else {
            return nil
        }
        return first
    }

    /// The tail of every segment was read, except of refused ones.
    var isProbed = false
    /// Some segments cannot be read before the next unlock, if ever. Resting keeps this flag.
    private(set) var lacksSegments = false
    var refusal: Refusal?
    private(set) var refusedSegments: Set<Int> = []
    /// File names without their extension.
    private(set) var refusedSidecars: Set<String> = []
    /// Messages erased meanwhile. Their versions in refused segments must not be served later.
    var erasedMeanwhile: Set<Bytes16> = []
    var isRefused: Bool { !refusedSegments.isEmpty || !refusedSidecars.isEmpty }
    var hasUnreadSegments: Bool { lacksSegments || isRefused }

    /// Wipes the row's secret and the keys derived from it. Its file names remain.
    func wipe() {
        secret.wipe()
        loadedNames?.sidecarKey.wipe()
        for segment in segments.values { segment.file.wipeKey() }
        var log = log
        while let next = log {
            next.file.wipeKey()
            log = next.previous
        }
    }

    func forgetContents() {
        segments = [:]
        isProbed = false
        lacksSegments = false
        refusal = nil
        refusedSegments = []
        refusedSidecars = []
        erasedMeanwhile = []
        appending = [:]
        lastAppended = nil
        index = [:]
        timeline = []
        timelineIsSorted = true
        statuses = []
        statusesAreSorted = true
        nextOrder = 0
        visibleCount = 0
        storedByteCount = 0
        halfMoved = []
        hasFailures = false
        log = nil
        logIsLoaded = false
        loadedNames = nil
    }

    func refused(segment number: Int) { if refusedSegments.insert(number).inserted { leaveRoom() } }

    func refused(sidecar stem: String) { if refusedSidecars.insert(stem).inserted { leaveRoom() } }

    func lackSegment() {
        lacksSegments = true
        leaveRoom()
    }

    func noteRead(segment number: Int) { refusedSegments.remove(number) }
    func noteRead(sidecar stem: String) { refusedSidecars.remove(stem) }

    /// An unreadable segment may hold higher orders, so new records skip 2^32 of them.
    private func leaveRoom() {
        let (order, isTooLarge) = nextOrder.addingReportingOverflow(1 << 32)
        if !isTooLarge { nextOrder = order }
    }

    /// A commit failed, so the disk may hold records that are in no index.
    var hasFailures = false

    /// All versions of a message, the oldest first.
    func versions(of id: Bytes16) -> [(segment: Segment, position: Int)] {
        segments.values.flatMap { segment in
            segment.records.indices.filter {
                segment.records[$0].isVersion(of: id) && segment.records[$0].state != .erased
            }.map { (segment, $0) }
        }.sorted { $0.0.records[$0.1].version < $1.0.records[$1.1].version }
    }

    func record(at place: Place) -> MessageRecord? { segments[Int(place.file)]?.records[place.record] }

    /// Indexes a record. The highest (order, version) of an identifier is the live one.
    func insert(_ segment: Segment, _ position: Int) {
        let record = segment.records[position]
        if record.kind != .hidden { nextOrder = max(nextOrder, record.order + 1) }
        if record.kind == .status { return enterStatus(segment, position) }
        let place = Place(segment, position, hasOlder: false)
        guard let known = index[record.id], let holder = segments[Int(known.file)] else {
            index[record.id] = place
            count(record, 1)
            return enterTimeline(record)
        }
        let other = holder.records[known.record]
        if other.expiresAt != record.expiresAt { halfMoved.insert(record.id) }
        if (other.order, other.version) >= (record.order, record.version) {
            segment.records[position].state = .superseded
            index[record.id]?.noteOlder()
            return
        }
        holder.records[known.record].state = .superseded
        index[record.id] = Place(segment, position, hasOlder: true)
        count(other, -1)
        count(record, 1)
        if other.order != record.order { enterTimeline(record) }
    }

    /// Takes the bounds of all records of a segment from its last record.
    func expect(_ bounds: MessageRecord.Bounds) { nextOrder = max(nextOrder, bounds.ceiling) }

    private func enterStatus(_ segment: Segment, _ position: Int) {
        let order = segment.records[position].order
        if let last = statuses.last, last.order > order { statusesAreSorted = false }
        statuses.append((order, Place(segment, position, hasOlder: false)))
    }

    func statuses(concerning places: ClosedRange<UInt64>) -> [Place] {
        if !statusesAreSorted {
            statuses.sort { $0.order < $1.order }
            statusesAreSorted = true
        }
        // A status record follows the messages that it concerns.
        return statuses[statuses.partitioningIndex { $0.order >= places.lowerBound }...].lazy.map(\.place).filter {
            place in
            guard let record = self.record(at: place), record.state == .live else { return false }
            return record.concerned?.overlaps(places) ?? false
        }
    }

    func removeStatuses(of segment: Segment) {
        guard segment.records.all.contains(where: { $0.kind == .status }) else { return }
        statuses.removeAll { Int($0.place.file) == segment.file.number }
    }

    /// Requires a sorted timeline.
    func firstEntry(from place: UInt64) -> Int { timeline.partitioningIndex { $0.order >= place } }

    private func enterTimeline(_ record: MessageRecord) {
        if !record.isListed { return }
        if let last = timeline.last, last.order > record.order { timelineIsSorted = false }
        timeline.append((record.order, record.id))
    }

    private func count(_ record: MessageRecord, _ step: Int) {
        if record.isListed { visibleCount += step }
        storedByteCount += Int64(step) * Int64(record.length)
    }

    /// Withdraws an unreliable version and serves the previous one again.
    func withdraw(_ segment: Segment, _ position: Int) {
        let record = segment.records[position]
        guard let place = index[record.id], Int(place.file) == segment.file.number, place.record == position else {
            return
        }
        removeFromIndex(record.id)
        guard record.version > 0 else { return }
        for segment in segments.values where !segment.isDead {
            for position in segment.records.indices {
                let other = segment.records[position]
                guard other.isVersion(of: record.id), other.state == .superseded || other.state == .moving else {
                    continue
                }
                segment.records[position].state = .live
                insert(segment, position)
                timelineIsSorted = false
            }
        }
    }

    /// Removes a message from the index and sweeps the timeline when most of it is gaps.
    func removeFromIndex(_ id: Bytes16) {
        guard let place = index.removeValue(forKey: id) else { return }
        if let record = record(at: place) { count(record, -1) }
        guard timeline.count > 2 * index.count + 64 else { return }
        timeline.removeAll { entry in index[entry.id].flatMap { record(at: $0)?.order } != entry.order }
    }

    func sortTimeline() {
        guard !timelineIsSorted else { return }
        timeline.sort { $0.order < $1.order }
        // A message whose older version came back has two entries. An order belongs to one message.
        var last: UInt64?
        timeline.removeAll { entry in
            defer { last = entry.order }
            return entry.order == last
        }
        timelineIsSorted = true
    }
}
