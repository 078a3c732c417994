import Crypto
import Messaging

/// Network input of a mailbox, its owner and its senders.
let mailboxTargets: [FuzzTarget] = [
    FuzzTarget(
        "mailbox-slot", byteCountLimit: 4_200, cost: 10,
        seeds: {
            let frame = FrameCodec.encode(.contents([]))
            let (secret, box) = (FuzzSlots.secret, FuzzSlots.box)
            let body = FuzzSlots.seal(plain: [0, 0, 0, 2, 7, 7], number: 3)
            let nonce = [UInt8](repeating: 1, count: 24)
            let frames = FuzzScript([1, 9]).run(frame, isLong: true).run([], isLong: true).run([1], isLong: true)
            return [
                [0, 3] + body, [0, 4] + body, frames.bytes,
                [2, 1, 0, 0, 0, 1, 9, 0, 0, 0, 4, 1, 2, 3, 4, 0, 0, 0, 0, 1], [2, 0, 255, 255, 255, 255, 1],
                [3] + frame, [3] + SlotSealing.seal(notice: [], secret, box: box, nonce: nonce),
            ]
        }, run: checkSlot),
    FuzzTarget(
        "mailbox-address", byteCountLimit: 512,
        seeds: {
            let bytes = FuzzKeys.cid.publicKey.bytes + [UInt8](repeating: 3, count: 48)
            let hosts = ["192.0.2.1:7440", "[2001:db8::1]:1", "example.org:65535", "[fe80::1%25eth0]:9", ":1"]
            let bodies = hosts.map { FuzzScript([1]).run(Array($0.utf8)).bytes + bytes }
            return bodies + hosts.map { [0] + Array("mailbox://\($0)/\(Base64URL.encode(bytes))".utf8) }
        },
        run: { bytes in
            var input = FuzzInput(bytes)
            // Odd: an address with a well-formed coded part, whatever its bytes are.
            let isBody = input.byte() & 1 == 1
            let host = isBody ? input.text() : ""
            let rest = input.rest
            let text = isBody ? "mailbox://\(host)/\(Base64URL.encode(rest))" : String(decoding: rest, as: UTF8.self)
            guard let address = MailboxAddress(text) else { return }
            try expect(MailboxAddress(address.text) == address, "\(text.debugDescription) reads as \(address.text)")
            try expect(Endpoint(text) == nil, "\(text.debugDescription) is an endpoint, too")
            try expect(address.port > 0 && !address.host.isEmpty, "\(text.debugDescription) leads nowhere")
        }),
    FuzzTarget(
        "mailbox-service", byteCountLimit: 1_024, cost: 10, seeds: { FuzzMailbox.seeds },
        run: { bytes in
            var input = FuzzInput(bytes)
            var mailbox = FuzzMailbox()
            for _ in 0..<64 where !input.isAtEnd {
                try mailbox.act(&input)
                try mailbox.check()
            }
            try mailbox.end()
        }),
    FuzzTarget(
        "mailbox-owner", byteCountLimit: 512, seeds: { FuzzMailboxOwner.seeds },
        run: { bytes in
            var input = FuzzInput(bytes)
            var owner = FuzzMailboxOwner()
            for _ in 0..<128 where !input.isAtEnd { try owner.act(&input) }
        }),
]

// MARK: - Slots

enum FuzzSlots {
    static let box = BoxID(unchecked: [UInt8](repeating: 7, count: BoxID.byteCount))
    static let conversation = ConversationID(unchecked: [UInt8](repeating: 8, count: ConversationID.byteCount))
    static let hint = SlotSealing.Hint(
        agreement: AgreementID(unchecked: [UInt8](repeating: 9, count: 32)), slice: 41_557)
    static let slice = FuzzKeys.cid
    static let secret = SlotSecret(
        sender: FuzzKeys.ann.publicKey, owner: FuzzKeys.bob.publicKey, box: box, conversation: conversation,
        own: FuzzKeys.bob)

