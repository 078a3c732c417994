import Cryptography
import Messaging
import TestSupport

/// Data that crosses a link, and data that travels as text.
let wireTargets: [FuzzTarget] = [
    FuzzTarget("frame", byteCountLimit: 65_535, cost: 2) {
        var samples = Samples()
        return try samples.frames().map(FrameCodec.encode)
    } run: { bytes in
        try ProtoOracle.compareFrame(bytes)
        try checkFrame(try? FrameCodec.decode(bytes))
    },
    // The payload alone, so that no mutation is lost on the envelope; the first byte chooses its type.
    FuzzTarget("content", byteCountLimit: 65_535) {
        var samples = Samples()
        var seeds: [[UInt8]] = []
        for frame in try samples.frames() {
            let (type, payload) = try ProtoOracle.content(of: FrameCodec.encode(frame))
            guard let index = contentTypes.firstIndex(of: type) else { continue }
            seeds.append([UInt8(index)] + payload)
        }
        return seeds
    } run: { bytes in
        let type = contentTypes[Int(bytes.first ?? 0) % contentTypes.count]
        let payload = Array(bytes.dropFirst())
        try ProtoOracle.compare(payload, ProtoOracle.payload(type, payload)) { payload in
            try FrameCodec.decode(ProtoOracle.frame(type, payload))
        }
        try checkFrame(try? FrameCodec.decode(ProtoOracle.frame(type, payload)))
    },
    FuzzTarget("lifetime-json") {
        var samples = Samples()
        let agreement = samples.agreement()
        return [
            SeedJSON.encode(agreement.proposal), SeedJSON.encode(agreement.accepts[0]),
            SeedJSON.encodeRejection(of: agreement.proposal.id, .policy),
            SeedJSON.encodeWithdrawal(of: agreement.proposal.id),
        ]
    } run: { bytes in
        try comesBack(try? SeedJSON.decodeLifetimeMessage(bytes)) { message in
            switch message {
            case .proposal(let proposal): try SeedJSON.decodeLifetimeMessage(SeedJSON.encode(proposal))
            case .accept(let accept): try SeedJSON.decodeLifetimeMessage(SeedJSON.encode(accept))
            case .reject(let id, let why): try SeedJSON.decodeLifetimeMessage(SeedJSON.encodeRejection(of: id, why))
            case .withdraw(let id): try SeedJSON.decodeLifetimeMessage(SeedJSON.encodeWithdrawal(of: id))
            case .agreement, .ended, .unsupported: message
            }
        }
    },
    FuzzTarget("join-error-json", byteCountLimit: 1_024) {
        var samples = Samples()
        return [SeedJSON.encode(samples.joinError())]
    } run: { bytes in
        try comesBack(try? SeedJSON.decodeJoinError(bytes)) { try SeedJSON.decodeJoinError(SeedJSON.encode($0)) }
    },
    FuzzTarget("invite", byteCountLimit: 16_400, cost: 2) {
        var samples = Samples()
        let payload = InviteSlug.encodePayload(samples.invite("what fell over", .oneDay, end: samples.now + .day))
        let slug = InviteSlug.encode(SignedInvite(payload: payload, signedBy: samples.ann.secret))
        return [[0] + Array(slug.utf8), [1] + payload]
    } run: { bytes in
        // Even: a pasted text. Odd: a payload, signed by its maker.
        let isPayload = (bytes.first ?? 0) & 1 == 1
        let rest = Array(bytes.dropFirst())
        guard isPayload else {
            let invite = try? InviteSlug.decode(String(decoding: rest, as: UTF8.self))
            return try comesBack(invite) { try InviteSlug.decode(InviteSlug.encode($0.signed)) }
        }
        try ProtoOracle.compare(rest, ProtoOracle.invite(rest), InviteSlug.decodePayload)
        guard let invite = try? InviteSlug.decodePayload(rest) else { return }
        try comesBack(invite) { try InviteSlug.decodePayload(InviteSlug.encodePayload($0)) }
        let slug = InviteSlug.encode(SignedInvite(payload: rest, signedBy: FuzzKeys.ann.secret))
        guard slug.utf8.count <= InviteSlug.byteCountLimit, let verified = try? InviteSlug.decode(slug) else { return }
        try expect(verified.invite == invite, "an invite of ours reads otherwise")
    },
    FuzzTarget("deflate", byteCountLimit: 16_384) {
        var samples = Samples()
        let random = samples.random.bytes(200)
        let texts = [[], Array("a".utf8), Array(String(repeating: "ab", count: 5_000).utf8), random]
        return texts.flatMap { text in [[32, 16] + Deflate.compress(text), [0, 255] + Deflate.compress(text)] }
    } run: { bytes in
        var input = FuzzInput(bytes)
        let ratio = Int(input.byte()) + 1
        let head = Int(input.byte())
        let limit = (head + 1) * 1_024
        let packed = input.rest
        if let plain = try? Deflate.decompress(packed, limit: limit, ratio: ratio) {
            try expect(plain.count <= limit && plain.count <= ratio * packed.count, "a bomb of \(plain.count) bytes")
        }
        // One input in four, because compression takes ten times as long.
        guard head & 3 == 3, !packed.isEmpty else { return }
        let again = try? Deflate.decompress(Deflate.compress(packed, level: 1), limit: 1 << 16, ratio: 1 << 16)
        try expect(areSame(again, packed), "DEFLATE loses something")
    },
    FuzzTarget("chunk", byteCountLimit: 33_000) {
        let text = Array(String(repeating: "ephemeral ", count: 40).utf8)
        return [
            FuzzScript().short(400).byte(1).bytes + Deflate.compress(text),
            FuzzScript().short(400).byte(0).bytes + text,
        ]
    } run: { bytes in
        var input = FuzzInput(bytes)
        let byteCount = Int(input.short())
        let isDeflated = input.byte() & 1 == 1
        let chunk = AttachmentChunk(
            message: MessageID(unchecked: [UInt8](repeating: 1, count: 16)), index: 0, isDeflated: isDeflated,
            bytes: input.rest)
        guard let plain = chunk.plain(byteCount: byteCount) else { return }
        try expect(plain.count == byteCount && byteCount <= Limits.chunkByteCount, "a chunk of \(plain.count) bytes")
    },
    FuzzTarget("notice", byteCountLimit: 1_024) {
        var samples = Samples()
        let genesis = Genesis(
            conversation: samples.conversation(), createdAt: samples.now, key: samples.ann, &samples.random)
        let notice = ExplodeNotice(genesis: genesis, expiresAt: samples.now, key: samples.ann, &samples.random)
        let receipt = DeletionReceipt(
            conversation: fuzzConversation, destroyedAt: samples.now, key: samples.bob, &samples.random)
        let statement = ExpiredStatement(
            tag: InviteTag.random(&samples.random), timestamp: samples.now, key: samples.ann, &samples.random)
        let join = statement.sealed(key: noteKey, token: [], &samples.random)
        return try [
            [0] + opened(notice.sealed(&samples.random), genesis.conversation, "notice"),
            [1] + opened(receipt.sealed(&samples.random), fuzzConversation, "receipt"),
            [2] + XChaChaPoly.open(join, key: noteKey, authenticating: Array("join error".utf8)),
            [3] + notice.sealed(&samples.random), [4] + receipt.sealed(&samples.random),
        ]
    } run: { bytes in
        try checkNotice(Int(bytes.first ?? 0) % 5, Array(bytes.dropFirst()))
    },
]

