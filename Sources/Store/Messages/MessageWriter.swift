import Crypto

final class MessageWriter {
    private let services: StoreServices
    private let grid: Grid
    private let segments: SegmentTable
    private let index: InboxIndex
    private let reader: MessageReader
    private let olderVersions: OlderVersions

    init(
        _ services: StoreServices, grid: Grid, segments: SegmentTable, index: InboxIndex, reader: MessageReader,
        olderVersions: OlderVersions
    ) {
        self.services = services
        self.grid = grid
        self.segments = segments
        self.index = index
        self.reader = reader
        self.olderVersions = olderVersions
    }

    // MARK: - Messages

    func append(
        to row: Row, id: Bytes16, tier: Tier, expiresAt: Int64, byteCount: Int, notBefore place: UInt64 = 0,
        isHidden: Bool = false, _ write: (UnsafeMutableRawBufferPointer) -> Void
    ) throws(StoreError) -> MessagePlace {
        guard tier != .fuse, tier != .control else { throw .invalidArgument("tier for a message") }
        let order = try append(
            to: row, id, tier, expiresAt, byteCount: byteCount, notBefore: place, kind: isHidden ? .hidden : .listed,
            write)
        return MessagePlace(order: order, tier: tier, expiresAt: expiresAt)
    }

    /// - Returns: the message's order.
    @discardableResult func append(
        to row: Row, _ id: Bytes16, _ tier: Tier, _ expiresAt: Int64, byteCount: Int, notBefore place: UInt64 = 0,
        kind: MessageRecord.Kind = .listed, _ write: (UnsafeMutableRawBufferPointer) -> Void
    ) throws(StoreError) -> UInt64 {
        if row.isGone { throw .unknownRow }
        try index.index(row)
        guard byteCount <= RecordFile.maximumPlaintext else { throw .tooLarge(limit: RecordFile.maximumPlaintext) }
        guard Tier.times.contains(expiresAt) else { throw .invalidArgument("time \(expiresAt)") }
        guard row.index[id] == nil else { throw .duplicateMessage }
        let segment = try segments.segment(for: row, tier, expiresAt: expiresAt)
        let order = kind == .hidden ? row.nextOrder : max(row.nextOrder, place)
        self.write(id, expiresAt, order: order, version: 0, kind: kind, byteCount: byteCount, to: segment, write)
        return order
    }

    func update(_ id: RowID, id messageID: [UInt8], payload: [UInt8]) throws(StoreError) {
        let row = try grid.row(id)
        guard payload.count <= RecordFile.maximumPlaintext else { throw .tooLarge(limit: RecordFile.maximumPlaintext) }
        guard let place = try index.find(Bytes16.parse(messageID), in: row), let holder = row.segments[Int(place.file)]
        else { throw .unknownMessage }
        try update(holder.records[place.record], in: holder, payload)
    }

    func update(_ old: MessageRecord, in holder: Segment, _ payload: [UInt8]) throws(StoreError) {
        if services.isReadOnly { throw .readOnly(path: services.home.path) }
        guard old.version < MessageRecord.maximumVersion else { throw .invalidArgument("number of versions") }
        let segment = holder.acceptsAppends ? holder : try segments.segment(for: holder.row, in: holder.column)
        write(
            old.id, old.expiresAt, order: old.order, version: old.version + 1, kind: old.kind, byteCount: payload.count,
            to: segment
        ) { $0.copyBytes(from: payload) }
    }

    private func write(
        _ id: Bytes16, _ expiresAt: Int64, order: UInt64, version: UInt32, kind: MessageRecord.Kind, byteCount: Int,
        to segment: Segment, _ write: (UnsafeMutableRawBufferPointer) -> Void
    ) {
        let number = segment.file.nextNumber
        let bounds = segment.bounds
        let headerByteCount = MessageRecord.headerByteCount
        let span = segment.file.append(byteCount: headerByteCount + byteCount, nonces: &services.nonces) { target in
            MessageRecord.writeHeader(
                id: id, expiresAt: expiresAt, order: order, version: version, kind: kind, bounds: bounds, to: target)
            write(UnsafeMutableRawBufferPointer(rebasing: target[headerByteCount...]))
        }
        services.commits.note(segment.file)
        segment.bounds.add(order: order, expiresAt: expiresAt, kind: kind)
        segments.enter(
            MessageRecord(
                id: id, expiresAt: expiresAt, order: order, version: version, number: number,
                length: UInt32(truncatingIfNeeded: span.length), offset: UInt32(clamping: span.offset), kind: kind,
                state: .live), in: segment)
    }

