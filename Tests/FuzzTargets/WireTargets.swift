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
        guard let frame = try? FrameCodec.decode(bytes) else { return }
        try checkFrame(frame)
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
        guard let frame = try? FrameCodec.decode(ProtoOracle.frame(type, payload)) else { return }
        try checkFrame(frame)
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
        guard let message = try? SeedJSON.decodeLifetimeMessage(bytes) else { return }
        let again: [UInt8]
        switch message {
        case .proposal(let proposal): again = SeedJSON.encode(proposal)
        case .accept(let accept): again = SeedJSON.encode(accept)
        case .reject(let id, let reason): again = SeedJSON.encodeRejection(of: id, reason)
        case .withdraw(let id): again = SeedJSON.encodeWithdrawal(of: id)
        case .agreement, .ended, .unsupported: return
        }
        try expect((try? SeedJSON.decodeLifetimeMessage(again)) == message, "\(message) does not come back")
    },
    FuzzTarget("join-error-json", byteCountLimit: 1_024) {
        var samples = Samples()
        return [SeedJSON.encode(samples.joinError())]
    } run: { bytes in
        guard let error = try? SeedJSON.decodeJoinError(bytes) else { return }
        try expect((try? SeedJSON.decodeJoinError(SeedJSON.encode(error))) == error, "\(error) does not come back")
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
            guard let invite = try? InviteSlug.decode(String(decoding: rest, as: UTF8.self)) else { return }
            let again = try? InviteSlug.decode(InviteSlug.encode(invite.signed))
            return try expect(again == invite, "an invite does not come back")
        }
        try ProtoOracle.compare(rest, ProtoOracle.invite(rest), InviteSlug.decodePayload)
        guard let invite = try? InviteSlug.decodePayload(rest) else { return }
        let again = try? InviteSlug.decodePayload(InviteSlug.encodePayload(invite))
        try expect(again == invite, "\(invite) does not come back")
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
        let genesis = samples.genesis()
        let notice = ExplodeNotice(genesis: genesis, expiresAt: samples.now, key: samples.ann, &samples.random)
        let receipt = DeletionReceipt(
            conversation: fuzzConversation, destroyedAt: samples.now, key: samples.bob, &samples.random)
        let statement = ExpiredStatement(
            tag: InviteTag.random(&samples.random), timestamp: samples.now, key: samples.ann, &samples.random)
        let key = SecretBytes(copying: [UInt8](repeating: 9, count: 32))
        return try [
            [0] + opened(notice.sealed(&samples.random), genesis.conversation, "notice"),
            [1] + opened(receipt.sealed(&samples.random), fuzzConversation, "receipt"),
            [2]
                + XChaChaPoly.open(
                    statement.sealed(key: key, token: [], &samples.random), key: key,
                    authenticating: Array("join error".utf8)), [3] + notice.sealed(&samples.random),
            [4] + receipt.sealed(&samples.random),
        ]
    } run: { bytes in
        try checkNotice(Int(bytes.first ?? 0) % 5, Array(bytes.dropFirst()))
    },
]

/// A frame must round-trip, and is written as SwiftProtobuf writes it.
func checkFrame(_ frame: Frame) throws {
    // Received, never sent.
    if case .lifetime(.unsupported) = frame { return }
    let again = FrameCodec.encode(frame)
    guard let decoded = try? FrameCodec.decode(again) else {
        throw FuzzFailure("what \(frame) encodes to does not decode")
    }
    try expect(decoded == frame, "\(frame) comes back as \(decoded)")
    try ProtoOracle.checkWritten(again)
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
        let key = SecretBytes(copying: [UInt8](repeating: 9, count: 32))
        let sealed = XChaChaPoly.seal(bytes, key: key, nonce: nonce, authenticating: Array("join error".utf8))
        _ = ExpiredStatement(opening: sealed, key: key, token: [])?.isValid(creator: FuzzKeys.ann.publicKey)
    default:
        let key = SecretBytes(copying: [UInt8](repeating: 9, count: 32))
        let isOpen =
            ExplodeNotice(opening: bytes, conversation: otherConversation) != nil
            || DeletionReceipt(opening: bytes, conversation: otherConversation) != nil
            || ExpiredStatement(opening: bytes, key: key, token: []) != nil
            || KnockQuestion.isAuthentic(bytes, key: key, token: [])
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
        let again = try? StoredCodec.decodeTombstone(StoredCodec.encode(tombstone: record, byteLimit: .max))
        try expect(again == record, "\(record) comes back as \(String(describing: again))")
        let node = NodeStateMachine()
        var turn = Turn(now: Timestamp(milliseconds: 1_795_247_146_133), random: .seeded(1))
        node.load(record, &turn)
    },
]
