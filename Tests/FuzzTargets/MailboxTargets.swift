import Cryptography
import Messaging
import TestSupport

/// Network input of a mailbox, its owner and its senders.
let mailboxTargets: [FuzzTarget] = [
    FuzzTarget("mailbox-slot", byteCountLimit: 4_200, cost: 10) {
        let frame = FrameCodec.encode(.contents([]))
        let (secret, box) = (FuzzSlots.secret, FuzzSlots.box)
        let body = FuzzSlots.seal(plain: [0, 0, 0, 2, 7, 7], number: 3)
        let nonce = [UInt8](repeating: 1, count: 24)
        let frames = FuzzScript([1, 9]).run(frame, isLong: true).run([], isLong: true).run([1], isLong: true)
        return [
            [0, 3] + body, [0, 4] + body, frames.bytes, [2, 1, 0, 0, 0, 1, 9, 0, 0, 0, 4, 1, 2, 3, 4, 0, 0, 0, 0, 1],
            [2, 0, 255, 255, 255, 255, 1], [3] + frame,
            [3] + SlotSealing.seal(notice: [], secret, box: box, nonce: nonce),
        ]
    } run: {
        try checkSlot($0)
    },
    FuzzTarget("mailbox-address", byteCountLimit: 512) {
        let bytes = FuzzKeys.cid.publicKey.bytes + [UInt8](repeating: 3, count: 48)
        let hosts = ["192.0.2.1:7440", "[2001:db8::1]:1", "example.org:65535", "[fe80::1%25eth0]:9", ":1"]
        let bodies = hosts.map { FuzzScript([1]).run(Array($0.utf8)).bytes + bytes }
        return bodies + hosts.map { [0] + Array("mailbox://\($0)/\(Base64URL.encode(bytes))".utf8) }
    } run: { bytes in
        var input = FuzzInput(bytes)
        // Odd: an address with a well-formed coded part, whatever its bytes are.
        let isBody = input.byte() & 1 == 1
        let host = isBody ? input.text() : ""
        let rest = input.rest
        let text = isBody ? "mailbox://\(host)/\(Base64URL.encode(rest))" : String(decoding: rest, as: UTF8.self)
        guard let address = MailboxAddress(text) else { return }
        try comesBack(address) { MailboxAddress($0.text) }
        try expect(Endpoint(text) == nil, "\(text.debugDescription) is an endpoint, too")
        try expect(address.port > 0 && !address.host.isEmpty, "\(text.debugDescription) leads nowhere")
    },
    FuzzTarget("mailbox-service", byteCountLimit: 1_024, cost: 10, seeds: FuzzMailbox.seeds) { bytes in
        var input = FuzzInput(bytes)
        var mailbox = FuzzMailbox()
        for _ in 0..<64 where !input.isAtEnd {
            try mailbox.act(&input)
            try mailbox.check()
        }
        try mailbox.end()
    },
    FuzzTarget("mailbox-owner", byteCountLimit: 512, seeds: FuzzMailboxOwner.seeds) { bytes in
        var input = FuzzInput(bytes)
        var owner = FuzzMailboxOwner()
        for _ in 0..<128 where !input.isAtEnd { try owner.act(&input) }
    },
]

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

/// Two members with a mailbox. The owner finds slots that the other sealed with real keys, with any contents, as often,
/// late and reordered as the mailbox likes.
let mailedTargets: [FuzzTarget] = [
    FuzzTarget("core-mailed", byteCountLimit: 1_024, cost: 50, seeds: FuzzMail.seeds) { bytes in
        var (session, input) = try CoreScenario.mailed.begin(bytes)
        session.all.random = .seeded(UInt64(input.byte()))
        if FuzzPatience(bytes) == .short { session.all.limit = 96 }
        try session.act(input) { session, input in
            if input.byte() & 1 == 0 { try FuzzMail.take(&session, &input) } else { session.act(&input) }
        }
        session.all.run(for: 2 * .second)
        session.all.restart()
        session.all.run(for: .second)
        try session.all.check()
    }
]

enum FuzzMail {
    static var seeds: [[UInt8]] {
        let send = FuzzScript([0]).byte(1, 2, 0, 0).run([65, 66])
        let cut = FuzzScript([0]).byte(1, 4, 0, 0, 0, 1, 4, 1, 0, 0)
        let away = FuzzScript(cut.bytes).byte(1, 2, 0, 0).run([65, 66]).byte(1, 3).short(5_000)
        let real = (0..<8).map { FuzzScript(away.bytes).byte(0, 1, 0, $0, 0, 5, 0).bytes }
        let signed = (0..<FuzzSession.frameCount).map { kind in
            FuzzScript([0]).byte(0, 0, 1, 1, 0, kind).number(3).number(9).run([65]).bytes
        }
        let others = (0..<FuzzSession.templateCount).map {
            FuzzScript([0]).byte(0, 1, 1, 1, 1, $0, 0).short(7).byte(9).bytes
        }
        return [send.bytes, away.bytes] + real + signed + others
    }

    static func take(_ session: inout FuzzSession, _ input: inout FuzzInput) throws {
        let node = input.index(below: session.all.nodes.count)
        let other = 1 - node
        let frames: [Frame]
        var number = UInt64(input.byte())
        if input.byte() & 1 == 0 {
            let there = session.all.slots.filter { $0.from == other }
            guard !there.isEmpty else { return }
            let slot = input.one(of: there)
            number = slot.order.number
            frames = try session.all.open(slot)
        } else {
            var made: [Frame] = []
            for _ in 0...Int(input.byte() % 3) {
                if let frame = frame(&session, other, to: node, &input) { made.append(frame) }
            }
            frames = try resealed(made)
        }
        guard session.all.mailboxes[node] != nil else { return }
        let dwells: [Milliseconds] = [0, 0, .minute, .hour, .day, 40 * .day, .max]
        let dwell = input.one(of: dwells)
        let least = input.one(of: dwells)
        let age = SlotAge(dwell: dwell, least: least, isDoubtful: input.byte().isMultiple(of: 2))
        let member = session.all.keys[input.byte() == 255 ? node : other].publicKey
        let client = session.all.clients[node]
        session.all.step(node) { core, turn in
            core.receiveMailed(frames, number: number, from: member, age: age, client: client, &turn)
        }
    }

