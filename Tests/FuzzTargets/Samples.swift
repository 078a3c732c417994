import Crypto
import Messaging

/// Deterministic values of every kind that crosses a link or goes to the disk, for seeds.
struct Samples {
    var random = Randomness.seeded(11)
    let ann = FuzzKeys.ann
    let bob = FuzzKeys.bob
    let now = Timestamp(milliseconds: 1_795_247_146_133)

    mutating func conversation() -> ConversationID { ConversationID.random(&random) }

    mutating func proposal() -> LifetimeProposal {
        LifetimeProposal.Unsigned(
            conversation: conversation(), membership: 2, epoch: 3, previous: .none,
            terms: LifetimeTerms(.sevenDays, attachment: .oneDay, unopened: 90 * .minute, timer: .read, mailbox: .disk),
            proposedAt: now, nonce: random.bytes(16)
        ).signed(by: ann, &random)
    }

    mutating func agreement() -> Agreement {
        let proposal = proposal()
        return Agreement(proposal: proposal, accepts: [LifetimeAccept(proposal, at: now, by: bob, &random)])
    }

    mutating func content(_ type: ContentType, _ payload: [UInt8] = [], _ body: ContentBody = .opaque) -> Content {
        Content(
            type: type, id: MessageID.random(&random), sentAt: now, lifetime: .oneDay,
            agreement: AgreementID.random(&random), fallback: "a text", shouldPush: true, payload: payload, body: body)
    }

    mutating func contents() -> [Content] {
        [
            content(.text, Array("grüße".utf8)), content(ContentType("example.org/poll:2.1"), [1, 2, 3]),
            content(.reply, [], .reply(Reply(replyTo: MessageID.random(&random), text: "ja"))),
            content(
                .reaction, [], .reaction(Reaction(message: MessageID.random(&random), emoji: "👍", isRemoved: true))),
            content(
                .attachment, [],
                .attachment(
                    Attachment(
                        name: "grüße.txt", mediaType: "text/plain", byteCount: 100_000, hash: random.bytes(32),
                        text: "look", replyTo: MessageID.random(&random)))),
        ]
    }

    mutating func invite() -> Invite {
        Invite(
            tag: InviteTag.random(&random),
            conversationToken: ConversationToken.seal(conversation(), key: ann.secret, nonce: random.bytes(12)),
            creator: InboxID(ann.publicKey), joinSecret: random.bytes(32),
            endpoints: [Endpoint(host: "192.0.2.1", port: 7440), Endpoint(host: "2001:db8::1", port: 7440)],
            name: "incident room", description: "what fell over", lifetime: .oneDay, conversationExpiresAt: now + .day,
            expiresAt: now + .hour, singleUse: true)
    }

    mutating func member() -> Member {
        Member(profile: "ann", endpoints: [Endpoint(host: "example.org", port: 1)], version: 7, key: ann, &random)
    }

    mutating func genesis() -> Genesis { Genesis(conversation: conversation(), createdAt: now, key: ann, &random) }

    mutating func group(_ genesis: Genesis) -> GroupState {
        GroupState.Unsigned(
            conversation: genesis.conversation, version: 3, membership: 2, name: "room", isLocked: true,
            members: [ann.publicKey, bob.publicKey]
        ).signed(by: ann, &random)
    }

    mutating func frames() -> [Frame] {
        let agreement = agreement()
        let genesis = genesis()
        let member = member()
        let departure = Departure(of: bob.publicKey, conversation: genesis.conversation, key: bob, &random)
        let signed = SignedInvite(payload: random.bytes(80), signedBy: ann.secret)
        let group = group(genesis)
        var start = SessionStart(
            reset: true, inForce: agreement.id, head: agreement, renewable: LifetimeTerms(.oneDay, unopened: .hour))
        start.member = member
        start.groupDigest = random.bytes(8)
        start.epoch = 9
        start.open = agreement.proposal.id
        start.undelivered = 3
        (start.run, start.copies) = (.max, true)
        var frames: [Frame] = contents().map { .content($0, age: 5_000) }
        frames += [
            .session(start), .session(SessionStart(reset: false, inForce: nil, head: nil, renewable: nil)),
            .acknowledgement(MessageID.random(&random), stored: true), .expiredOnArrival(MessageID.random(&random)),
            .lifetime(.proposal(agreement.proposal)), .lifetime(.accept(agreement.accepts[0])),
            .lifetime(.agreement(agreement)), .lifetime(.ended(agreement.id, renewable: agreement.terms)),
            .lifetime(.reject(agreement.proposal.id, .policy)), .lifetime(.withdraw(agreement.proposal.id)),
            .joinRequest(JoinRequest(invite: signed, joinSecret: random.bytes(32), member: member)),
            .explosion(random.bytes(Limits.noticeByteCount)),
            .deletionReceipt(DeletionReceipt(conversation: conversation(), destroyedAt: now, key: bob, &random)),
            .invitation(Invitation(id: MessageID.random(&random), slug: "mayfly:join/abc", name: "room")),
            .memberLeft(departure), .joinCancelled, .ping(.max), .pong(0), .closing(asleep: false),
            .closing(asleep: true), .receipt(Receipt(.read, [MessageID.random(&random), MessageID.random(&random)])),
            .attachmentRequest(MessageID.random(&random), first: 7, count: 32),
            .attachmentChunk(
                AttachmentChunk(message: MessageID.random(&random), index: 3, isDeflated: true, bytes: random.bytes(60))
            ), .attachmentGone(MessageID.random(&random)),
            .group(GroupUpdate(state: group, members: [member, member], departures: [departure])),
            .group(GroupUpdate(state: nil, members: [], departures: [])), .profile(member),
        ]
        let grant = RelayGrant(reservationCount: 1_024, streamsPerReservation: 32, streamCount: 128, byteRate: 1 << 20)
        let stream = RelayStreamID(7)
        frames += [
            .relayRequest(.reserve([])), .relayRequest(.reserve([.random(&random), .random(&random)])),
            .relayRequest(.withdraw([.random(&random)])), .relayRequest(.release),
            .relayRequest(.open(.random(&random))), .relayRequest(.stream(.guest, .data(random.bytes(40)))),
            .relayRequest(.stream(stream, .credit(16_384))), .relayAnswer(.reserved(grant)),
            .relayAnswer(.refused(.unknownPeer)), .relayAnswer(.incoming(stream, .random(&random))),
            .relayAnswer(.stream(stream, .data(random.bytes(40)))), .relayAnswer(.stream(.guest, .end)),
            .relayAnswer(.stream(.guest, .close(.busy))),
        ]
        frames += [.joinError(joinError()), .welcome(welcome(genesis, group, member, agreement))]
        return frames + mailboxRequests() + mailboxAnswers() + mailboxMessages(agreement)
    }

