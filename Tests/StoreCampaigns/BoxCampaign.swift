import Cryptography
import SimulatedDisk
import Store

/// Random histories of a mailbox's boxes as the node stores them: one row per box, one record per body, overwritten
/// when it is discarded. The attacker has the mailbox's disk and its secrets.
package final class BoxCampaign {
    package private(set) var histories = 0
    /// Discarded bodies searched for on the final disk, and in every byte ever written.
    package private(set) var goneTried = 0
    package private(set) var withoutKeysTried = 0
    package private(set) var liveRead = 0
    package private(set) var violations: [String] = []
    private let base: SimulatedDisk
    private let noise: [[UInt8]]

    private struct Kept {
        let serial: Int
        let box: RowID
        let id: Bytes16
        let keyEnds: Int64
        let until: Int64
        let isNotice: Bool
        var isDiscarded = false
    }

    private final class Boxes {
        let history: History
        var kept: [Kept] = []
        private var luck: SimulatedDisk.Generator
        private var nextID = 1

        init(on disk: SimulatedDisk, seed: UInt64) {
            history = History(on: disk, seed: seed)
            luck = SimulatedDisk.Generator(seed: seed ^ 0x626f_7865)
        }

        private func pick(_ range: Range<Int>) -> Int { range.lowerBound + Int(luck.next() % UInt64(range.count)) }
        private func pick<Element>(_ elements: [Element]) -> Element? {
            elements.isEmpty ? nil : elements[pick(0..<elements.count)]
        }

        func step() throws {
            if history.liveRows.isEmpty { return try history.step(.createInbox) }
            switch pick(0..<16) {
            case 0...5: try put()
            case 6, 7: try discard(withAnswer: false)
            case 8: try discard(withAnswer: true)
            case 9: try history.pass(pause())
            case 10: try history.passWhileLocked(pause())
            case 11: try history.passWhileStopped(pause())
            case 12: try history.kill()
            default:
                let operations: [Operation] = [
                    .createInbox, .saveState, .commit, .release, .lock, .destroyInbox, .destroyWhileLocked, .restart,
                ]
                try history.step(pick(operations) ?? .commit)
            }
        }

        private func pause() -> Int64 {
            let longest: [Int64] = [60_000, 1_800_000, 7_200_000, 86_400_000, 9 * 86_400_000]
            return 1 + Int64(luck.next() % UInt64(pick(longest) ?? 1))
        }

        private func put() throws {
            guard let box = pick(history.liveRows) else { return }
            let isNotice = pick(0..<5) == 0
            // Lifetime classes, and a mailbox's own bound, which may be anything below.
            let classes: [Tier] = [.oneHour, .sixHours, .oneDay, .sevenDays, .thirtyDays]
            guard let tier = isNotice ? .thirtyDays : pick(classes) else { return }
            let time = isNotice ? 45 * 86_400_000 : pick(0..<3) == 0 ? tier.lifetime - 1_234 : tier.lifetime
            let id = Bytes16(UInt64(nextID).byteSwapped, 0x0909_0909_0909_0909)
            nextID += 1
            try keep(box, id, tier, history.now + time, isNotice)
            try history.step(.commit)
        }

        /// The format of `KeptBoxes`: kind ‖ answer ‖ kept at ‖ until ‖ body.
        private func keep(_ box: RowID, _ id: Bytes16, _ tier: Tier, _ until: Int64, _ isNotice: Bool) throws {
            let byteCount = isNotice ? 1_024 : pick([1_024, 1_024, 4_096]) ?? 1_024
            let body = Promise.Text(serial: kept.count, byteCount: byteCount)
            try history.store?.append(
                box, id: id, tier: tier, expiresAt: until,
                payload: [UInt8](repeating: 2, count: BoxCampaign.headByteCount) + body.bytes)
            let width = tier.bucketWidth
            let keyEnds = (until + width - 1) / width * width
            kept.append(Kept(serial: body.serial, box: box, id: id, keyEnds: keyEnds, until: until, isNotice: isNotice))
        }

        /// Discards a body that was delivered with its tag, purged, or a notice that its answer replaces.
        private func discard(withAnswer: Bool) throws {
            let possible = kept.indices.filter { index in
                !isGone(kept[index]) && kept[index].until > history.now && (!withAnswer || kept[index].isNotice)
            }
            guard let index = pick(possible) else { return }
            let one = kept[index]
            try history.store?.erase(one.box, id: one.id)
            kept[index].isDiscarded = true
            if withAnswer { try keep(one.box, one.id, .thirtyDays, one.until, true) }
            try history.step(.commit)
        }

        func isWithoutKey(_ one: Kept) -> Bool {
            history.promise.destroyedInboxes.contains(one.box) || one.keyEnds <= history.lastReap
        }

        func isGone(_ one: Kept) -> Bool { one.isDiscarded || one.until <= history.lastReap || isWithoutKey(one) }
    }

    private static let headByteCount = 18

    package init(on base: SimulatedDisk) {
        self.base = base
        noise = base.files().filter { $0.key.hasSuffix(".slots") }.map(\.value)
    }

    /// - Parameters:
    ///   - leavesOldBlocks: Plants a bug the attacker must find: overwritten blocks are kept.
    ///   - outlivesErasure: Plants another bug: nothing is overwritten in the journal.
    package func run(seed: UInt64, steps: Int, leavesOldBlocks: Bool = false, outlivesErasure: Bool = false) throws {
        let disk = base.copy()
        disk.with {
            $0.keepsHistory = true
            $0.keepsOldBlocks = leavesOldBlocks
            $0.keepsWhatIsErasedOf = outlivesErasure ? "journal" : nil
        }
        let boxes = Boxes(on: disk, seed: seed)
        try boxes.history.open()
        for _ in 0..<steps { try boxes.step() }
        try boxes.history.pass(1)
        try boxes.history.step(.commit)
        boxes.history.close()
        histories += 1

        guard let disk = boxes.history.disk as? SimulatedDisk else { return }
        let image = disk.image()
        let everything = try search(disk, boxes, image, disk.with { $0.history })
        let left = try search(disk, boxes, image, image.map(\.bytes))
        for one in boxes.kept {
            if boxes.isWithoutKey(one) {
                withoutKeysTried += 1
                if everything.contains(one.serial) { report(seed, one, "opens, and its key is gone") }
            }
            if boxes.isGone(one) {
                goneTried += 1
                if left.contains(one.serial) { report(seed, one, "opens on the disk, and is gone") }
            } else if everything.contains(one.serial) {
                liveRead += 1
            } else {
                report(seed, one, "is kept and does not open")
            }
        }
    }

    private func search(
        _ disk: SimulatedDisk, _ boxes: Boxes, _ image: [(offset: Int, bytes: [UInt8])], _ written: [[UInt8]]
    ) throws -> Set<Int> {
        var thief = try Thief(of: disk, passphrase: nil)
        thief.known = noise
        thief.search(image: image, written: written)
        let bodies = thief.payloads.filter { $0.starts(with: [2, 2, 2]) }
        return Set(bodies.compactMap { Promise.Text.serial(of: Array($0.dropFirst(Self.headByteCount))) })
    }

    private func report(_ seed: UInt64, _ one: Kept, _ what: String) {
        if violations.count < 10 { violations.append("seed \(seed): body \(one.serial) \(what)") }
    }
}
