import Cryptography
import Messaging
import Testing

private struct SealedPair {
    var random = Randomness.seeded(7)
    let sender: IdentityKey
    let owner: IdentityKey
    let slice: IdentityKey
    let box: BoxID
    let conversation: ConversationID
    let hint: SlotSealing.Hint

    init() {
        sender = makeKey(&random)
        owner = makeKey(&random)
        slice = makeKey(&random)
        box = BoxID.random(&random)
        conversation = ConversationID.random(&random)
        hint = SlotSealing.Hint(agreement: AgreementID.random(&random), slice: 0x0102_0304)
    }

    func secret(own: IdentityKey? = nil, box: BoxID? = nil, isReversed: Bool = false) -> SlotSecret {
        SlotSecret(
            sender: isReversed ? owner.publicKey : sender.publicKey,
            owner: isReversed ? sender.publicKey : owner.publicKey, box: box ?? self.box, conversation: conversation,
            own: own ?? sender)
    }

    func seal(_ frames: [[UInt8]], number: UInt64 = 3) -> [UInt8]? {
        SlotSealing.seal(
            frames, to: slice.publicKey, hint, number: number, secret(), box: box, ephemeral: SecretKey.generate(),
            nonce: randomBytes(XChaChaPoly.nonceByteCount))
    }

    func open(_ body: [UInt8], number: UInt64 = 3, with key: IdentityKey? = nil, box: BoxID? = nil) -> [[UInt8]]? {
        SlotSealing.open(
            body, with: (key ?? slice).secret, number: number, secret(own: owner, box: box), box: box ?? self.box)
    }
}

@Suite("Mailbox: seals of slots") struct MailboxSealingTests {
    private let pair = SealedPair()

