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

    @Test func `several frames keep their order; a body without frames is valid`() throws {
        let frames = (1...40).map { bytes($0) }
        #expect(pair.open(try #require(pair.seal(frames))) == frames)
        #expect(pair.open(try #require(pair.seal([]))) == [])
        // Full to the last byte, and one byte more.
        let half = SlotSealing.capacity / 2 - 4
        let rest = SlotSealing.capacity - half - 8
        #expect(pair.open(try #require(pair.seal([bytes(half), bytes(rest)]))) == [bytes(half), bytes(rest)])
        #expect(pair.seal([bytes(half), bytes(rest + 1)]) == nil)
        for left in 1...3 {
            #expect(pair.open(try #require(pair.seal([bytes(half), bytes(rest - left)])))?.count == 2)
        }
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

    @Test func `owner and sender derive the same tags, distinct for each direction, number, box and purpose`() {
        let (ours, theirs) = (pair.secret(), pair.secret(own: pair.owner))
        var random = Randomness.seeded(5)
        let others = [pair.secret(isReversed: true), pair.secret(box: BoxID.random(&random))]
        var seen: Set<SlotTag> = [ours.noticeTag]
        #expect(ours.noticeTag == theirs.noticeTag)
        for number in [0, 1, 2, 255, 256, 1 << 40, .max] as [UInt64] {
            #expect(ours.tag(number) == theirs.tag(number))
            #expect(seen.insert(ours.tag(number)).inserted)
            for other in others { #expect(seen.insert(other.tag(number)).inserted) }
            // The owner reads sender and number from the name. The name of another sender, box or slot reveals nothing.
            let id = SlotID(ours.tag(number))
            #expect(theirs.number(of: id) == number)
            for other in others { #expect(other.number(of: id) == nil) }
            for index in id.bytes.indices {
                var changed = id.bytes
                changed[index] ^= 1
                #expect(theirs.number(of: SlotID(unchecked: changed)) == nil)
            }
        }
        #expect(theirs.number(of: SlotID(ours.noticeTag)) == nil)
        for other in others { #expect(seen.insert(other.noticeTag).inserted) }
        func key(_ secret: SlotSecret) -> [UInt8] { secret.noticeKey().withBytes { Array($0) } }
        #expect(key(ours) == key(theirs) && key(ours) != key(others[0]))
    }

    @Test func `a mailbox cannot make the tag of a slot from its name, which is a hash of the tag`() {
        let tag = pair.secret().tag(1)
        let hash = BLAKE2b.hash(Array(tag.bytes.prefix(24)), byteCount: 16).prefix(8)
        #expect(SlotID(tag).bytes == hash + tag.bytes.suffix(8))
        // The number in the name is hidden: names of neighbouring numbers have nothing in common.
        let next = SlotID(pair.secret().tag(2)).bytes
        #expect(zip(next, SlotID(tag).bytes).count { $0 == $1 } < 4)
    }

    @Test func `two bodies of the same frames have nothing in common, and the hint cannot be seen`() throws {
        let bodies = try (0..<4).map { try #require(pair.seal([bytes(50)], number: UInt64($0))) }
        let plain = pair.hint.agreement + [1, 2, 3, 4]
        for (index, body) in bodies.enumerated() {
            #expect(Array(body.prefix(12)) != plain)
            for other in bodies[..<index] {
                #expect(body.prefix(8) != other.prefix(8) && body[12..<45] != other[12..<45])
                #expect(body[45..<69] != other[45..<69] && body[69..<101] != other[69..<101])
            }
        }
        #expect(SlotSealing.hint(of: bodies[1], number: 2, pair.secret()) != pair.hint)
        #expect(SlotSealing.hint(of: [UInt8](repeating: 0, count: 100), number: 1, pair.secret()) == nil)
        #expect(SlotSealing.hint(of: [], number: 1, pair.secret()) == nil)
    }

    @Test func `a hint names the agreement by its beginning`() {
        var random = Randomness.seeded(3)
        let agreement = AgreementID.random(&random)
        let hint = SlotSealing.Hint(agreement: agreement, slice: .max)
        #expect(hint.names(agreement) && !hint.names(AgreementID.random(&random)))
        #expect(hint.agreement == Array(agreement.bytes.prefix(8)) && hint.slice == .max)
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
        for host in ["192.0.2.1", "2001:db8::1", "hub.example"] {
            let address = MailboxAddress(
                host: host, port: 7_440, key: key, routingSecret: random.bytes(32), box: BoxID.random(&random))
            let text = address.text
            #expect(MailboxAddress(text) == address && address.endpoint == Endpoint(host: host, port: 7_440))
            // The address of a box is not read as an endpoint, and skipped in a list of endpoints.
            #expect(Endpoint(text) == nil && Endpoint.isOfUnknownKind(text))
            for wrong in [
                String(text.dropLast()), text + "A", text + "=", "tcp" + text.dropFirst(7),
                text.replacingLast("/", with: ":"), text.replacing(":7440", with: ":0"),
                text.replacing(":7440", with: ""), text.replacing(":7440", with: ":07440"), "mailbox://", "",
            ] { #expect(MailboxAddress(wrong) == nil, "\(wrong)") }
        }
    }

    @Test(
        "owner and mailbox derive the same box, another owner derives none of it, and each mailbox sees another label")
    func boxes() throws {
        var random = Randomness.seeded(8)
        let (mailbox, owner, another) = (makeKey(&random), makeKey(&random), makeKey(&random))
        let seed = RelaySeed.random(&random)
        let label = seed.boxLabel(at: mailbox.publicKey)
        let theirs = MailboxSecret(mailbox: mailbox.publicKey, owner: owner.publicKey, own: mailbox)
        let card = ContactCard(
            key: mailbox.publicKey, routingSecret: random.bytes(32), endpoints: [Endpoint(host: "hub", port: 1)])
        let place = try #require(MailboxPlace(card, own: owner))
        #expect(place.box(of: seed) == theirs.box(label))
        let link = makeKey(&random).publicKey
        #expect(place.proof(of: link) == theirs.proof(of: link))
        #expect(place.proof(of: link) != theirs.proof(of: mailbox.publicKey))
        #expect(place.box(of: seed) != place.box(of: RelaySeed.random(&random)))
        let other = MailboxSecret(mailbox: mailbox.publicKey, owner: another.publicKey, own: mailbox)
        #expect(other.box(label) != theirs.box(label) && other.proof(of: link) != theirs.proof(of: link))
        #expect(seed.boxLabel(at: another.publicKey) != label && label.bytes != seed.label(at: mailbox.publicKey).bytes)
        // A mailbox is reached directly, never through a relay.
        let bare = ContactCard(key: mailbox.publicKey, routingSecret: card.routingSecret, endpoints: [])
        #expect(MailboxPlace(bare, own: owner) == nil)
    }
}

extension String {
    fileprivate func replacing(_ text: String, with other: String) -> String {
        guard let range = firstRange(of: text) else { return self }
        return String(self[..<range.lowerBound]) + other + String(self[range.upperBound...])
    }

    fileprivate func replacingLast(_ character: Character, with other: String) -> String {
        guard let index = lastIndex(of: character) else { return self }
        return String(self[..<index]) + other + String(self[self.index(after: index)...])
    }
}
