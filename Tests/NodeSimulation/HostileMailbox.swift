import Cryptography
import Messaging
import Simulation

/// A hostile mailbox. A real node accepts claims and puts; its outgoing answers are forged. It keeps every body, shows
/// bodies under other ids and in another order, confirms and drops some, lies about the dwell, announces missing bodies
/// and sends unsolicited answers.
final class HostileMailbox: Forger {
    static let poolCount = 512

    private var slots: [(box: BoxID, id: SlotID, body: [UInt8])] = []
    private var ids: [SlotID] = []
    private var boxes: [BoxID] = []
    /// Slots that were confirmed but are never shown.
    private var dropped: Set<SlotID> = []
    var held: [[UInt8]] = []
    var dice: Randomness
    let journal: Journal

    init(dice: Randomness, journal: Journal) { (self.dice, self.journal) = (dice, journal) }

    func hears(_ request: MailboxRequest) {
        switch request {
        case .put(let box, let put):
            keep((box, put.id, put.body), in: &slots)
            keep(put.id, in: &ids)
            if !boxes.contains(box) { keep(box, in: &boxes) }
            if roll(4) == 0 { dropped.insert(put.id) }
        case .list(let box): if !boxes.contains(box) { keep(box, in: &boxes) }
        case .claim, .drop, .purge, .take, .discard: break
        }
    }

    func forge(_ bytes: [UInt8]) -> [[UInt8]] {
        guard case .mailboxAnswer(let answer)? = try? FrameCodec.decode(bytes) else { return [bytes] }
        let kind: String
        defer { count("hostile mailbox: \(kind)") }
        switch roll(100) {
        case ..<82:
            let changed = lie(answer)
            kind = changed == answer ? "as it was" : "a lie"
            return [FrameCodec.encode(.mailboxAnswer(changed))]
        case ..<86:
            kind = "repeated"
            return [bytes, bytes]
        case ..<90:
            kind = "out of order"
            return holdBack(bytes, 4)
        case ..<92:
            kind = "swallowed"
            return []
        case ..<96:
            kind = "announced"
            return [bytes] + (0..<1 + roll(3)).map { _ in FrameCodec.encode(.mailboxAnswer(.waiting(box))) }
        case ..<99:
            kind = "not asked"
            return [bytes] + (0..<1 + roll(3)).map { _ in FrameCodec.encode(unasked) }
        default:
            kind = "flood"
            return (0..<20 + roll(100)).map { _ in FrameCodec.encode(.mailboxAnswer(.waiting(box))) } + [bytes]
        }
    }

    private var box: BoxID { roll(4) > 0 ? pick(boxes) ?? .random(&dice) : .random(&dice) }
    private var id: SlotID { roll(4) > 0 ? pick(ids) ?? .random(&dice) : .random(&dice) }

    /// A negative dwell cannot be encoded.
    private func dwell(_ kept: Milliseconds) -> Milliseconds {
        one(of: [kept, kept, 0, 0, 1, .hour, 365 * .day, .max, -1])
    }

    private func lie(_ answer: MailboxAnswer) -> MailboxAnswer {
        switch answer {
        case .slots(let box, var listed):
            listed.removeAll(where: dropped.contains)
            if roll(2) == 0 { listed += slots.filter { $0.box == box }.prefix(300).map(\.id) }
            if roll(3) == 0 { listed += (0..<roll(5)).map { _ in id } }
            if roll(2) == 0 { listed.reverse() }
            return .slots(box, Array(listed.prefix(Limits.slotListCount)))
        case .slot(let box, let id, let kept, let isAnswer, let body):
            if dropped.contains(id) { return .absent(box, id) }
            switch roll(8) {
            case 0: return .absent(box, id)
            case 1:
                guard let other = pick(slots) else { return answer }
                return .slot(box, id, dwell: dwell(kept), isAnswer: isAnswer, body: other.body)
            case 2:
                var spoilt = body
                if !spoilt.isEmpty { spoilt[roll(spoilt.count)] ^= 1 << UInt8(roll(8)) }
                return .slot(box, id, dwell: dwell(kept), isAnswer: isAnswer, body: spoilt)
            case 3: return .slot(box, id, dwell: dwell(kept), isAnswer: roll(2) == 0, body: dice.bytes(roll(3) * 512))
            default: return .slot(box, id, dwell: dwell(kept), isAnswer: isAnswer, body: body)
            }
        case .absent(let box, let id):
            // The mailbox shows a discarded body again.
            guard roll(4) > 0, let kept = slots.last(where: { $0.id == id }) else { return answer }
            return .slot(box, id, dwell: dwell(.minute), isAnswer: false, body: kept.body)
        case .put(let box, let id, let outcome):
            if roll(12) == 0 { return .put(box, id, one(of: PutOutcome.allCases)) }
            return outcome == .stored || roll(2) == 0 ? .put(box, id, .stored) : answer
        case .granted(var grant):
            if roll(6) == 0 { return .refused(one(of: MailboxRefusal.allCases)) }
            if roll(3) == 0 { grant.boxCount = one(of: [0, 1, 1 << 30]) }
            if roll(3) == 0 { grant.longest = one(of: [0, 1, .max]) }
            if roll(3) == 0 { grant.slotCount = one(of: [0, 1 << 30]) }
            return .granted(grant)
        case .refused, .waiting, .discarded: return answer
        }
    }

    private var unasked: Frame {
        switch roll(10) {
        case 0: .mailboxAnswer(.slots(box, (0..<roll(20)).map { _ in id }))
        case 1: .mailboxAnswer(.slot(box, id, dwell: dwell(0), isAnswer: roll(2) == 0, body: pick(slots)?.body ?? []))
        case 2: .mailboxAnswer(.absent(box, id))
        case 3: .mailboxAnswer(.put(box, id, .stored))
        case 4: .mailboxAnswer(.discarded(box, (0..<roll(5)).map { _ in id }))
        case 5: .mailboxAnswer(.granted(MailboxGrant(boxCount: roll(200), slotCount: 1, byteCount: 1, longest: 1)))
        case 6: .mailboxAnswer(.refused(.other))
        case 7: .ping(UInt64(roll(10)))
        case 8: .pong(0)
        default: .relayAnswer(.refused(.full))
        }
    }
}
