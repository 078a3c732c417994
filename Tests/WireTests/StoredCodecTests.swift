import Crypto
import FuzzTargets
import Messaging
import Testing

@Suite struct StoredCodecTests {
    @Test func `a stored message is read back unchanged`() throws {
        var fixtures = Samples()
        for (sender, state) in [(nil, DeliveryState.queued), (fixtures.bob.publicKey, .received)] {
            let message = Message(
                content: fixtures.content(), sender: sender, state: state, expiresAt: fixtures.now + .day)
            let (decoded, arrivedAt) = try StoredCodec.decodeMessage(
                StoredCodec.encode(message, arrivedAt: fixtures.now))
            #expect(decoded == message && arrivedAt == fixtures.now)
        }
    }

    @Test func `a message keeps an end at the beginning of time`() throws {
        var fixtures = Samples()
        let start = Timestamp(milliseconds: 0)
        let cases: [(Timestamp?, Retention.OnReading?)] = [(start, nil), (nil, .until(start)), (nil, .after(0))]
        for (end, onReading) in cases {
            let message = Message(
                content: fixtures.content(), sender: fixtures.bob.publicKey, state: .received, expiresAt: end,
                onReading: onReading)
            let (decoded, _) = try StoredCodec.decodeMessage(StoredCodec.encode(message, arrivedAt: fixtures.now))
            #expect(decoded == message)
        }
    }

    @Test func `a tombstone is read back unchanged and fits a page of the store`() throws {
        var fixtures = Samples()
        var record = ExplosionRecord(
            conversation: fixtures.conversation(), role: .creator, explodedAt: fixtures.now,
            keepUntil: fixtures.now + 45 * .day, notice: fixtures.random.bytes(Limits.noticeByteCount),
            receipt: fixtures.random.bytes(177), members: [fixtures.ann.publicKey, fixtures.bob.publicKey])
        record.confirmed[fixtures.bob.publicKey] = fixtures.now
        record.memberKnocks[fixtures.bob.publicKey] = fixtures.random.bytes(32)
        record.earlierCopies = fixtures.earlierCopies(of: record.conversation, count: 2)
        record.earlierCopies[1].knock = nil
        record.name = "room"
        let bytes = StoredCodec.encode(tombstone: record, byteLimit: .max)
        #expect(try StoredCodec.decodeTombstone(bytes) == record)
        #expect(bytes.count <= 4_002)
        for count in 0..<bytes.count { _ = try? StoredCodec.decodeTombstone(Array(bytes[..<count])) }
    }

    @Test func `a tombstone keeps a departed creator and a confirmation at the beginning of time`() throws {
        var fixtures = Samples()
        var record = ExplosionRecord(
            conversation: fixtures.conversation(), role: .member, explodedAt: fixtures.now,
            keepUntil: fixtures.now + 45 * .day, notice: fixtures.random.bytes(Limits.noticeByteCount),
            receipt: fixtures.random.bytes(177), members: [fixtures.bob.publicKey])
        record.creator = fixtures.ann.publicKey
        // The member's own signature.
        record.confirmed[fixtures.bob.publicKey] = Timestamp(milliseconds: 0)
        let bytes = StoredCodec.encode(tombstone: record, byteLimit: .max)
        #expect(try StoredCodec.decodeTombstone(bytes) == record)
        for count in 0..<bytes.count { _ = try? StoredCodec.decodeTombstone(Array(bytes[..<count])) }
    }

    @Test func `the tombstone of the largest group fits a page of the store`() throws {
        var fixtures = Samples()
        // 31 members, and as many removed ones as a creator keeps.
        let keys = try (0..<Limits.memberCount - 1 + Limits.departedCount).map { _ in
            try SecretKey(SecretBytes(copying: fixtures.random.bytes(32))).publicKey
        }
        let some = Limits.memberCount - Limits.departedCount
        for (role, count, invites, copies) in [
            (ExplosionRecord.Role.creator, keys.count, Limits.tombstoneInviteCount / 4, 0),
            (.creator, Limits.memberCount - 1, Limits.tombstoneInviteCount, 0),
            (.member, Limits.memberCount - 1, 0, Limits.departedCount / 2), (.member, some, 0, Limits.departedCount),
        ] {
            let members = Array(keys.prefix(count))
            var record = ExplosionRecord(
                conversation: fixtures.conversation(), role: role, explodedAt: fixtures.now,
                keepUntil: fixtures.now + 45 * .day, notice: fixtures.random.bytes(Limits.noticeByteCount),
                receipt: role == .member ? fixtures.random.bytes(177) : nil, members: members)
            record.isPrepared = true
            record.isTraceless = true
            record.name = String(repeating: "n", count: Limits.nameByteCount)
            record.creator = role == .member ? members[0] : nil
            for member in members { record.memberKnocks[member] = fixtures.random.bytes(32) }
            record.earlierCopies = fixtures.earlierCopies(of: record.conversation, count: copies)
            record.relaySeeds = (0..<Limits.tombstoneSeedCount).map {
                RelaySeed(key: fixtures.ann, generation: UInt64($0))
            }
            if role == .creator {
                for member in members { record.confirmed[member] = .latest }
                record.inviteKnocks = (0..<invites).map { _ in fixtures.random.bytes(32) }
                record.statement = ExpiredStatement(
                    tag: InviteTag.random(&fixtures.random), timestamp: fixtures.now, key: fixtures.ann,
                    &fixtures.random)
            }
            let bytes = StoredCodec.encode(tombstone: record, byteLimit: 4_002)
            #expect(bytes.count <= 4_002, "\(role): \(bytes.count) bytes")
            // A page full of members has no room for the name.
            if count == keys.count { record.name = nil }
            #expect(try StoredCodec.decodeTombstone(bytes) == record)
            for count in 0..<bytes.count { _ = try? StoredCodec.decodeTombstone(Array(bytes[..<count])) }
            for index in bytes.indices {
                var changed = bytes
                changed[index] ^= 0x55
                _ = try? StoredCodec.decodeTombstone(changed)
            }
        }
        for count in 0..<200 { _ = try? StoredCodec.decodeTombstone(fixtures.random.bytes(count)) }
    }

