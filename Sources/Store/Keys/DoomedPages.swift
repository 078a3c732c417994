/// A page whose destruction failed. Every reap retries it.
struct DoomedPage: Equatable {
    enum File { case rows, columns }
    let file: File
    let slot: Int
}

/// Pages of rows and columns that await destruction, in the order in which they were marked. They serve no data.
final class DoomedPages {
    private(set) var all: [DoomedPage] = []

    func insert(_ page: DoomedPage) { if !all.contains(page) { all.append(page) } }

    func remove(_ page: DoomedPage) { all.removeAll { $0 == page } }
    func contains(_ page: DoomedPage) -> Bool { all.contains(page) }
}