    private mutating func mailboxRequests() -> [Frame] {
        let (box, slot) = (BoxID.random(&random), SlotID.random(&random))
        let put = SlotPut(id: slot, kind: .disk, keeping: .oneDay, body: random.bytes(SlotSize.byteCounts[0]))
        let requests: [MailboxRequest] = [
            .claim(owner: bob.publicKey, proof: random.bytes(32), [.random(&random), .random(&random)]),
            .drop([.random(&random)]), .list(box), .purge(box, [slot, .random(&random)]), .put(box, put),
            .take(box, [.random(&random)]), .discard(box, [.random(&random)], answer: []),
            .discard(box, [.random(&random)], answer: random.bytes(113)),
        ]
        return requests.map { .mailboxRequest($0) }
    }

    private mutating func mailboxAnswers() -> [Frame] {
        let (box, slot) = (BoxID.random(&random), SlotID.random(&random))
        let body = random.bytes(SlotSize.byteCounts[0])
        let answers: [MailboxAnswer] = [
            .granted(MailboxGrant(boxCount: 128, slotCount: 256, byteCount: 4 << 20, longest: 30 * .day)),
            .refused(.unknownPeer), .waiting(box), .slots(box, [slot, .random(&random)]), .put(box, slot, .stored),
            .slot(box, slot, dwell: 1_500, isAnswer: false, body: body),
            .slot(box, slot, dwell: 1_500, isAnswer: true, body: random.bytes(113)), .absent(box, slot),
            .discarded(box, [slot]),
        ]
        return answers.map { .mailboxAnswer($0) }
    }

    private func mailboxMessages(_ agreement: Agreement) -> [Frame] {
        let keys = [ann.publicKey, bob.publicKey]
        let slices = SliceKeys(agreement: agreement.id, first: 41_557, present: 41_556, left: .hour, keys: keys)
        let messages: [MailboxMessage] = [
            .want(agreement.id, above: nil), .want(agreement.id, above: 41_556), .keys(slices),
        ]
        return messages.map { .mailbox($0) }
    }

    mutating func joinError() -> JoinError {
        JoinError(
            errorType: .singleUseConsumed, inviteTag: InviteTag.random(&random),
            timestamp: Timestamp(milliseconds: 1_795_247_146_000))
    }

    private mutating func welcome(_ genesis: Genesis, _ group: GroupState, _ member: Member, _ agreement: Agreement)
        -> Welcome
    {
        Welcome(
            tag: InviteTag.random(&random), genesis: genesis, group: group, members: [member],
            expiresAt: Timestamp(milliseconds: 1_795_247_146_000), notice: random.bytes(Limits.noticeByteCount),
            agreement: agreement)
    }

    mutating func tombstone() -> ExplosionRecord {
        var record = ExplosionRecord(
            conversation: conversation(), role: .creator, explodedAt: now, keepUntil: now + 45 * .day,
            notice: random.bytes(Limits.noticeByteCount), receipt: random.bytes(177),
            members: [ann.publicKey, bob.publicKey])
        record.confirmed[bob.publicKey] = now
        record.memberKnocks[bob.publicKey] = random.bytes(32)
        record.inviteKnocks = [random.bytes(32), random.bytes(32)]
        record.statement = ExpiredStatement(tag: InviteTag.random(&random), timestamp: now, key: ann, &random)
        record.creator = ann.publicKey
        return record
    }

    mutating func inboxRoles() throws -> [InboxRecord.Role] {
        let invite = invite()
        let payload = random.bytes(40)
        let signed = SignedInvite(payload: payload, signedBy: ann.secret)
        let genesis = genesis()
        let group = group(genesis)
        let own = member()
        var conversation = ConversationRecord(
            genesis: genesis, group: group, own: own,
            members: [Member(profile: nil, endpoints: invite.endpoints, version: 1, key: bob, &random)],
            issuer: InviteBook(tag: invite.tag))
        conversation.lifetime.head = agreement()
        return [
            .unused, .contact(ContactRecord(routingSecret: random.bytes(32))),
            .joining(JoinRecord(try VerifiedInvite(signed, decoded: invite), profile: "bob", startedAt: now)),
            .conversation(conversation),
        ]
    }
}
