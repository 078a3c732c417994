/// A page whose destruction failed and is tried again at every reap.
struct DoomedPage: Equatable {
    enum File { case rows, columns }
    let file: File
    let slot: Int
}

/// Pages of rows and columns that could not be destroyed yet, in the order in which they were marked. Nothing is served
/// from them.
final class DoomedPages {
    private(set) var all: [DoomedPage] = []

    func insert(_ page: DoomedPage) { if !all.contains(page) { all.append(page) } }

    func remove(_ page: DoomedPage) { all.removeAll { $0 == page } }
    func contains(_ page: DoomedPage) -> Bool { all.contains(page) }
}
