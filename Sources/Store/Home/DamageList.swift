/// What is wrong on the disk, in words for `doctor` and `status`; each thing once.
final class DamageList {
    /// Most entries; more are not kept.
    private static let limit = 100
    private(set) var entries: [String] = []

    func report(_ what: String) {
        if entries.count < Self.limit, !entries.contains(what) { entries.append(what) }
    }
}