/// A frame must round-trip, and is written as SwiftProtobuf writes it.
func checkFrame(_ frame: Frame?) throws {
    // An unsupported one is received, never sent.
    if case .lifetime(.unsupported)? = frame { return }
    guard let bytes = frame.map(FrameCodec.encode) else { return }
    try comesBack(frame) { _ in try FrameCodec.decode(bytes) }
    try ProtoOracle.checkWritten(bytes)
}

private let contentTypes: [ContentType] = [
    .text, .systemMessage, .joinRequest, .welcome, .joinError, .explodeSettings, .deletionReceipt, .lifetimeProposal,
    .lifetimeAccept, .lifetimeReject, .lifetimeWithdraw, .invitation, .memberLeft, .reply, .reaction, .attachment,
    .receipt, .joinCancelled, .groupUpdated, .profile, .lifetimeAgreement, .lifetimeEnded,
    ContentType("mayfly/reply:1.7"), ContentType("mayfly/attachment:1.9"), ContentType("example.org/poll:2.1"),
]

private let fuzzConversation = ConversationID(unchecked: [UInt8](repeating: 7, count: 32))

private let otherConversation = ConversationID(unchecked: [UInt8](repeating: 8, count: 32))

private func noticeKey(_ conversation: ConversationID) -> SecretBytes {
    HKDF.derive(secret: SecretBytes(copying: conversation.bytes), info: "mayfly explode notice v1")
}

private func opened(_ sealed: [UInt8], _ conversation: ConversationID, _ label: String) throws -> [UInt8] {
    try XChaChaPoly.open(sealed, key: noticeKey(conversation), authenticating: Array(label.utf8))
}

private let noteKey = SecretBytes(copying: [UInt8](repeating: 9, count: 32))
private let nonce = [UInt8](repeating: 5, count: XChaChaPoly.nonceByteCount)

