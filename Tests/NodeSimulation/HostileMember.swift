import Messaging
import Primitives
import Wire

/// A member of conversations that says what it likes. Its node is a real one, so that it gets in and is talked to; what
/// that node says is changed on its way out, after the frames were authenticated, so that all of it is believed to come
/// from the member: repeated, late, in another order, with other numbers, with other members' names, signed rubbish.
final class HostileMember: @unchecked Sendable {
    private static let poolCount = 256

    /// Of the inboxes of the hostile machine.
    var keys: [PublicKey: IdentityKey] = [:]
    /// What it has said and heard, to say it again.
    private var frames: [[UInt8]] = []
    private var ids: [MessageID] = []
    private var agreements: [Agreement] = []
    private var proposals: [LifetimeProposal] = []
    private var groups: [GroupState] = []
    private var members: [Member] = []
    private var held: [[UInt8]] = []
    private var dice: Randomness
    private(set) var counts: [String: Int] = [:]

    init(dice: Randomness) { self.dice = dice }

    private func roll(_ bound: Int) -> Int { Int(dice.next(upperBound: UInt64(max(1, bound)))) }
    private func pick<Element>(_ elements: [Element]) -> Element? {
        elements.isEmpty ? nil : elements[roll(elements.count)]
    }

    private func keep<Element>(_ element: Element, in list: inout [Element]) {
        if list.count < Self.poolCount { list.append(element) } else { list[roll(list.count)] = element }
    }

    /// It has heard this, or its node has said it.
    func hears(_ bytes: [UInt8]) {
        keep(bytes, in: &frames)
        guard let frame = try? FrameCodec.decode(bytes) else { return }
        switch frame {
        case .content(let content, _): keep(content.id, in: &ids)
        case .acknowledgement(let id, _): keep(id, in: &ids)
        case .lifetime(.proposal(let proposal)): keep(proposal, in: &proposals)
        case .lifetime(.agreement(let agreement)): keep(agreement, in: &agreements)
        case .session(let start):
            if let head = start.head { keep(head, in: &agreements) }
            if let member = start.member { keep(member, in: &members) }
        case .group(let update):
            if let state = update.state { keep(state, in: &groups) }
            for member in update.members { keep(member, in: &members) }
        case .profile(let member): keep(member, in: &members)
        case .welcome(let welcome): keep(welcome.group, in: &groups)
        case .lifetime, .joinRequest, .joinError, .explosion, .deletionReceipt, .invitation, .memberLeft, .ping, .pong,
            .closing, .unknown, .receipt, .attachmentRequest, .attachmentChunk, .attachmentGone, .joinCancelled,
            .relayRequest, .relayAnswer, .punch:
            break
        }
    }

    /// What leaves instead of one frame of its node's.
    /// - Parameter key: the inbox that speaks.
    func forge(_ bytes: [UInt8], from key: PublicKey) -> [[UInt8]] {
        hears(bytes)
        let kind: String
        defer { counts["hostile: \(kind)", default: 0] += 1 }
        switch roll(100) {
        case ..<50:
            kind = "as it was"
            return [bytes]
        case ..<54:
            kind = "swallowed"
            return []
        case ..<64:
            kind = "repeated"
            return [bytes] + (0..<1 + roll(3)).compactMap { _ in pick(frames) }
        case ..<70:
            kind = "out of order"
            held.append(bytes)
            guard held.count > 1 + roll(6) else { return [] }
            defer { held = [] }
            return held.reversed()
        case ..<78:
            kind = "changed bytes"
            return [mutated(bytes)] + (roll(2) == 0 ? [bytes] : [])
        case ..<97:
            kind = "forged"
            return [bytes] + (0..<1 + roll(3)).compactMap { _ in forged(bytes, key).map(FrameCodec.encode) }
        default:
            kind = "flood"
            return flood(bytes, key) + [bytes]
        }
    }

    private func mutated(_ bytes: [UInt8]) -> [UInt8] {
        var bytes = bytes
        for _ in 0..<1 + roll(4) where !bytes.isEmpty {
            let index = roll(bytes.count)
            switch roll(5) {
            case 0: bytes[index] ^= 1 << UInt8(roll(8))
            case 1: bytes[index] = UInt8(truncatingIfNeeded: dice.next())
            case 2: bytes.insert(UInt8(truncatingIfNeeded: dice.next()), at: index)
            case 3: bytes.remove(at: index)
            default: bytes.removeLast(roll(min(8, bytes.count)))
            }
        }
        return bytes
    }

    private func flood(_ bytes: [UInt8], _ key: PublicKey) -> [[UInt8]] {
        let count = 20 + roll(180)
        switch roll(4) {
        case 0: return (0..<count).map { FrameCodec.encode(.ping(UInt64($0))) }
        case 1: return (0..<count).compactMap { _ in proposal(key).map { FrameCodec.encode(.lifetime(.proposal($0))) } }
        case 2: return [[UInt8]](repeating: bytes, count: count)
        default: return (0..<count).map { _ in pick(frames) ?? bytes }
        }
    }

    // MARK: Forging

    private var time: Timestamp {
        [0, 1, NodeSimulation.epoch, NodeSimulation.epoch + 365 * .day, Timestamp.latest.milliseconds]
            .map(Timestamp.init(milliseconds:))[roll(5)]
    }

