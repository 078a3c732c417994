import SimulatedDisk

/// Random histories, each followed by an attack: dead payloads must be unreadable and live ones readable, or the
/// attacker is blind.
package final class ForensicCampaign {
    package private(set) var histories = 0
    package private(set) var deadTried = 0
    package private(set) var liveRead = 0
    package private(set) var placesTried = 0
    package private(set) var formerTried = 0
    package private(set) var expiredCount = 0
    package private(set) var lockedWaits = 0
    package private(set) var violations: [String] = []
    private let base: SimulatedDisk
    /// Page files of a fresh home: noise that every thorough run tries in full.
    private let noise: [[UInt8]]

    package init(on base: SimulatedDisk) {
        self.base = base
        noise = base.files().filter { $0.key.hasSuffix(".slots") }.map(\.value)
    }

    /// - Parameters:
    ///   - leavesOldBlocks: Plants a bug the attacker must find: overwritten blocks are kept.
    ///   - outlivesErasure: Plants another bug: the journal keeps what a checkpoint has overwritten.
    ///   - isThorough: Every page is tried at every place of a page file.
    package func run(
        seed: UInt64, steps: Int, leavesOldBlocks: Bool = false, outlivesErasure: Bool = false, isThorough: Bool = false
    ) throws {
        let disk = base.copy()
        disk.with {
            $0.keepsHistory = true
            $0.keepsOldBlocks = leavesOldBlocks
            $0.keepsWhatIsErasedOf = outlivesErasure ? "journal" : nil
        }
        let history = History(on: disk, seed: seed)
        try history.open()
        for _ in 0..<steps { try history.step() }
        try history.step(.commit)
        try history.step(.shortWait)
        try history.replace()
        history.close()
        histories += 1
        expiredCount += history.expiredCount
        lockedWaits += history.lockedWaits

        let image = disk.image()
        guard let secret = history.promise.secrets.last else { throw Violation("the keystore is gone") }
        let thief = try Thief(of: disk, passphrase: secret)
        reportSecrets(seed, history.promise, image)
        let written = disk.with { $0.history }
        let everything = try search(thief, image, written, isThorough)
        let withoutKeys = history.withoutKeys
        deadTried += withoutKeys.count
        report(seed, everything.intersection(withoutKeys), "readable with every byte ever written, and dead")
        let live = history.live
        liveRead += live.intersection(everything).count
        report(seed, live.subtracting(everything), "alive and not readable")
        let left = try search(thief, image, image.map(\.bytes), false)
        deadTried += history.promise.destroyed.count
        report(seed, left.intersection(history.promise.destroyed), "readable on the disk, and dead")
    }

    /// Former secrets must open nothing on the disk, and the current one must open the home.
    private func reportSecrets(_ seed: UInt64, _ promise: Promise, _ image: [(offset: Int, bytes: [UInt8])]) {
        let passphrases = promise.formerPassphrases.union(promise.secrets.compactMap(\.self))
        let found = Thief.opening(image.map(\.bytes), passphrases: passphrases, keyFiles: promise.formerKeyFiles)
        formerTried += promise.formerPassphrases.count + promise.formerKeyFiles.count
        if !found.isSubset(of: promise.secrets.compactMap(\.self)), violations.count < 10 {
            violations.append("seed \(seed): \(found.sorted()) of before opens what is on the disk")
        }
        if let secret = promise.secrets.last, let secret, !found.contains(secret) {
            violations.append("seed \(seed): the thief does not find the keystore")
        }
    }

    private func search(
        _ thief: Thief, _ image: [(offset: Int, bytes: [UInt8])], _ written: [[UInt8]], _ isThorough: Bool
    ) throws -> Set<Int> {
        var thief = thief
        if !isThorough { thief.known = noise }
        thief.search(image: image, written: written, slotCount: isThorough ? 128 : 0)
        placesTried += thief.placesTried
        return Set(thief.payloads.compactMap(Promise.Text.serial))
    }

    private func report(_ seed: UInt64, _ serials: Set<Int>, _ what: String) {
        if !serials.isEmpty, violations.count < 10 { violations.append("seed \(seed): \(serials.sorted()) \(what)") }
    }
}
