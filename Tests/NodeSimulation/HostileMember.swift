import Cryptography
import Messaging
import Simulation

/// Makes its choices from what it has seen.
protocol Forger: Drawing, Journaling {
    static var poolCount: Int { get }
    var held: [[UInt8]] { get set }
}

extension Forger {
    func roll(_ bound: Int) -> Int { Int(dice.roll(Int64(bound))) }

    /// Holds a frame back, then returns some in the reverse order.
    func holdBack(_ bytes: [UInt8], _ limit: Int) -> [[UInt8]] {
        held.append(bytes)
        guard held.count > 1 + roll(limit) else { return [] }
        defer { held = [] }
        return held.reversed()
    }

    func keep<Element>(_ element: Element, in list: inout [Element]) {
        if list.count < Self.poolCount { list.append(element) } else { list[roll(list.count)] = element }
    }
}

/// A hostile member of conversations. A real node joins for it; its outgoing frames are forged after authentication, so
/// that peers attribute them to the member: repeated, delayed, reordered, with other numbers, with other members'
/// names, or with signed garbage.
///
/// In conversations that it created it also sends different, correctly signed frames to different members. Two hostile
/// machines share one instance, and repeat what the other has received.
final class HostileMember: Forger, @unchecked Sendable {
    static let poolCount = 256

    var keys: [PublicKey: IdentityKey] = [:]
    /// Frames it has sent and received, for replay.
    private var frames: [[UInt8]] = []
    private var ids: [MessageID] = []
    private var agreements: [Agreement] = []
    private var proposals: [LifetimeProposal] = []
    private var groups: [GroupState] = []
    private var beginnings: [Genesis] = []
    private var made: [PublicKey: Genesis] = [:]
    private var members: [Member] = []
    var held: [[UInt8]] = []
    var dice: Randomness
    let journal: Journal

    init(dice: Randomness, journal: Journal) { (self.dice, self.journal) = (dice, journal) }

    func makes(_ one: Conversation) {
        let key = one.key.publicKey
        keys[key] = one.key
        made[key] = one.record.genesis
        keep(one.record.genesis, in: &beginnings)
        keep(one.record.group, in: &groups)
    }

    /// A member returns its forged state. Its own node must not adopt that: the forged versions reach the last number.
    func isEcho(_ bytes: [UInt8]) -> Bool {
        guard case .group(let update)? = try? FrameCodec.decode(bytes), let creator = update.state?.members.first else {
            return false
        }
        return made[creator] != nil
    }

    func hears(_ bytes: [UInt8]) {
        keep(bytes, in: &frames)
        guard let frame = try? FrameCodec.decode(bytes) else { return }
        switch frame {
        case .contents(let contents): for aged in contents { keep(aged.content.id, in: &ids) }
        case .acknowledgement(let said): for id in said.stored + said.held + said.expired { keep(id, in: &ids) }
        case .lifetime(.proposal(let proposal)): keep(proposal, in: &proposals)
        case .lifetime(.agreement(let agreement)): keep(agreement, in: &agreements)
        case .session(let start):
            if let head = start.head { keep(head, in: &agreements) }
            if let member = start.member { keep(member, in: &members) }
        case .group(let update):
            if let state = update.state { keep(state, in: &groups) }
            for member in update.members { keep(member, in: &members) }
        case .profile(let member): keep(member, in: &members)
        case .welcome(let welcome):
            keep(welcome.genesis, in: &beginnings)
            keep(welcome.group, in: &groups)
        case .lifetime, .joinRequest, .joinError, .explosion, .deletionReceipt, .invitation, .memberLeft, .ping, .pong,
            .closing, .unknown, .receipt, .attachmentRequest, .attachmentChunk, .attachmentGone, .joinCancelled,
            .relayRequest, .relayAnswer, .punch, .mailboxRequest, .mailboxAnswer, .mailbox:
            break
        }
    }

