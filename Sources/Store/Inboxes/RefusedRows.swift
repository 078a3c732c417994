/// Rows with segments or sidecars that the disk refused to read.
final class RefusedRows {
    private let services: StoreServices
    private(set) var all: [Row] = []

    init(_ services: StoreServices) { self.services = services }

    func note(_ row: Row) {
        guard row.refusal == nil else { return }
        row.refusal = Row.Refusal(at: services.latestHide)
        all.append(row)
    }

    func remove(_ row: Row) { all.removeAll { $0 === row } }
    func removeAll() { all = [] }

    var due: [Row] { all.filter { $0.refusal.map { $0.end(at: services.latestHide) <= services.latestHide } ?? false } }
}
