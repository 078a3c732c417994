import Crypto

/// Overwrites the versions of a message that were left behind under another expiry.
final class OlderVersions {
    private let services: StoreServices
    /// A commit is wanted for moves that were interrupted earlier.
    var areWaiting = false

    init(_ services: StoreServices) { self.services = services }

    /// Has every superseded version with another expiry overwritten, once the live one is durable.
    func erase(_ id: Bytes16, in holders: [Segment]) {
        guard let row = holders.first?.row, let live = row.index[id].flatMap({ row.record(at: $0) }) else { return }
        for holder in holders {
            for position in holder.records.indices {
                let record = holder.records[position]
                guard record.isVersion(of: id), record.state == .superseded, record.expiresAt != live.expiresAt else {
                    continue
                }
                holder.records[position].state = .moving
                holder.file.erase(record.span, .moved)
                services.commits.note(holder.file)
            }
        }
    }

    /// What an interrupted move has left twice: the newer version is made durable, and the older one overwritten.
    func eraseLeftBehind(_ row: Row) {
        guard !row.halfMoved.isEmpty, !services.isReadOnly else { return }
        for id in row.halfMoved.sorted(by: { $0.bytes.lexicographicallyPrecedes($1.bytes) }) {
            guard let place = row.index[id], let segment = row.segments[Int(place.file)] else { continue }
            segment.file.needsSynchronizing = true
            services.commits.note(segment.file)
            erase(id, in: row.orderedSegments)
        }
        row.halfMoved = []
        areWaiting = true
    }
}