    private func bytes(_ count: Int) -> [UInt8] { (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ 1) } }

    @Test("frames around the limit of each size class open unchanged, in the smallest body that holds them")
    func sizes() throws {
        var lengths = [1, 2, 100]
        for size in SlotSize.byteCounts {
            let edge = size - SlotSealing.overheadByteCount - 4
            lengths += [edge - 5, edge - 4, edge - 3, edge - 2, edge - 1, edge, edge + 1]
        }
        for length in lengths {
            let frame = bytes(length)
            let body = pair.seal([frame])
            guard length + 4 <= SlotSealing.capacity else {
                #expect(body == nil, "\(length)")
                continue
            }
            let sealed = try #require(body)
            #expect(sealed.count == SlotSize.byteCounts.first { $0 >= length + 4 + SlotSealing.overheadByteCount })
            #expect(pair.open(sealed) == [frame], "\(length)")
            #expect(SlotSealing.hint(of: sealed, number: 3, pair.secret(own: pair.owner)) == pair.hint)
        }
        #expect(SlotSize.holding(SlotSize.largest) == SlotSize.largest && SlotSize.holding(SlotSize.largest + 1) == nil)
    }

    @Test func `frames fill a body to its last byte, and one byte more does not fit`() throws {
        let half = SlotSealing.capacity / 2 - 4
        let rest = SlotSealing.capacity - half - 8
        for left in 0...3 {
            let frames = [bytes(half), bytes(rest - left)]
            #expect(pair.open(try #require(pair.seal(frames))) == frames)
        }
        #expect(pair.seal([bytes(half), bytes(rest + 1)]) == nil)
    }

    @Test func `a body opens only with its own number, box, slice, sender, owner, conversation and direction`() throws {
        let body = try #require(pair.seal([bytes(10)]))
        var random = Randomness.seeded(99)
        let stranger = makeKey(&random)
        for number in [0, 2, 4, 1 << 32 | 3, .max] as [UInt64] { #expect(pair.open(body, number: number) == nil) }
        #expect(pair.open(body, box: BoxID.random(&random)) == nil && pair.open(body, with: stranger) == nil)
        #expect(pair.open(body, with: pair.owner) == nil, "the inbox's key alone opens nothing")
        func opens(_ secret: SlotSecret) -> Bool {
            SlotSealing.open(body, with: pair.slice.secret, number: 3, secret, box: pair.box) != nil
        }
        #expect(opens(pair.secret()) && opens(pair.secret(own: pair.owner)) && !opens(pair.secret(isReversed: true)))
        let (sender, owner, box) = (pair.sender.publicKey, pair.owner.publicKey, pair.box)
        let conversation = pair.conversation
        let another = ConversationID.random(&random)
        #expect(!opens(SlotSecret(sender: sender, owner: owner, box: box, conversation: another, own: pair.owner)))
        #expect(
            !opens(
                SlotSecret(
                    sender: stranger.publicKey, owner: owner, box: box, conversation: conversation, own: stranger)))
        // A member with the slice's public key, and the owner's, cannot write in another's name.
        let forged = SlotSealing.seal(
            [bytes(10)], to: pair.slice.publicKey, pair.hint, number: 3,
            SlotSecret(sender: stranger.publicKey, owner: owner, box: box, conversation: conversation, own: stranger),
            box: box, ephemeral: SecretKey.generate(), nonce: randomBytes(XChaChaPoly.nonceByteCount))
        #expect(pair.open(try #require(forged)) == nil)
    }

    @Test func `an owner reads its number from the name of a slot of this sender and box, and of no other`() {
        let (ours, theirs) = (pair.secret(), pair.secret(own: pair.owner))
        var random = Randomness.seeded(5)
        let others = [pair.secret(isReversed: true), pair.secret(box: BoxID.random(&random))]
        for number in [0, 1, 2, 255, 256, 1 << 40, .max] as [UInt64] {
            #expect(ours.tag(number) == theirs.tag(number))
            let id = SlotID(ours.tag(number))
            #expect(theirs.number(of: id) == number)
            for other in others { #expect(other.tag(number) != ours.tag(number) && other.number(of: id) == nil) }
            for index in id.bytes.indices {
                var changed = id.bytes
                changed[index] ^= 1
                #expect(theirs.number(of: SlotID(unchecked: changed)) == nil)
            }
        }
        #expect(ours.noticeTag == theirs.noticeTag && theirs.number(of: SlotID(ours.noticeTag)) == nil)
        for other in others { #expect(other.noticeTag != ours.noticeTag) }
    }

    @Test func `a mailbox cannot make the tag of a slot from its name, which is a hash of the tag`() {
        let tag = pair.secret().tag(1)
        let hash = BLAKE2b.hash(Array(tag.bytes.prefix(24)), byteCount: 16).prefix(8)
        #expect(SlotID(tag).bytes == hash + tag.bytes.suffix(8))
        // The number in the name is hidden: names of neighbouring numbers have nothing in common.
        let next = SlotID(pair.secret().tag(2)).bytes
        #expect(zip(next, SlotID(tag).bytes).count { $0 == $1 } < 4)
    }

    @Test func `a body that is changed, truncated or longer does not open and does not trap`() throws {
        let body = try #require(pair.seal([bytes(400)]))
        #expect(body.count == 1_024)
        expectOpensOnlyWhole(body) { pair.open($0) != nil }
        for more in [100, 3_072] { #expect(pair.open(body + [UInt8](repeating: 0, count: more)) == nil) }
        for size in SlotSize.byteCounts {
            #expect(pair.open([UInt8](repeating: 0, count: size)) == nil)
            #expect(pair.open([UInt8](repeating: 2, count: size)) == nil)
        }
    }

    @Test func `a notice and its answer open only for their two parties, in that box`() throws {
        let notice = bytes(Limits.noticeByteCount)
        let receipt = bytes(180)
        let theirs = pair.secret(own: pair.owner)
        var random = Randomness.seeded(4)
        let nonce = random.bytes(XChaChaPoly.nonceByteCount)
        let body = SlotSealing.seal(notice: notice, pair.secret(), box: pair.box, nonce: nonce)
        #expect(body.count == SlotSize.byteCounts[0])
        #expect(SlotSealing.notice(in: body, theirs, box: pair.box) == notice)
        #expect(SlotSealing.notice(in: body, theirs, box: BoxID.random(&random)) == nil)
        #expect(SlotSealing.notice(in: body, pair.secret(isReversed: true), box: pair.box) == nil)
        expectOpensOnlyWhole(body) { SlotSealing.notice(in: $0, theirs, box: pair.box) != nil }

        let answer = SlotSealing.seal(
            answer: receipt, theirs, box: pair.box, nonce: randomBytes(XChaChaPoly.nonceByteCount))
        #expect(answer.count <= Limits.slotAnswerByteCount)
        let key = pair.secret().noticeKey()
        #expect(SlotSealing.answer(in: answer, key: key, box: pair.box) == receipt)
        #expect(SlotSealing.answer(in: answer, key: key, box: BoxID.random(&random)) == nil)
        #expect(SlotSealing.answer(in: answer, key: pair.secret(isReversed: true).noticeKey(), box: pair.box) == nil)
        expectOpensOnlyWhole(answer) { SlotSealing.answer(in: $0, key: key, box: pair.box) != nil }
        // A notice is not mistaken for an answer.
        #expect(SlotSealing.answer(in: body, key: key, box: pair.box) == nil)
    }

    @Test func `the same notice sealed for two boxes has nothing in common`() {
        var random = Randomness.seeded(6)
        let notice = bytes(Limits.noticeByteCount)
        let other = BoxID.random(&random)
        let one = SlotSealing.seal(
            notice: notice, pair.secret(), box: pair.box, nonce: random.bytes(XChaChaPoly.nonceByteCount))
        let two = SlotSealing.seal(
            notice: notice, pair.secret(box: other), box: other, nonce: random.bytes(XChaChaPoly.nonceByteCount))
        #expect(one.count == two.count)
        // In 1,024 random bytes four equal bytes in a row occur once in four million.
        for start in 0..<(one.count - 4) { #expect(one[start..<(start + 4)] != two[start..<(start + 4)]) }
    }
}

@Suite("Mailbox: addresses of boxes") struct MailboxAddressTests {
    @Test func `a written address is read back, and malformed text is refused`() throws {
        var random = Randomness.seeded(2)
        let key = makeKey(&random).publicKey
        for host in ["192.0.2.1", "[2001:db8::1]", "hub.example"] {
            let coded = Base64URL.encode(key.bytes + random.bytes(32) + random.bytes(16))
            let text = "mailbox://\(host):7440/\(coded)"
            let address = try #require(MailboxAddress(text))
            #expect(address.text == text && address.key == key && address.endpoint == Endpoint("tcp://\(host):7440"))
            // The address of a box is not read as an endpoint, and skipped in a list of endpoints.
            #expect(Endpoint(text) == nil && Endpoint.isOfUnknownKind(text))
            let wrong =
                ["tcp://\(host):7440/\(coded)"]
                + [":7440:", ":0/", "/", ":07440/"].map { "mailbox://\(host)\($0)\(coded)" }
            for text in wrong + [String(text.dropLast()), text + "A", text + "=", "mailbox://", ""] {
                #expect(MailboxAddress(text) == nil, "\(text)")
            }
        }
    }

    @Test func `a mailbox computes its owner's box and proof, and is reached directly, never through a relay`() throws {
        var random = Randomness.seeded(8)
        let (mailbox, owner, link) = (makeKey(&random), makeKey(&random), makeKey(&random).publicKey)
        let seed = RelaySeed.random(&random)
        let theirs = MailboxSecret(mailbox: mailbox.publicKey, owner: owner.publicKey, own: mailbox)
        var card = ContactCard(
            key: mailbox.publicKey, routingSecret: random.bytes(32), endpoints: [Endpoint(host: "hub", port: 1)])
        let place = try #require(MailboxPlace(card, own: owner))
        let label = seed.boxLabel(at: mailbox.publicKey)
        #expect(place.box(of: seed) == theirs.box(label) && place.proof(of: link) == theirs.proof(of: link))
        #expect(label.bytes != seed.label(at: mailbox.publicKey).bytes)
        card.endpoints = []
        #expect(MailboxPlace(card, own: owner) == nil)
    }
}
