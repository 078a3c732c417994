import Crypto

/// Overwrites versions of a message that remain under another expiry.
final class OlderVersions {
    private let services: StoreServices
    /// Interrupted moves need a commit.
    var areWaiting = false

    init(_ services: StoreServices) { self.services = services }

    /// Overwrites every superseded version with another expiry, once the live one is durable.
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

    /// Completes interrupted moves: makes the newer version durable and overwrites the older one.
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