    /// Frames that leave in place of one of its node's.
    /// - Parameters:
    ///   - key: The sending inbox.
    ///   - receiver: The receiving machine.
    func forge(_ bytes: [UInt8], from key: PublicKey, to receiver: Int) -> [[UInt8]] {
        hears(bytes)
        let kind: String
        defer { count("hostile: \(kind)") }
        if let said = lies(bytes, key, to: receiver) {
            kind = "a creator's lie"
            return said.map(FrameCodec.encode)
        }
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
            return holdBack(bytes, 6)
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

    private var time: Timestamp {
        [0, 1, NodeSimulation.epoch, NodeSimulation.epoch + 365 * .day, Timestamp.latest.milliseconds].map(
            Timestamp.init(milliseconds:))[roll(5)]
    }

    private var number: UInt64 { [0, 1, 2, UInt64(roll(1 << 21)), .max, .max - 1][roll(6)] }

    private func proposal(_ key: PublicKey) -> LifetimeProposal? {
        guard let own = keys[key], let known = pick(proposals) ?? pick(agreements)?.proposal else { return nil }
        return LifetimeProposal(
            conversation: known.conversation, membership: roll(2) == 0 ? known.membership : number,
            epoch: roll(2) == 0 ? known.epoch &+ 1 : number, previous: pick(agreements)?.id ?? known.previous,
            terms: LifetimeTerms(one(of: Lifetime.allCases)), proposedAt: time, nonce: dice.bytes(16),
            proposer: own.publicKey
        ).signed(by: own, &dice)
    }

    private func forged(_ bytes: [UInt8], _ key: PublicKey) -> Frame? {
        switch roll(19) {
        case 0, 1, 2: return content(bytes)
        case 3:
            return (pick(ids)).map { roll(3) == 0 ? .expiredOnArrival($0) : .acknowledgement($0, stored: roll(2) == 0) }
        case 4: return proposal(key).map { .lifetime(.proposal($0)) }
        case 5:
            guard let own = keys[key], let proposal = pick(proposals) ?? pick(agreements)?.proposal else { return nil }
            return .lifetime(.accept(LifetimeAccept(proposal, at: time, by: own, &dice)))
        case 6: return agreement(key).map { .lifetime(.agreement($0)) }
        case 7:
            guard let proposal = pick(proposals) else { return nil }
            return .lifetime(roll(2) == 0 ? .withdraw(proposal.id) : .reject(proposal.id, .policy))
        case 8:
            // An explosion by its creator would end the conversation too early, so it is rare.
            if made[key] != nil, roll(10) > 0 { return .explosion(dice.bytes(Limits.noticeByteCount)) }
            return notice(key, at: time).map { .explosion($0.sealed(&dice)) }
        case 9: return group(key)
        case 10:
            var start = SessionStart(
                reset: roll(2) == 0, inForce: pick(agreements)?.id,
                head: roll(2) == 0 ? agreement(key) : pick(agreements), renewable: LifetimeTerms(.thirtyDays),
                epoch: number, open: pick(proposals)?.id)
            start.undelivered = number
            (start.run, start.copies) = (UInt64(roll(3)), roll(2) == 0)
            start.groupDigest = dice.bytes(32)
            start.member = pick(members)
            return .session(start)
        case 11: return .receipt(Receipt(.read, (0..<1 + roll(5)).compactMap { _ in pick(ids) }))
        case 12: return receipt(key).map { .deletionReceipt($0) }
        case 13: return profile(key).map { .profile($0) }
        case 14:
            guard let own = keys[key], let other = pick(members), let genesis = beginning(of: key) else { return nil }
            return .memberLeft(Departure(of: other.key, conversation: genesis.conversation, key: own, &dice))
        case 15: return chunk(bytes).map { .attachmentChunk($0) }
        case 16: return punch().map { .punch($0) }
        case 17: return .joinCancelled
        default:
            guard let id = pick(ids) else { return nil }
            return .attachmentRequest(id, first: [0, 1, 1 << 31][roll(3)], count: [0, 1, 1 << 31][roll(3)])
        }
    }

    /// A content with another age, lifetime or member id.
    private func content(_ bytes: [UInt8]) -> Frame? {
        let source = (try? FrameCodec.decode(bytes)).flatMap { frame -> Content? in
            if case .contents(let contents) = frame { contents.first?.content } else { nil }
        }
        var content =
            source
            ?? Content(
                type: .text, id: .random(&dice), sentAt: time, lifetime: .ephemeral, agreement: nil, fallback: "",
                shouldPush: true, payload: Array("forged".utf8))
        if content.type == .text { content.payload = Array("forged \(roll(1_000))".utf8) }
        if roll(2) == 0, let id = pick(ids) { content.id = id }
        if roll(2) == 0 { content.sentAt = time }
        if roll(2) == 0 { content.lifetime = one(of: Lifetime.allCases) }
        if roll(2) == 0 { content.agreement = pick(agreements)?.id ?? AgreementID(unchecked: dice.bytes(32)) }
        let ages: [Milliseconds] = [0, 1, .minute, 365 * .day, 10 * 365 * .day, .max, .max - 1]
        return .content(content, age: ages[roll(ages.count)])
    }

    /// An agreement in which its own consent replaces others.
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

    /// A group state in the name of the creator or another member.
    private func group(_ key: PublicKey) -> Frame? {
        guard let own = keys[key], let state = pick(groups) else { return nil }
        var fields = state
        fields.version = number
        fields.membership = number
        fields.isLocked = roll(2) == 0
        if roll(2) == 0 { fields.members = fields.members.filter { $0 == fields.members.first || $0 == key } }
        let other = pick(members)
        let departure = Departure(of: other?.key ?? key, conversation: state.conversation, key: own, &dice)
        return .group(
            GroupUpdate(
                state: fields.signed(by: own, &dice), members: other.map { [$0] } ?? [],
                departures: other?.key == key ? [] : [departure]))
    }

    private func beginning(of key: PublicKey) -> Genesis? {
        pick(
            beginnings.filter { genesis in
                groups.contains { $0.conversation == genesis.conversation && $0.members.contains(key) }
            })
    }

    /// A notice signed by itself, though only the creator's counts. Every member can seal one.
    private func notice(_ key: PublicKey, at time: Timestamp) -> ExplodeNotice? {
        guard let own = keys[key], let genesis = beginning(of: key) else { return nil }
        return ExplodeNotice(genesis: genesis, expiresAt: time, isImmediate: roll(2) == 0, key: own, &dice)
    }

    /// A false receipt for its own copy or another member's.
    private func receipt(_ key: PublicKey) -> DeletionReceipt? {
        guard let own = keys[key], let genesis = beginning(of: key) else { return nil }
        var receipt = DeletionReceipt(conversation: genesis.conversation, destroyedAt: time, key: own, &dice)
        if roll(3) > 0, let other = pick(members) { receipt.member = other.key }
        return receipt
    }

    /// A forged description of another member with a new address or name. It does not describe itself, because one
    /// member may learn that and another only in the next session.
    private func profile(_ key: PublicKey) -> Member? {
        guard let own = keys[key], let other = pick(members.filter { $0.key != key }) else { return nil }
        let version = UInt64(roll(1 << 50))
        let lie = Member(profile: "p\(roll(10))", endpoints: [place], version: version, key: own, &dice)
        return Member(
            key: other.key, profile: lie.profile, endpointTexts: lie.endpointTexts, version: version,
            signature: lie.signature)
    }

    private var place: Endpoint { Endpoint(host: "10.\(roll(8)).\(roll(2)).1", port: UInt16(7_440 + roll(2))) }

    /// A requested file chunk with another offset or other bytes, or a chunk of an unrequested file.
    private func chunk(_ bytes: [UInt8]) -> AttachmentChunk? {
        if case .attachmentChunk(var chunk)? = try? FrameCodec.decode(bytes), !chunk.bytes.isEmpty {
            switch roll(3) {
            case 0: chunk.index = roll(chunk.index + 3)
            case 1: chunk.bytes[roll(chunk.bytes.count)] ^= 1
            default: chunk.isDeflated.toggle()
            }
            return chunk
        }
        guard let id = pick(ids) else { return nil }
        return AttachmentChunk(
            message: id, index: [0, 1, 1 << 31][roll(3)], isDeflated: roll(2) == 0, bytes: dice.bytes(roll(1_000)))
    }

    /// An unsolicited hole-punching message, with addresses of others.
    private func punch() -> PunchMessage? {
        guard let nonce = PunchNonce(dice.bytes(16)) else { return nil }
        let step = PunchMessage.Step.allCases[roll(3)]
        return PunchMessage(step: step, nonce: nonce, candidates: (0..<roll(4)).map { _ in place })
    }

    /// Frames only the creator can send, different for each receiver: states of one version, ends of the conversation,
    /// welcomes, refusals; signed correctly or nearly. Returns `nil` where it created nothing, or does not lie this
    /// time.
    private func lies(_ bytes: [UInt8], _ key: PublicKey, to receiver: Int) -> [Frame]? {
        guard let own = keys[key], let genesis = made[key], roll(3) == 0, let frame = try? FrameCodec.decode(bytes)
        else { return nil }
        if case .welcome(let welcome) = frame { return lies(welcome, own) + (roll(2) == 0 ? [frame] : []) }
        switch roll(12) {
        case 0:
            let end = Timestamp(milliseconds: NodeSimulation.epoch + Milliseconds(roll(4)) * .hour)
            let notice = ExplodeNotice(genesis: genesis, expiresAt: end, isImmediate: false, key: own, &dice)
            return [.explosion(notice.sealed(&dice)), frame]
        case 1: return [refusal(.random(&dice)), frame]
        default: return [.group(state(of: genesis, own, for: receiver)), frame]
        }
    }

    private func refusal(_ tag: InviteTag) -> Frame {
        let errors: [JoinErrorType] = [.conversationExpired, .genericFailure, .singleUseConsumed, .unknown("lie")]
        return .joinError(JoinError(errorType: errors[roll(4)], inviteTag: tag, timestamp: time))
    }

    /// A state of one version that differs by receiver: another name, a missing member, or an unreachable one.
    private func state(of genesis: Genesis, _ own: IdentityKey, for receiver: Int) -> GroupUpdate {
        let known = groups.last { $0.conversation == genesis.conversation && $0.members.first == genesis.creator }
        var fields =
            known
            ?? GroupState(
                conversation: genesis.conversation, version: 1, membership: 1, name: nil, isLocked: false,
                members: [genesis.creator])
        let numbers: [UInt64] = [fields.version, fields.version &+ 1, fields.version &+ 2, .max - 1, .max]
        // The last versions are rare, because no state can follow them.
        fields.version = numbers[roll(roll(8) == 0 ? 5 : 3)]
        fields.name = "for \(receiver)"
        fields.isLocked = receiver % 2 == 0
        var described: [Member] = []
        switch roll(4) {
        case 0: break
        case 1: if fields.members.count > 2 { fields.members.remove(at: 1 + roll(fields.members.count - 1)) }
        default:
            let nobody = nobody()
            // Each unreachable member is dialled forever, so a full group is rare.
            let limit = roll(20) == 0 ? Limits.memberCount : 6
            if fields.members.count < limit { fields.members.append(nobody.key) }
            described = [nobody]
        }
        // Honest creators count their membership changes.
        fields.membership = [fields.membership, fields.membership &+ 1, number][roll(3)]
        return GroupUpdate(state: fields.signed(by: own, &dice), members: described, departures: [])
    }

    private func nobody() -> Member {
        // One draw in 2^127 is not a key.
        let key = IdentityKey(try! SecretKey(SecretBytes(copying: dice.bytes(32))))
        return Member(profile: "nobody", endpoints: [place], version: 1, key: key, &dice)
    }

    private func lies(_ welcome: Welcome, _ own: IdentityKey) -> [Frame] {
        var welcome = welcome
        switch roll(6) {
        case 0: return [refusal(roll(2) == 0 ? welcome.tag : .random(&dice))]
        case 1:
            // An end that no notice contains.
            welcome.expiresAt = time
        case 2:
            let end = Timestamp(milliseconds: NodeSimulation.epoch + Milliseconds(roll(4)) * .hour)
            let notice = ExplodeNotice(genesis: welcome.genesis, expiresAt: end, isImmediate: false, key: own, &dice)
            welcome.expiresAt = notice.expiresAt
            welcome.notice = notice.sealed(&dice)
        case 3:
            let nobody = nobody()
            var fields = welcome.group
            fields.members.append(nobody.key)
            welcome.group = fields.signed(by: own, &dice)
            welcome.members.append(nobody)
        case 4: welcome.agreement = agreement(own.publicKey)
        default: return renamed(welcome, own)
        }
        return [.welcome(welcome)]
    }

    /// A genesis of its own with the id of another creator's conversation. Ending it must end nothing else.
    private func renamed(_ welcome: Welcome, _ own: IdentityKey) -> [Frame] {
        guard let name = pick(groups)?.conversation else { return [.welcome(welcome)] }
        var welcome = welcome
        welcome.genesis = Genesis(conversation: name, createdAt: welcome.genesis.createdAt, key: own, &dice)
        var fields = welcome.group
        fields.conversation = name
        welcome.group = fields.signed(by: own, &dice)
        (welcome.expiresAt, welcome.notice, welcome.agreement) = (nil, nil, nil)
        keep(welcome.genesis, in: &beginnings)
        keep(welcome.group, in: &groups)
        guard roll(2) == 0 else { return [.welcome(welcome)] }
        let notice = ExplodeNotice(genesis: welcome.genesis, expiresAt: time, key: own, &dice)
        return [.welcome(welcome), .explosion(notice.sealed(&dice))]
    }
}