    private static func frame(_ session: inout FuzzSession, _ from: Int, to node: Int, _ input: inout FuzzInput)
        -> Frame?
    {
        switch input.index(below: 4) {
        case 0: return session.signedFrame(from, to: node, &input)
        case 1, 2:
            var bytes = input.one(of: session.templates)
            input.change(&bytes)
            return try? FrameCodec.decode(bytes)
        default: return try? FrameCodec.decode(input.run(isLong: true))
        }
    }

    /// Seals and opens frames as in a slot.
    private static func resealed(_ frames: [Frame]) throws -> [Frame] {
        let encoded = frames.map(FrameCodec.encode)
        let body = SlotSealing.seal(
            encoded, to: FuzzSlots.slice.publicKey, FuzzSlots.hint, number: 1, FuzzSlots.secret, box: FuzzSlots.box,
            ephemeral: SecretKey.generate(), nonce: randomBytes(XChaChaPoly.nonceByteCount))
        guard let body else { return [] }
        return (FuzzSlots.open(body, number: 1) ?? []).compactMap { try? FrameCodec.decode($0) }
    }
}

extension World {
    /// Two members with an agreement on a mailbox and each other's slice keys.
    static func mailing() throws -> World {
        var all = try joined(2)
        let card = ContactCard(
            key: FuzzKeys.cid.publicKey, routingSecret: [UInt8](repeating: 3, count: 32),
            endpoints: [Endpoint(host: "192.0.2.9", port: 9)])
        for node in 0..<2 { all.mailboxes[node] = MailboxPlace(card, own: all.keys[node]) }
        let terms = LifetimeTerms(.oneDay, mailbox: .disk)
        all.command(0) { (machine, turn) throws(CommandError) in try machine.propose(terms, &turn) }
        all.run(for: 2 * .second)
        all.command(1) { (machine, turn) throws(CommandError) in try machine.accept(&turn) }
        all.run(for: 5 * .second)
        let areKnown = (0..<2).allSatisfy { node in
            guard case .conversation(let record)? = all.saved[node]?.role else { return false }
            return all.machine(node)?.agreement?.terms == terms
                && record.mailbox.outgoing[all.keys[1 - node].publicKey]?.slices != nil
        }
        guard areKnown else { throw FuzzFailure("the members do not agree to a mailbox") }
        return all
    }

    /// Puts everything into one slot, as the shell does.
    mutating func mail(_ order: MailOrder, _ client: ClientID, from node: Int) {
        let known = order.messages.prefix(64).filter { archive[node][$0.id] != nil }
        let contents = known.compactMap { one in archive[node][one.id].map { AgedContent($0.content, age: one.age) } }
        let frames = order.frames + (contents.isEmpty ? [] : [.contents(contents)])
        var result = MailResult(mailed: [], tooLarge: [], slotCount: 0, isComplete: true)
        if let genesis = machine(node)?.record.genesis, !frames.isEmpty {
            let secret = secret(order, from: node, own: keys[node], genesis.conversation)
            let body = SlotSealing.seal(
                frames.map(FrameCodec.encode), to: order.key,
                SlotSealing.Hint(agreement: order.agreement, slice: order.slice), number: order.number, secret,
                box: order.address.box, ephemeral: SecretKey.generate(), nonce: randomBytes(XChaChaPoly.nonceByteCount))
            if let body, slots.count < 64 { slots.append(Slot(order: order, from: node, body: body)) }
            result.slotCount = 1
            result.mailed = known.map(\.id)
            if body == nil { (result.mailed, result.tooLarge) = ([], known.map(\.id)) }
        }
        step(node) { core, turn in core.step(client, &turn) { $0.mailed(order, result, &$1) } }
    }

    private func secret(_ order: MailOrder, from node: Int, own: IdentityKey, _ conversation: ConversationID)
        -> SlotSecret
    {
        SlotSecret(
            sender: keys[node].publicKey, owner: order.member, box: order.address.box, conversation: conversation,
            own: own)
    }

    /// The owner must find the frames that were put.
    func open(_ slot: Slot) throws -> [Frame] {
        let owner = 1 - slot.from
        guard let genesis = machine(slot.from)?.record.genesis ?? machine(owner)?.record.genesis else { return [] }
        let secret = secret(slot.order, from: slot.from, own: keys[owner], genesis.conversation)
        let hint = SlotSealing.hint(of: slot.body, number: slot.order.number, secret)
        try expect(hint == SlotSealing.Hint(agreement: slot.order.agreement, slice: slot.order.slice), "another hint")
        // Keys of a changed frame belong to no member.
        guard let key = slices[owner]?[slot.order.slice]?.secret.clone() else { return [] }
        let (number, box) = (slot.order.number, slot.order.address.box)
        let frames = SlotSealing.open(slot.body, with: key, number: number, secret, box: box)
        guard let frames else { return [] }
        let read = frames.compactMap { try? FrameCodec.decode($0) }
        try expect(read.count == frames.count, "\(frames.count) frames, \(read.count) of which can be read")
        return read
    }
}