/// Kinds 0 to 2: a payload that a member sealed. The others: bytes of a stranger.
private func checkNotice(_ kind: Int, _ bytes: [UInt8]) throws {
    func seal(_ label: String) -> [UInt8] {
        XChaChaPoly.seal(bytes, key: noticeKey(fuzzConversation), nonce: nonce, authenticating: Array(label.utf8))
    }
    switch kind {
    case 0:
        let sealed = seal("notice")
        let notice = ExplodeNotice(opening: sealed, conversation: fuzzConversation)
        try expect(notice == nil || sealed.count == Limits.noticeByteCount, "a notice of \(sealed.count) bytes")
    case 1: _ = DeletionReceipt(opening: seal("receipt"), conversation: fuzzConversation)?.isSignatureValid
    case 2:
        let sealed = XChaChaPoly.seal(bytes, key: noteKey, nonce: nonce, authenticating: Array("join error".utf8))
        _ = ExpiredStatement(opening: sealed, key: noteKey, token: [])?.isValid(creator: FuzzKeys.ann.publicKey)
    default:
        let isOpen =
            ExplodeNotice(opening: bytes, conversation: otherConversation) != nil
            || DeletionReceipt(opening: bytes, conversation: otherConversation) != nil
            || ExpiredStatement(opening: bytes, key: noteKey, token: []) != nil
            || KnockQuestion.isAuthentic(bytes, key: noteKey, token: [])
        try expect(!isOpen, "a stranger's bytes open")
    }
}

/// Payloads that the layers above the store write.
let storedTargets: [FuzzTarget] = [
    FuzzTarget("stored-message", byteCountLimit: 16_384) {
        var samples = Samples()
        var seeds: [[UInt8]] = []
        for (index, content) in samples.contents().enumerated() {
            var message = Message(
                content: content, sender: index.isMultiple(of: 2) ? nil : samples.bob.publicKey,
                state: [.queued, .received, .read, .receiving, .failed][index % 5],
                expiresAt: index == 0 ? nil : samples.now + .day,
                onReading: index == 1 ? .until(samples.now) : index == 2 ? .after(.hour) : nil)
            message.deliveries = [Delivery(member: samples.bob.publicKey, state: .read, at: samples.now)]
            seeds.append(StoredCodec.encode(message, arrivedAt: samples.now))
        }
        return seeds
    } run: { bytes in
        guard let (message, arrivedAt) = try? StoredCodec.decodeMessage(bytes) else { return }
        let again = try? StoredCodec.decodeMessage(StoredCodec.encode(message, arrivedAt: arrivedAt))
        try expect(again?.0 == message && again?.arrivedAt == arrivedAt, "\(message) does not come back")
    },
    FuzzTarget("stored-status", byteCountLimit: 4_096) {
        var samples = Samples()
        let said = [Delivery(member: samples.bob.publicKey, state: .failed, at: samples.now)]
        let statuses = (0..<3).map { index in
            MessageStatus(
                message: MessageID.random(&samples.random), state: [.delivered, nil, .read][index],
                said: index == 0 ? [] : said)
        }
        return [[0], StoredCodec.encode(statuses[...]).bytes]
    } run: { bytes in
        guard let statuses = try? StoredCodec.decodeStatuses(bytes) else { return }
        let (encoded, count) = StoredCodec.encode(statuses[...])
        let again = try? StoredCodec.decodeStatuses(encoded)
        try expect(again == Array(statuses.prefix(count)), "\(statuses) do not come back")
    },
    FuzzTarget("stored-chunk", byteCountLimit: 1_024) {
        [[0, 1, 2, 3], [1] + Deflate.compress([UInt8](repeating: 1, count: 100)), []]
    } run: { bytes in
        let id = MessageID(unchecked: [UInt8](repeating: 1, count: 16))
        guard let chunk = try? StoredCodec.decodeChunk(bytes, message: id, index: 7) else { return }
        try expect(StoredCodec.encode(chunk) == bytes, "a chunk does not come back")
        _ = chunk.plain(byteCount: bytes.count * 4)
    },
    FuzzTarget("stored-tombstone", byteCountLimit: 8_192) {
        var samples = Samples()
        return [StoredCodec.encode(tombstone: samples.tombstone(), byteLimit: .max)]
    } run: { bytes in
        try ProtoOracle.compare(bytes, ProtoOracle.tombstone(bytes), StoredCodec.decodeTombstone)
        guard let record = try? StoredCodec.decodeTombstone(bytes) else { return }
        try comesBack(record) { try StoredCodec.decodeTombstone(StoredCodec.encode(tombstone: $0, byteLimit: .max)) }
        let node = NodeStateMachine()
        var turn = Turn(now: Timestamp(milliseconds: 1_795_247_146_133), random: .seeded(1))
        node.load(record, &turn)
    },
]