    /// Seals any plaintext like a member with real keys: from the page "Mailbox".
    static func seal(plain: [UInt8], number: UInt64) -> [UInt8] {
        let overhead = SlotSealing.overheadByteCount
        let size = SlotSize.holding(plain.count + overhead) ?? SlotSize.largest
        let padded = Array((plain + [UInt8](repeating: 0, count: size)).prefix(size - overhead))
        let number = (0..<8).reversed().map { UInt8(truncatingIfNeeded: number >> (8 * UInt64($0))) }
        let (ann, bob) = (FuzzKeys.ann.publicKey, FuzzKeys.bob.publicKey)
        let slots = Array("mayfly/1 mailbox slots".utf8) + conversation.bytes + ann.bytes + bob.bytes + box.bytes
        let secret = FuzzKeys.ann.secret.sharedSecret(with: bob).withBytes { HKDF.derive(secret: $0, info: slots) }
        let mask = secret.withBytes { HMACSHA256.authenticate(key: $0, Array("mask".utf8), number) }
        let slice = [0, 0, UInt8(41_557 >> 8), UInt8(41_557 & 0xff)]
        let clear = [UInt8](repeating: 9, count: 8) + slice
        let ephemeral = FuzzKeys.key(0x44)
        let head = zip(clear, mask).map(^) + ephemeral.publicKey.bytes
        let shared = ephemeral.secret.sharedSecret(with: Self.slice.publicKey).withBytes { Array($0) }
        let joined = SecretBytes(copying: shared + secret.withBytes { Array($0) })
        let info = Array("mayfly/1 mailbox seal".utf8) + head + Self.slice.publicKey.bytes
        let key = joined.withBytes { HKDF.derive(secret: $0, info: info) }
        let nonce = [UInt8](repeating: 5, count: 24)
        return head + XChaChaPoly.seal(padded, key: key, nonce: nonce, authenticating: head + box.bytes + number)
    }

    static func open(_ body: [UInt8], number: UInt64) -> [[UInt8]]? {
        SlotSealing.open(body, with: slice.secret.clone(), number: number, secret, box: box)
    }
}

private func checkSlot(_ bytes: [UInt8]) throws {
    var input = FuzzInput(bytes)
    switch input.index(below: 4) {
    case 0:
        // From the mailbox, which can change its bodies.
        let number = UInt64(input.byte())
        _ = SlotSealing.hint(of: input.rest, number: number, FuzzSlots.secret)
        let body = FuzzSlots.open(input.rest, number: number)
        try expect(body.map { $0.allSatisfy { !$0.isEmpty } } ?? true, "an empty frame")
    case 1:
        let number = input.number()
        var frames: [[UInt8]] = []
        while !input.isAtEnd { frames.append(input.run(isLong: true)) }
        let (secret, box) = (FuzzSlots.secret, FuzzSlots.box)
        let key = FuzzSlots.slice.publicKey
        let sealed = SlotSealing.seal(
            frames, to: key, FuzzSlots.hint, number: number, secret, box: box, ephemeral: SecretKey.generate(),
            nonce: randomBytes(XChaChaPoly.nonceByteCount))
        guard let body = sealed else {
            let byteCount = frames.reduce(0) { $0 + $1.count + 4 }
            return try expect(byteCount > SlotSealing.capacity, "\(byteCount) bytes fit into no slot")
        }
        try expect(SlotSize.byteCounts.contains(body.count), "a body of \(body.count) bytes")
        try expect(SlotSealing.hint(of: body, number: number, secret) == FuzzSlots.hint, "another hint")
        try expect(FuzzSlots.open(body, number: number) == Array(frames.prefix { !$0.isEmpty }), "other frames")
        try expect(FuzzSlots.open(body, number: number ^ 1) == nil, "opens under another number")
    case 2:
        // From a broken member.
        let number = UInt64(input.byte())
        let body = FuzzSlots.seal(plain: input.rest, number: number)
        try expect(SlotSealing.hint(of: body, number: number, FuzzSlots.secret) == FuzzSlots.hint, "another hint")
        let frames = FuzzSlots.open(body, number: number) ?? []
        let byteCount = frames.reduce(0) { $0 + $1.count + 4 }
        try expect(byteCount <= SlotSealing.capacity, "\(byteCount) bytes from a body of \(body.count)")
        for frame in frames { _ = try? FrameCodec.decode(frame) }
    default:
        let (secret, box, rest) = (FuzzSlots.secret, FuzzSlots.box, input.rest)
        if let notice = SlotSealing.notice(in: rest, secret, box: box) {
            try expect(notice.count == Limits.noticeByteCount, "a notice of \(notice.count) bytes")
        }
        _ = SlotSealing.answer(in: rest, key: secret.noticeKey(), box: box)
        let answer = SlotSealing.seal(answer: rest, secret, box: box, nonce: randomBytes(XChaChaPoly.nonceByteCount))
        try expect(SlotSealing.answer(in: answer, key: secret.noticeKey(), box: box) == rest, "another answer")
        try expect(SlotSealing.notice(in: answer, secret, box: box) == nil, "an answer reads as a notice")
    }
}