    func erase(_ id: RowID, id messageID: [UInt8]) throws(StoreError) {
        let row = try grid.row(id)
        let id = try Bytes16.parse(messageID)
        _ = try index.find(id, in: row)
        try erase(in: row, id)
    }

    func erase(in row: Row, _ id: Bytes16) throws(StoreError) {
        if services.isReadOnly { throw .readOnly(path: services.home.path) }
        guard let place = row.index[id], let holder = row.segments[Int(place.file)] else { throw .unknownMessage }
        row.removeFromIndex(id)
        if row.isRefused { row.erasedMeanwhile.insert(id) }
        let versions = place.hasOlder || row.hasFailures ? row.versions(of: id) : [(holder, place.record)]
        // A power cut must not leave an older version where the disk had a newer one: the older one would be served. So
        // the newest version that is surely on the disk, and versions that may be on it, are zeroed last.
        let newest =
            versions.lastIndex { segment, position in Int64(segment.records[position].offset) < segment.file.durable }
            ?? versions.endIndex
        for (index, (segment, position)) in versions.enumerated() {
            segments.overwrite(segment, position, versions.count > 1 && index >= newest ? .last : .first)
        }
    }

    // MARK: - Statuses

    func appendStatus(
        to row: Row, tier: Tier, expiresAt: Int64, concerning places: ClosedRange<UInt64>, byteCount: Int,
        _ write: (UnsafeMutableRawBufferPointer) -> Void
    ) throws(StoreError) {
        guard tier != .fuse, tier != .control else { throw .invalidArgument("tier for a status") }
        if row.isGone { throw .unknownRow }
        try index.index(row)
        guard byteCount <= RecordFile.maximumPlaintext else { throw .tooLarge(limit: RecordFile.maximumPlaintext) }
        guard Tier.times.contains(expiresAt) else { throw .invalidArgument("time \(expiresAt)") }
        let segment = try segments.segment(for: row, tier, expiresAt: expiresAt)
        self.write(
            Bytes16(places.lowerBound, places.upperBound), expiresAt,
            // After all concerned messages: a hidden record has the place of the next message.
            order: max(row.nextOrder, places.upperBound), version: 0, kind: .status, byteCount: byteCount, to: segment,
            write)
    }

    // MARK: - Moving

    func reschedule(_ id: RowID, id messageID: [UInt8], tier: Tier, expiresAt: Int64, payload: [UInt8]?)
        throws(StoreError)
    {
        guard tier != .fuse, tier != .control else { throw .invalidArgument("tier for a message") }
        guard Tier.times.contains(expiresAt) else { throw .invalidArgument("time \(expiresAt)") }
        guard (payload?.count ?? 0) <= RecordFile.maximumPlaintext else {
            throw .tooLarge(limit: RecordFile.maximumPlaintext)
        }
        let row = try grid.row(id)
        if services.isReadOnly { throw .readOnly(path: services.home.path) }
        let messageID = try Bytes16.parse(messageID)
        guard let place = try index.find(messageID, in: row), let holder = row.segments[Int(place.file)],
            let message = try reader.open(place, row, services.latestHide)
        else { throw .unknownMessage }
        let old = holder.records[place.record]
        let column = try grid.column(tier, expiresAt: expiresAt)
        if old.expiresAt == expiresAt, holder.column === column {
            if let payload { try update(old, in: holder, payload) }
            return
        }
        guard old.version < MessageRecord.maximumVersion else { throw .invalidArgument("number of versions") }
        let segment = try segments.segment(for: row, in: column)
        var payload = payload ?? message.payload
        defer { wipe(&payload) }
        write(
            messageID, expiresAt, order: old.order, version: old.version + 1, kind: old.kind, byteCount: payload.count,
            to: segment
        ) { $0.copyBytes(from: payload) }
        // The new version may have returned to an expiry of an older version.
        row.halfMoved.remove(messageID)
        // Older versions have the old expiry, and so the old column.
        let holders = place.hasOlder ? row.orderedSegments.filter { $0.column === holder.column } : [holder]
        olderVersions.erase(messageID, in: holders)
    }
}
