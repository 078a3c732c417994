/// The newest findings of damage on the disk, without duplicates, for `doctor` and `status`.
final class DamageList {
    /// The oldest entries are dropped beyond this number.
    private static let limit = 100
    private var newest: [String] = []
    private var isCut = false

    var entries: [String] {
        isCut ? newest + ["older damage, which is not listed: there are more than \(Self.limit) entries"] : newest
    }

    func report(_ what: String) {
        guard !newest.contains(what) else { return }
        newest.append(what)
        guard newest.count > Self.limit else { return }
        newest.removeFirst()
        isCut = true
    }

    /// Reports a failed write. A full disk is not damage.
    func report(_ what: String, of error: StoreError) { if error.kind != .full { report("\(what): \(error)") } }
}