    private var number: UInt64 { [0, 1, 2, UInt64(roll(1 << 21)), .max, .max - 1][roll(6)] }

    private func proposal(_ key: PublicKey) -> LifetimeProposal? {
        guard let own = keys[key], let known = pick(proposals) ?? pick(agreements)?.proposal else { return nil }
        return LifetimeProposal.Unsigned(
            conversation: known.conversation,
            membership: roll(2) == 0 ? known.membership : number,
            epoch: roll(2) == 0 ? known.epoch &+ 1 : number,
            previous: pick(agreements)?.id ?? known.previous,
            terms: LifetimeTerms(Lifetime.allCases[roll(6)]),
            proposedAt: time,
            nonce: dice.bytes(16)
        ).signed(by: own, &dice)
    }

    private func forged(_ bytes: [UInt8], _ key: PublicKey) -> Frame? {
        switch roll(13) {
        case 0, 1, 2: return content(bytes)
        case 3: return (pick(ids)).map { .acknowledgement($0, stored: roll(2) == 0) }
        case 4: return proposal(key).map { .lifetime(.proposal($0)) }
        case 5:
            guard let own = keys[key], let proposal = pick(proposals) ?? pick(agreements)?.proposal else { return nil }
            return .lifetime(.accept(LifetimeAccept(proposal, at: time, by: own, &dice)))
        case 6: return agreement(key).map { .lifetime(.agreement($0)) }
        case 7:
            guard let proposal = pick(proposals) else { return nil }
            return .lifetime(roll(2) == 0 ? .withdraw(proposal.id) : .reject(proposal.id, .policy))
        case 8: return .explosion(dice.bytes(Limits.noticeByteCount))
        case 9: return group(key)
        case 10:
            var start = SessionStart(
                reset: roll(2) == 0,
                inForce: pick(agreements)?.id,
                head: roll(2) == 0 ? agreement(key) : pick(agreements),
                renewable: LifetimeTerms(.thirtyDays),
                epoch: number,
                open: pick(proposals)?.id
            )
            start.undelivered = number
            start.groupDigest = dice.bytes(32)
            start.member = pick(members)
            return .session(start)
        case 11: return .receipt(Receipt(.read, (0..<1 + roll(5)).compactMap { _ in pick(ids) }))
        default:
            guard let id = pick(ids) else { return nil }
            return .attachmentRequest(id, first: [0, 1, 1 << 31][roll(3)], count: [0, 1, 1 << 31][roll(3)])
        }
    }

    /// With another age, another end, another member's id.
    private func content(_ bytes: [UInt8]) -> Frame? {
        let source = (try? FrameCodec.decode(bytes)).flatMap { frame -> Content? in
            if case .content(let content, _) = frame { content } else { nil }
        }
        var content =
            source
            ?? Content(
                type: .text,
                id: .random(&dice),
                sentAt: time,
                lifetime: .ephemeral,
                agreement: nil,
                fallback: "",
                shouldPush: true,
                payload: Array("forged".utf8)
            )
        if content.type == .text { content.payload = Array("forged \(roll(1_000))".utf8) }
        if roll(2) == 0, let id = pick(ids) { content.id = id }
        if roll(2) == 0 { content.sentAt = time }
        if roll(2) == 0 { content.lifetime = Lifetime.allCases[roll(6)] }
        if roll(2) == 0 { content.agreement = pick(agreements)?.id ?? AgreementID(unchecked: dice.bytes(32)) }
        let ages: [Milliseconds] = [0, 1, .minute, 365 * .day, 10 * 365 * .day, .max, .max - 1]
        return .content(content, age: ages[roll(ages.count)])
    }

    /// With its own consent in the place of others.
    private func agreement(_ key: PublicKey) -> Agreement? {
        guard let own = keys[key] else { return nil }
        guard let proposal = roll(2) == 0 ? proposal(key) : pick(proposals) ?? pick(agreements)?.proposal else {
            return nil
        }
        var accepts = [LifetimeAccept(proposal, at: time, by: own, &dice)]
        for member in members.prefix(3) {
            var accept = accepts[0]
            accept.acceptor = member.key
            if roll(2) == 0, let real = pick(agreements)?.accepts.first(where: { $0.acceptor == member.key }) {
                accept.signature = real.signature
            }
            accepts.append(accept)
        }
        return Agreement(proposal: proposal, accepts: accepts)
    }

    /// As if it were the creator, or somebody else.
    private func group(_ key: PublicKey) -> Frame? {
        guard let own = keys[key], let state = pick(groups) else { return nil }
        var fields = state.unsigned
        fields.version = number
        fields.membership = number
        fields.isLocked = roll(2) == 0
        if roll(2) == 0 { fields.members = fields.members.filter { $0 == fields.members.first || $0 == key } }
        let other = pick(members)
        let departure = Departure(
            of: other?.key ?? key,
            conversation: state.conversation,
            key: own,
            &dice
        )
        return .group(
            GroupUpdate(
                state: fields.signed(by: own, &dice),
                members: other.map { [$0] } ?? [],
                departures: other?.key == key ? [] : [departure]
            )
        )
    }
}