    @Test func `every record of an inbox is read back unchanged`() throws {
        var fixtures = Samples()
        let invite = fixtures.invite()
        let signed = SignedInvite(payload: InviteSlug.encodePayload(invite), signedBy: fixtures.ann.secret)
        let genesis = Genesis(
            conversation: fixtures.conversation(), createdAt: fixtures.now, key: fixtures.ann, &fixtures.random)
        let group = GroupState(
            conversation: genesis.conversation, version: 1, membership: 1, name: "room", isLocked: false,
            members: [fixtures.ann.publicKey, fixtures.bob.publicKey])
        var conversation = ConversationRecord(
            genesis: genesis, group: group.signed(by: fixtures.ann, &fixtures.random),
            own: Member(profile: "ann", endpoints: [], version: 1, key: fixtures.ann, &fixtures.random),
            members: [
                Member(profile: nil, endpoints: invite.endpoints, version: 1, key: fixtures.bob, &fixtures.random)
            ], issuer: InviteBook(tag: invite.tag))
        conversation.lifetime.head = fixtures.agreement()
        let roles: [InboxRecord.Role] = [
            .unused, .contact(ContactRecord(routingSecret: fixtures.random.bytes(32))),
            .joining(JoinRecord(try VerifiedInvite(signed, decoded: invite), profile: "bob", startedAt: fixtures.now)),
            .conversation(conversation),
        ]
        for role in roles {
            let record = InboxRecord(client: ClientID.generate(&fixtures.random), createdAt: fixtures.now, role: role)
            #expect(try StoredCodec.decode(InboxRecord.self, StoredCodec.encode(record: record)) == record)
        }
    }

    @Test func `each delivery state keeps its stored number`() throws {
        var fixtures = Samples()
        let states: [DeliveryState] = [
            .queued, .sent, .delivered, .expiredUndelivered, .cancelled, .received, .read, .receiving, .failed, .mailed,
        ]
        for (state, number) in zip(states, UInt8(1)...UInt8(10)) {
            let message = Message(content: fixtures.content(), sender: nil, state: state, expiresAt: nil)
            let bytes = StoredCodec.encode(message, arrivedAt: fixtures.now)
            #expect(bytes[1] == number)
            #expect(try StoredCodec.decodeMessage(bytes).0.state == state)
        }
        let message = Message(content: fixtures.content(), sender: nil, state: .mailed, expiresAt: nil)
        var bytes = StoredCodec.encode(message, arrivedAt: fixtures.now)
        bytes[1] = 11
        #expect(throws: WireError.malformed("record.state")) { try StoredCodec.decodeMessage(bytes) }
    }

    @Test func `statuses split over records are read back unchanged, and cut records never trap`() throws {
        let fixtures = Samples()
        let members = try (1...3 as ClosedRange<UInt8>).map { number in
            try SecretKey(SecretBytes(copying: [UInt8](repeating: number, count: 32))).publicKey
        }
        let states: [DeliveryState?] = [
            nil, .queued, .delivered, .expiredUndelivered, .cancelled, .received, .read, .failed, .mailed,
        ]
        let statuses = (0..<2_000).map { number in
            MessageStatus(
                message: MessageID(unchecked: Array(repeating: UInt8(number & 0xFF), count: 15) + [UInt8(number >> 8)]),
                state: states[number % states.count],
                said: members.prefix(number % 4).map { Delivery(member: $0, state: .read, at: fixtures.now) })
        }
        var decoded: [MessageStatus] = []
        var records = 0
        while decoded.count < statuses.count {
            let (bytes, count) = StoredCodec.encode(statuses[decoded.count...])
            let found = try StoredCodec.decodeStatuses(bytes)
            #expect(found.count == count && count > 0)
            decoded += found
            records += 1
        }
        #expect(decoded == statuses && records == 2)
        let (bytes, _) = StoredCodec.encode(statuses[..<4])
        for count in 0..<bytes.count {
            let found = try? StoredCodec.decodeStatuses(Array(bytes.prefix(count)))
            #expect(found.map { $0 == Array(statuses.prefix($0.count)) } ?? true)
        }
        #expect(throws: WireError.self) { try StoredCodec.decodeStatuses([]) }
        #expect(throws: WireError.self) { try StoredCodec.decodeStatuses([1] + [UInt8](repeating: 9, count: 33)) }
    }
}
