import Cryptography
import Messaging
import SimulatedDisk
import Store

/// The store of an owner with slice keys in its inboxes, and a sender that deposits contents at a mailbox that keeps
/// every byte.
package final class MailHistory {
    package struct Mailed {
        package let body: KeptBody
        package let frame: [UInt8]
        let row: RowID
        let slice: UInt32
        let schedule: SliceSchedule
        /// End of the content's lifetime: deposit − age + lifetime.
        package let expiresAt: Int64
        package let kind: Kind

        /// Time at which the bucket's page is overwritten.
        package var keyEnds: Int64 {
            let width = tier(of: schedule).bucketWidth
            return (end + width - 1) / width * width
        }

        var end: Int64 { schedule.keyEnd(of: slice).milliseconds }
        package var deadline: Int64 { expiresAt + schedule.width }
    }

    /// Whether a content is unreadable one slice after its expiry, and if not, why: its key ends with its slice's
    /// bucket.
    package enum Kind: String, CaseIterable, Sendable {
        case fresh
        /// The sender has no key of the slice of sending, and seals to the next known one.
        case early
        /// Other contents of the agreement have a longer lifetime.
        case shorter
        /// The slice's key ends within a bucket.
        case unaligned
    }

    private struct Known {
        let row: RowID
        let terms: LifetimeTerms
        let agreement: AgreementID
        var keys: [UInt32: PublicKey]
    }

    package let history: History
    package private(set) var mailed: [Mailed] = []
    /// Contents the owner opened but should not have, or the other way around.
    package private(set) var violations: [String] = []
    /// Plants the bug the attacker must find: slice keys are written into the inbox's state.
    package var keepsKeys = false
    private var known: [Known] = []
    private var secrets: [RowID: SlotSecret] = [:]
    private var luck: SimulatedDisk.Generator
    private let box = BoxID(unchecked: [UInt8](repeating: 7, count: BoxID.byteCount))
    private let conversation = ConversationID(unchecked: [UInt8](repeating: 8, count: ConversationID.byteCount))
    private static let sender = IdentityKey(SecretKey.generate())

    package init(on disk: SimulatedDisk, seed: UInt64) {
        history = History(on: disk, seed: seed)
        luck = SimulatedDisk.Generator(seed: seed ^ 0x6d61_696c)
    }

    private func pick(_ range: Range<Int>) -> Int { range.lowerBound + Int(luck.next() % UInt64(range.count)) }
    private func pick<Element>(_ elements: [Element]) -> Element? {
        elements.isEmpty ? nil : elements[pick(0..<elements.count)]
    }

    /// Each width and class, and some whose slice keys end within a bucket.
    private static let terms: [LifetimeTerms] = [
        LifetimeTerms(.oneHour, mailbox: .disk), LifetimeTerms(.sixHours, mailbox: .disk),
        LifetimeTerms(.oneDay, mailbox: .disk), LifetimeTerms(.sevenDays, mailbox: .disk),
        LifetimeTerms(.thirtyDays, mailbox: .disk), LifetimeTerms(.oneHour, attachment: .oneDay, mailbox: .disk),
        LifetimeTerms(.thirtyDays, unopened: 90 * .minute, mailbox: .disk),
        LifetimeTerms(.sixHours, unopened: 61_234, timer: .read, mailbox: .disk),
        LifetimeTerms(.thirtyDays, unopened: 25 * .hour + 1, mailbox: .disk),
    ]

    private static let operations: [Operation] = [
        .createInbox, .put, .saveState, .commit, .shortWait, .lightFuse, .release, .lock, .destroyInbox,
        .destroyWhileLocked, .restart, .changePassphrase,
    ]

    package func step() throws {
        if history.liveRows.isEmpty { return try history.step(.createInbox) }
        switch pick(0..<16) {
        case 0, 1: try publish()
        case 2...7: try seal()
        case 8: try take()
        case 9: try history.pass(pause())
        case 10: try history.passWhileLocked(pause())
        case 11: try pick(0..<2) == 0 ? history.passWhileStopped(pause()) : history.step(.waitWhileLocked)
        case 12: try history.kill(powerCut: pick(0..<2) == 0 ? nil : luck.next())
        default: try history.step(pick(Self.operations) ?? .commit)
        }
    }

    private func pause() -> Int64 {
        let longest: [Milliseconds] = [.minute, 20 * .minute, 2 * .hour, 8 * .hour, .day, 9 * .day]
        return 1 + Int64(luck.next() % UInt64(pick(longest) ?? .minute))
    }

    private func publish() throws {
        guard let row = pick(history.liveRows), let terms = pick(Self.terms) else { return }
        let schedule = SliceSchedule(terms)
        let present = schedule.slice(at: Timestamp(milliseconds: history.now))
        var slices = (0...UInt32(pick(0..<3))).map { present + $0 }
        if pick(0..<4) == 0 { slices.append(present + UInt32(pick(1..<Int(schedule.horizon / schedule.width)))) }
        var keys: [UInt32: PublicKey] = [:]
        var secrets: [[UInt8]] = []
        for slice in slices {
            guard let secret = try secret(row, slice, schedule, isMade: true) else {
                throw Violation("the key of a slice to come is not made")
            }
            if keepsKeys { secrets.append(secret.withBytes { Array($0) }) }
            keys[slice] = try SecretKey(secret).publicKey
        }
        let digits = [UInt8](repeating: UInt8(known.count & 0xff), count: AgreementID.byteCount)
        let agreement = AgreementID(unchecked: digits)
        known.append(Known(row: row, terms: terms, agreement: agreement, keys: keys))
        if keepsKeys {
            try history.store?.saveState(row, Array("state".utf8) + secrets.joined())
            try history.step(.commit)
        }
    }

    private func secret(_ row: RowID, _ slice: UInt32, _ schedule: SliceSchedule, isMade: Bool) throws -> SecretBytes? {
        guard let store = history.store else { throw Violation("the store is closed") }
        return try store.secret(
            row, tier: tier(of: schedule), expiresAt: schedule.keyEnd(of: slice).milliseconds,
            label: "mailbox slice \(slice) \(schedule.width) 0", isMade: isMade)
    }

    private func slotSecret(_ row: RowID) throws -> SlotSecret? {
        if let known = secrets[row] { return known }
        guard let store = history.store, history.liveRows.contains(row) else { return nil }
        let own = IdentityKey(try SecretKey(try store.secret(row, label: "identity key 0")))
        let secret = SlotSecret(
            sender: Self.sender.publicKey, owner: own.publicKey, box: box, conversation: conversation, own: own)
        secrets[row] = secret
        return secret
    }

    /// The owner opens a content; dead contents must fail.
    private func take() throws {
        guard let one = pick(mailed) else { return }
        var frames: [[UInt8]]?
        do {
            switch try secret(one.row, one.slice, one.schedule, isMade: false) {
            case .none: break
            case .some(let secret):
                let body = one.body
                let key = try SecretKey(secret)
                frames = SlotSealing.open(body.bytes, with: key, number: body.number, body.secret, box: body.box)
            }
        } catch StoreError.unknownRow {}
        if isAlive(one), frames != [one.frame] { violations.append("the owner cannot open \(text(one))") }
        if isDead(one), frames != nil { violations.append("the owner opens \(text(one)), which is dead") }
    }

    private func seal() throws {
        let now = history.now
        let usable = known.filter { known in
            known.keys[SliceSchedule(known.terms).slice(at: Timestamp(milliseconds: now))] != nil
        }
        guard let known = pick(usable), let secret = try slotSecret(known.row) else { return try publish() }
        let schedule = SliceSchedule(known.terms)
        let kind = pick(ContentKind.allCases) ?? .text
        guard let time = known.terms.unreadTime(of: kind) else { return }
        // Delayed contents are sealed to the slice of sending.
        let age = pick(0..<3) == 0 ? Int64(luck.next() % UInt64(time)) : 0
        let sentIn = schedule.slice(at: Timestamp(milliseconds: now - age))
        guard let slice = known.keys.keys.filter({ $0 >= sentIn }).min(), let key = known.keys[slice] else { return }
        let number = UInt64(mailed.count)
        let byteCount = pick([20..<60, 20..<60, 900..<3_000]).map(pick) ?? 20
        let frame = Promise.Text(serial: mailed.count, byteCount: byteCount).bytes
        let bytes = SlotSealing.seal(
            [frame], to: key, SlotSealing.Hint(agreement: known.agreement, slice: slice), number: number, secret,
            box: box, ephemeral: SecretKey.generate(), nonce: randomBytes(XChaChaPoly.nonceByteCount))
        guard let bytes else { throw Violation("a frame of \(frame.count) bytes fits into no slot") }
        let one = Mailed(
            body: KeptBody(bytes: bytes, number: number, secret: secret, box: box, width: schedule.width, key: key),
            frame: frame, row: known.row, slice: slice, schedule: schedule, expiresAt: now - age + time,
            kind: slice > sentIn ? .early : kindOfMail(time, slice, schedule))
        mailed.append(one)
    }

    private func kindOfMail(_ time: Milliseconds, _ slice: UInt32, _ schedule: SliceSchedule) -> Kind {
        time < schedule.unread ? .shorter : isAligned(slice, schedule) ? .fresh : .unaligned
    }

    private func isAligned(_ slice: UInt32, _ schedule: SliceSchedule) -> Bool {
        schedule.keyEnd(of: slice).milliseconds % tier(of: schedule).bucketWidth == 0
    }

    package func isDead(_ one: Mailed) -> Bool {
        history.promise.destroyedInboxes.contains(one.row) || one.keyEnds <= history.lastReap
    }

    /// Readable with disk and passphrase.
    package func isAlive(_ one: Mailed) -> Bool { history.liveRows.contains(one.row) && one.keyEnds > history.now }

    package func text(_ one: Mailed) -> String {
        "slot \(one.body.number) of slice \(one.slice), \(one.schedule.width) ms wide, whose key ends"
            + " \(one.keyEnds - history.now) ms from now"
    }
}

/// The store's tier for the keys of these slices.
func tier(of schedule: SliceSchedule) -> Tier {
    switch schedule.tier {
    case .ephemeral, .oneHour: .oneHour
    case .sixHours: .sixHours
    case .oneDay: .oneDay
    case .sevenDays: .sevenDays
    case .thirtyDays: .thirtyDays
    }
}
