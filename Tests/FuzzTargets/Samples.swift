import Cryptography
import Messaging

/// Values of every kind that crosses a link or goes to the disk, from one seed.
package struct Samples {
    package var random = Randomness.seeded(7)
    package let ann = FuzzKeys.ann
    package let bob = FuzzKeys.bob
    package let now = Timestamp(milliseconds: 1_795_247_146_133)

    package init() {}

    package mutating func conversation() -> ConversationID { ConversationID.random(&random) }

    package mutating func earlierCopies(of conversation: ConversationID, count: Int) -> [ExplosionRecord.EarlierCopy] {
        (0..<count).map { _ in
            let receipt = DeletionReceipt(conversation: conversation, destroyedAt: now, key: bob, &random)
            return ExplosionRecord.EarlierCopy(receipt: receipt, knock: random.bytes(32))
        }
    }

    package mutating func proposal() -> LifetimeProposal {
        LifetimeProposal(
            conversation: conversation(), membership: 2, epoch: 3, previous: .none,
            terms: LifetimeTerms(.sevenDays, attachment: .oneDay, unopened: 90 * .minute, timer: .read, mailbox: .disk),
            proposedAt: now, nonce: random.bytes(16), proposer: ann.publicKey
        ).signed(by: ann, &random)
    }

    package mutating func agreement() -> Agreement {
        let proposal = proposal()
        return Agreement(proposal: proposal, accepts: [LifetimeAccept(proposal, at: now, by: bob, &random)])
    }

    package mutating func content(_ type: ContentType = .text, _ text: String = "grüße") -> Content {
        Content(
            type: type, id: MessageID.random(&random), sentAt: now, lifetime: .oneDay,
            agreement: AgreementID.random(&random), fallback: "a text", shouldPush: true, payload: Array(text.utf8))
    }

    package mutating func invite(_ description: String? = nil, _ lifetime: Lifetime = .ephemeral, end: Timestamp? = nil)
        -> Invite
    {
        Invite(
            tag: InviteTag.random(&random),
            conversationToken: ConversationToken.seal(conversation(), key: ann.secret, nonce: random.bytes(12)),
            creator: InboxID(ann.publicKey), joinSecret: random.bytes(32),
            endpoints: [Endpoint(host: "192.0.2.1", port: 7440), Endpoint(host: "2001:db8::1", port: 7440)],
            name: "incident room", description: description, lifetime: lifetime, conversationExpiresAt: end,
            expiresAt: now + .day, singleUse: true)
    }

    /// The frames of the page Frames, and what its examples leave out: other values of each kind.
    package mutating func frames() throws -> [Frame] {
        var specified = try SpecifiedFrames()
        let agreement = agreement()
        var start = SessionStart(
            reset: true, inForce: agreement.id, head: agreement, renewable: LifetimeTerms(.oneDay, unopened: .hour))
        (start.undelivered, start.run, start.copies) = (3, .max, true)
        return try specified.all().map(\.1) + [
            .session(start), .lifetime(.proposal(agreement.proposal)), .lifetime(.agreement(agreement)),
            .lifetime(.ended(agreement.id, renewable: agreement.terms)),
            .lifetime(.ended(agreement.id, renewable: nil)), .joinError(joinError()), .ping(.max), .pong(0),
            .group(GroupUpdate(state: nil, members: [], departures: [])),
        ] + contents().map { .content($0, age: 1) } + relayFrames() + mailboxFrames()
    }

    private mutating func relayFrames() -> [Frame] {
        let punches = PunchMessage.Step.allCases.map { step in
            let candidates = step == .go ? [] : [Endpoint(host: "192.0.2.7", port: 7_440)]
            return Frame.punch(PunchMessage(step: step, nonce: PunchNonce(random.bytes(16))!, candidates: candidates))
        }
        let pieces: [RelayStreamFrame] = [.data(random.bytes(40)), .credit(1), .credit(Limits.relayWindow), .end]
        let streams = (pieces + RelayCloseReason.allCases.map { .close($0) }).flatMap { piece -> [Frame] in
            [.relayRequest(.stream(.guest, piece)), .relayAnswer(.stream(RelayStreamID(9), piece))]
        }
        return punches + streams + RelayRefusal.allCases.map { .relayAnswer(.refused($0)) } + [
            .relayRequest(.reserve([])), .relayRequest(.reserve(some(2))),
            .relayAnswer(.incoming(RelayStreamID(.max), .random(&random))),
        ]
    }

    package mutating func some<Name: FixedBytes>(_ count: Int) -> [Name] { (0..<count).map { _ in .random(&random) } }

    private mutating func mailboxFrames() -> [Frame] {
        let requests: [MailboxRequest] = [
            .claim(owner: ann.publicKey, proof: random.bytes(32), some(2)),
            .claim(owner: bob.publicKey, proof: random.bytes(32), []), .drop(some(3)), .drop([]),
            .purge(.random(&random), some(2)), .take(.random(&random), some(2)),
            .discard(.random(&random), some(1), answer: random.bytes(Limits.slotAnswerByteCount)),
        ]
        let answers: [MailboxAnswer] = [
            .granted(MailboxGrant(boxCount: 0, slotCount: 0, byteCount: 0, longest: 0)),
            .slots(.random(&random), some(2)), .slots(.random(&random), []),
            .slot(.random(&random), .random(&random), dwell: 0, isAnswer: false, body: random.bytes(1_024)),
            .slot(.random(&random), .random(&random), dwell: .day, isAnswer: true, body: random.bytes(113)),
            .discarded(.random(&random), some(2)),
        ]
        let outcomes = PutOutcome.allCases.map { MailboxAnswer.put(.random(&random), .random(&random), $0) }
        let refusals = MailboxRefusal.allCases.map { MailboxAnswer.refused($0) }
        let keys = [ann.publicKey, bob.publicKey, ann.publicKey]
        let slices = SliceKeys(agreement: .random(&random), first: 41_555, present: 41_556, left: .hour, keys: keys)
        var none = slices
        none.keys = []
        let messages: [MailboxMessage] = [
            .want(.random(&random), above: nil), .want(.random(&random), above: 0),
            .want(.random(&random), above: .max), .keys(slices), .keys(none),
        ]
        return requests.map { .mailboxRequest($0) } + (answers + outcomes + refusals).map { .mailboxAnswer($0) }
            + messages.map { .mailbox($0) }
    }

    package mutating func content(_ type: ContentType, body: ContentBody) -> Content {
        var content = content(type, "")
        content.body = body
        return content
    }

    package mutating func attachment() -> Messaging.Attachment {
        Messaging.Attachment(
            name: "grüße.txt", mediaType: "text/plain", byteCount: 100_000, hash: random.bytes(32), text: "look",
            replyTo: MessageID.random(&random))
    }

    package mutating func contents() -> [Content] {
        [
            content(), content(ContentType("example.org/poll:2.1")),
            content(.reply, body: .reply(Reply(replyTo: MessageID.random(&random), text: "ja"))),
            content(
                .reaction, body: .reaction(Reaction(message: MessageID.random(&random), emoji: "👍", isRemoved: true))),
            content(.attachment, body: .attachment(attachment())),
        ]
    }

    package mutating func joinError() -> JoinError {
        JoinError(
            errorType: .singleUseConsumed, inviteTag: InviteTag.random(&random),
            timestamp: Timestamp(milliseconds: 1_795_247_146_000))
    }

    package mutating func tombstone() -> ExplosionRecord {
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

    package mutating func inboxRoles() throws -> [InboxRecord.Role] {
        var values = try SpecifiedValues()
        let invite = try VerifiedInvite(try values.signedInvite(), decoded: try values.invite())
        var conversation = ConversationRecord(
            genesis: values.genesis(), group: try values.group(), own: try values.annMember(),
            members: [try values.bobMember()], issuer: InviteBook(tag: values.tag))
        conversation.lifetime.head = try values.agreement()
        return [
            .unused, .contact(ContactRecord(routingSecret: random.bytes(32))),
            .joining(JoinRecord(invite, profile: "bob", startedAt: now)), .conversation(conversation),
        ]
    }
}
