import Cryptography
import Foundation
import FuzzTargets
import Messaging
import Testing

@Suite struct StoredCodecTests {
    @Test func `a stored message is read back unchanged, also with an end at the beginning of time`() throws {
        var samples = Samples()
        let (start, day) = (Timestamp(milliseconds: 0), samples.now + .day)
        let cases: [(PublicKey?, DeliveryState, Timestamp?, Retention.OnReading?)] = [
            (nil, .queued, day, nil), (samples.bob.publicKey, .received, day, nil),
            (samples.bob.publicKey, .received, start, nil), (samples.bob.publicKey, .received, nil, .until(start)),
            (samples.bob.publicKey, .received, nil, .after(0)),
        ]
        for (sender, state, end, onReading) in cases {
            let message = Message(
                content: samples.content(), sender: sender, state: state, expiresAt: end, onReading: onReading)
            let (decoded, arrivedAt) = try StoredCodec.decodeMessage(
                StoredCodec.encode(message, arrivedAt: samples.now))
            #expect(
                decoded == message && arrivedAt == samples.now,
                "\(state), \(String(describing: end)), \(String(describing: onReading))")
        }
    }

    @Test func `a tombstone is read back unchanged and fits a page of the store`() throws {
        var samples = Samples()
        let bob = samples.bob.publicKey
        var created = samples.tombstone()
        created.earlierCopies = samples.earlierCopies(of: created.conversation, count: 2)
        created.earlierCopies[1].knock = nil
        created.name = "room"
        // The creator has left, and the member's own signature confirms at the beginning of time.
        var joined = ExplosionRecord(
            conversation: created.conversation, role: .member, explodedAt: samples.now, keepUntil: created.keepUntil,
            notice: created.notice, receipt: created.receipt, members: [bob])
        (joined.creator, joined.confirmed[bob]) = (samples.ann.publicKey, Timestamp(milliseconds: 0))
        for record in [created, joined] {
            let bytes = StoredCodec.encode(tombstone: record, byteLimit: .max)
            #expect(try StoredCodec.decodeTombstone(bytes) == record)
            #expect(bytes.count <= 4_002 && ProtoOracle.tombstone(bytes) == bytes)
        }
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
            #expect(bytes.count <= 4_002 && ProtoOracle.tombstone(bytes) == bytes, "\(role): \(bytes.count) bytes")
            // A page full of members has no room for the name.
            if count == keys.count { record.name = nil }
            #expect(try StoredCodec.decodeTombstone(bytes) == record)
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

/// The JSON in state logs, as the page Frames describes it.
@Suite struct StoredRecordTests {
    @Test func `a record is written by the conventions of the page`() throws {
        var values = try SpecifiedValues()
        var conversation = ConversationRecord(
            genesis: values.genesis(), group: try values.group(), own: try values.annMember(),
            members: [try values.bobMember()], issuer: nil)
        conversation.told = [values.bob.publicKey: 5]
        let client = try #require(ClientID(hex: "00112233-4455-4677-8899-aabbccddeeff"))
        let record = InboxRecord(client: client, createdAt: values.time, role: .conversation(conversation))
        let bytes = StoredCodec.encode(record: record)
        #expect(try StoredCodec.decode(InboxRecord.self, bytes) == record)

        let json = try #require(try JSONSerialization.jsonObject(with: Data(bytes)) as? [String: Any])
        #expect(json["client"] as? String == "00112233445546778899aabbccddeeff")
        #expect(json["createdAt"] as? Int64 == values.time.milliseconds)
        let role = try #require(json["role"] as? [String: Any])
        #expect(Array(role.keys) == ["conversation"])
        let inside = try #require((role["conversation"] as? [String: Any])?["_0"] as? [String: Any])
        #expect(inside["sendsReadReceipts"] == nil && inside["schedule"] == nil && inside["issuer"] == nil)
        let genesis = try #require(inside["genesis"] as? [String: Any])
        #expect(genesis["conversation"] as? String == values.conversation.description)
        #expect(genesis["creator"] as? String == Hex.encode(values.ann.publicKey.bytes))
        #expect(genesis["signature"] as? String == Hex.encode(values.genesis().signature.bytes))
        let told = try #require(inside["told"] as? [Any])
        #expect(told.count == 2 && told[0] as? String == Hex.encode(values.bob.publicKey.bytes) && told[1] as? Int == 5)

        // Byte strings that are neither identifier nor key, and an enum without a payload.
        let contact = InboxRecord(
            client: client, createdAt: values.time, role: .contact(ContactRecord(routingSecret: [1, 2, 255])))
        let text = String(decoding: StoredCodec.encode(record: contact), as: UTF8.self)
        #expect(text.contains(#""routingSecret":[1,2,255]"#))
        let terms = String(decoding: StoredCodec.encode(record: LifetimeTerms(.oneDay)), as: UTF8.self)
        #expect(terms.contains(#""timer":"send""#) && !terms.contains("unopened"))
        let unused = InboxRecord(client: client, createdAt: values.time, role: .unused)
        #expect(String(decoding: StoredCodec.encode(record: unused), as: UTF8.self).contains(#""role":{"unused":{}}"#))
    }
}
