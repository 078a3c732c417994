/// Damage on the disk in words, for `doctor` and `status`: each thing once, the newest ones.
final class DamageList {
    /// Most entries; beyond it the oldest go.
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

    /// A write that has failed. A full disk is no damage.
    func report(_ what: String, of error: StoreError) { if error.kind != .full { report("\(what): \(error)") } }
}
