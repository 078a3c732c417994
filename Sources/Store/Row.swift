import Primitives

/// Names an inbox's row: the slot of its key page and which page that was, so that a reused slot is never taken for the
/// row before.
package struct RowID: Hashable, Comparable, Sendable, CustomStringConvertible {
    package let slot: UInt32
    package let generation: UInt64

    package init(slot: UInt32, generation: UInt64) {
        self.slot = slot
        self.generation = generation
    }

    package static func < (left: RowID, right: RowID) -> Bool {
        (left.slot, left.generation) < (right.slot, right.generation)
    }

    package var description: String { "\(slot)-\(String(generation, radix: 16))" }
}

/// An inbox's row while the store is unlocked. Everything of the inbox hangs on `secret` and dies with it.
final class Row {
    /// Where a live version of a message is.
    struct Place {
        let segment: Segment
        let record: Int
        /// Older versions lie around somewhere.
        var hasOlder: Bool
    }

    let id: RowID
    /// S_i.
    let secret: SharedSecret
    /// Of the key page, for fuses.
    let fingerprint: [UInt8]
    /// 16 random-looking bytes in hex, derived: nothing on the disk ties a name to a slot.
    let directory: String
    let logName: String
    let tag: [UInt8]
    let sidecarKey: SharedSecret

    /// When the row is to be destroyed, in milliseconds since the epoch.
    var fuse: Int64?
    /// Whether the directory exists and its entry is known to be durable.
    var directoryIsDurable = false
    var isScanned = false
    var segments: [Segment] = []
    /// The segment that took the last append, by the slot of its column.
    var appending: [Int: Segment] = [:]
    var index: [MessageID: Place] = [:]
    /// Live messages in append order; entries of messages gone since are skipped and swept now and then.
    var timeline: [(order: UInt64, id: MessageID)] = []
    var timelineIsSorted = true
    var nextOrder: UInt64 = 0
    var log: StateLog?
    var logIsLoaded = false

    init(slot: UInt32, secret: SharedSecret, fingerprint: [UInt8]) {
        self.secret = secret
        self.fingerprint = fingerprint
        func derived(_ label: String) -> [UInt8] {
            BLAKE2b.authenticate(key: secret.bytes, Array("mayfly row \(label)".utf8), byteCount: 16)
        }
        let generation = derived("generation").integer(UInt64.self, at: 0) ?? 0
        id = RowID(slot: slot, generation: generation)
        directory = Hex.encode(derived("directory"))
        logName = Hex.encode(derived("log name")) + ".log"
        tag = derived("tag")
        sidecarKey = SharedSecret(BLAKE2b.derive(key: secret.bytes, Array("mayfly row sidecar".utf8)))
    }

    /// A secret of the layers above, in a domain of its own.
    func derive(label: String) -> SecretBytes {
        BLAKE2b.derive(key: secret.bytes, Array("mayfly row use: \(label)".utf8))
    }

    /// Every segment's records are in `index`.
    var isIndexed: Bool { isScanned && segments.allSatisfy { $0.isIndexed || $0.isDead } }

    /// Enters record `position` of `segment`: the highest (order, version) of an identifier is the live one.
    func insert(_ segment: Segment, _ position: Int) {
        let record = segment.records[position]
        if !record.isHidden { nextOrder = max(nextOrder, record.order + 1) }
        var hasOlder = false
        if let known = index[record.id] {
            let other = known.segment.records[known.record]
            hasOlder = true
            if (other.order, other.version) >= (record.order, record.version) {
                segment.records[position].state = .superseded
                index[record.id]?.hasOlder = true
                return
            }
            known.segment.records[known.record].state = .superseded
            if other.order == record.order {
                index[record.id] = Place(segment: segment, record: position, hasOlder: true)
                return
            }
        }
        index[record.id] = Place(segment: segment, record: position, hasOlder: hasOlder)
        if record.isHidden { return }
        if let last = timeline.last, last.order > record.order { timelineIsSorted = false }
        timeline.append((record.order, record.id))
    }

    /// Takes a message out of service and sweeps the timeline when it is mostly gaps.
    func removeFromIndex(_ id: MessageID) {
        index[id] = nil
        if timeline.count > 2 * index.count + 64 { sweepTimeline() }
    }

    func sortTimeline() {
        guard !timelineIsSorted else { return }
        timeline.sort { $0.order < $1.order }
        // A message whose older version came back has two entries; an order belongs to one message.
        var last: UInt64?
        timeline.removeAll { entry in
            defer { last = entry.order }
            return entry.order == last
        }
        timelineIsSorted = true
    }

    private func sweepTimeline() {
        timeline.removeAll { entry in
            guard let place = index[entry.id] else { return true }
            return place.segment.records[place.record].order != entry.order
        }
    }
}
