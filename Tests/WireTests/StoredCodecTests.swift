import Messaging
import Primitives
import Testing
import Wire

@Suite struct StoredCodecTests {
    @Test func `a stored message comes back as it was`() throws {
        var fixtures = try Fixtures()
        for (sender, state) in [(nil, DeliveryState.queued), (fixtures.bob.publicKey, .received)] {
            let message = Message(
                content: fixtures.content(),
                sender: sender,
                state: state,
                expiresAt: fixtures.now + .day
            )
            let (decoded, arrivedAt) = try StoredCodec.decodeMessage(
                StoredCodec.encode(message, arrivedAt: fixtures.now)
            )
            #expect(decoded == message && arrivedAt == fixtures.now)
        }
    }

    @Test func `a tombstone comes back as it was and fits a page of the store`() throws {
        var fixtures = try Fixtures()
        var record = ExplodeStateMachine.Record(
            conversation: fixtures.conversation(),
            role: .creator,
            explodedAt: fixtures.now,
            keepUntil: fixtures.now + 45 * .day,
            notice: fixtures.random.bytes(Limits.noticeByteCount),
            receipt: fixtures.random.bytes(177),
            members: [fixtures.ann.publicKey, fixtures.bob.publicKey]
        )
        record.confirmed[fixtures.bob.publicKey] = fixtures.now
        record.knockTokens = (0..<47).map { _ in fixtures.random.bytes(8) }
        let bytes = StoredCodec.encode(tombstone: record)
        #expect(try StoredCodec.decodeTombstone(bytes) == record)
        #expect(bytes.count <= 4_012)
        for count in 0..<bytes.count { _ = try? StoredCodec.decodeTombstone(Array(bytes[..<count])) }
    }

    @Test func `every record of an inbox comes back as it was`() throws {
        var fixtures = try Fixtures()
        let invite = fixtures.invite()
        let signed = SignedInvite(payload: InviteSlug.encodePayload(invite), signedBy: fixtures.ann.secret)
        let genesis = Genesis(
            conversation: fixtures.conversation(),
            createdAt: fixtures.now,
            key: fixtures.ann,
            &fixtures.random
        )
        let group = GroupState.Unsigned(
            conversation: genesis.conversation,
            version: 1,
            membership: 1,
            name: "room",
            isLocked: false,
            members: [fixtures.ann.publicKey, fixtures.bob.publicKey]
        )
        var conversation = ConversationRecord(
            genesis: genesis,
            group: group.signed(by: fixtures.ann, &fixtures.random),
            own: Member(profile: "ann", endpoints: [], version: 1, key: fixtures.ann, &fixtures.random),
            members: [
                Member(profile: nil, endpoints: invite.endpoints, version: 1, key: fixtures.bob, &fixtures.random)
            ],
            issuer: IssuerStateMachine.Record(tag: invite.tag)
        )
        conversation.lifetime.head = fixtures.agreement()
        let roles: [InboxRecord.Role] = [
            .unused,
            .contact(ContactRecord(routingSecret: fixtures.random.bytes(32))),
            .joining(
                JoinRecord(try VerifiedInvite(signed, decoded: invite), profile: "bob", startedAt: fixtures.now)
            ),
            .conversation(conversation),
        ]
        for role in roles {
            let record = InboxRecord(
                client: ClientID.generate(&fixtures.random),
                createdAt: fixtures.now,
                role: role
            )
            #expect(try StoredCodec.decode(InboxRecord.self, StoredCodec.encode(record: record)) == record)
        }
    }
}
