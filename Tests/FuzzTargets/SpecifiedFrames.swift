import Cryptography
import Messaging
import TestSupport

/// The frames of the page Frames, by their names there.
package struct SpecifiedFrames {
    private var values: SpecifiedValues
    private let message: MessageID
    private let agreement: Agreement
    private let digest = [UInt8](0xf0..<0xf8)
    private let nonce = [UInt8](0xe0..<0xf0)

    package init() throws {
        values = try SpecifiedValues()
        message = try values.message()
        agreement = try values.agreement()
    }

    package mutating func all() throws -> [(String, Frame)] {
        try sessions() + contents() + lifetimes() + joins() + group() + relays() + mailbox() + [
            ("acknowledgement", .acknowledgement(message, stored: true)),
            (
                "acknowledgement of four contents",
                .acknowledgement(
                    Acknowledgement(
                        stored: [message, MessageID(unchecked: [UInt8](0x10..<0x20))],
                        held: [MessageID(unchecked: [UInt8](0x20..<0x30))],
                        expired: [MessageID(unchecked: [UInt8](0x30..<0x40))]))
            ), ("acknowledgement, expired on arrival", .expiredOnArrival(message)), ("ping", .ping(7)),
            ("pong", .pong(7)), ("closing, another link is kept", .closing(asleep: false)),
            ("closing, asleep", .closing(asleep: true)),
            ("explosion", .explosion(try values.sealedNotice("notice, immediate"))),
            ("attachment request", .attachmentRequest(message, first: 4, count: 32)),
            ("attachment chunk", .attachmentChunk(chunk)), ("attachment gone", .attachmentGone(message)),
            ("receipt", .receipt(Receipt(.read, [message]))),
        ]
    }

    private var chunk: AttachmentChunk {
        let bytes = Deflate.compress([UInt8](repeating: 0x61, count: 64))
        return AttachmentChunk(message: message, index: 3, isDeflated: true, bytes: bytes)
    }

    private mutating func sessions() throws -> [(String, Frame)] {
        var full = SessionStart(
            reset: true, inForce: agreement.id, head: agreement, renewable: LifetimeTerms(.oneDay), epoch: 1,
            open: try values.fullProposal().id)
        full.member = try values.annMember()
        full.groupDigest = digest
        full.undelivered = 3
        (full.run, full.copies) = (0x0102_0304_0506_0708, true)
        var first = SessionStart(reset: false, inForce: nil, head: nil, renewable: nil)
        first.member = try values.bobMember()
        first.groupDigest = digest
        first.run = 0x0807_0605_0403_0201
        var agreed = first
        agreed.inForce = agreement.id
        agreed.head = agreement
        agreed.epoch = 1
        return [
            ("session", .session(full)), ("session of a joiner, nothing agreed", .session(first)),
            ("session of a joiner under an agreement", .session(agreed)),
        ]
    }

    private func content(
        _ type: String, _ payload: [UInt8] = [], _ body: ContentBody = .opaque, fallback: String = "",
        shouldPush: Bool = true
    ) -> Frame {
        .content(
            Content(
                type: ContentType(type), id: message, sentAt: values.time, lifetime: .oneDay, agreement: agreement.id,
                fallback: fallback, shouldPush: shouldPush, payload: payload, body: body), age: 1_500)
    }

    private func contents() throws -> [(String, Frame)] {
        func reaction(isRemoved: Bool, _ fallback: String) -> Frame {
            let body = Reaction(message: message, emoji: "👍", isRemoved: isRemoved)
            return content("mayfly/reaction:1.0", [], .reaction(body), fallback: fallback, shouldPush: false)
        }
        let attachment = Attachment(
            name: "grüße.txt", mediaType: "text/plain", byteCount: 100_000, hash: BLAKE2b.hash(Array("a file".utf8)),
            text: "look", replyTo: message)
        let ephemeral = Content(
            type: .text, id: message, sentAt: values.time, lifetime: .ephemeral, agreement: nil, fallback: "",
            shouldPush: true, payload: Array("hi".utf8))
        var second = ephemeral
        second.id = MessageID(unchecked: [UInt8](0x10..<0x20))
        second.sentAt = values.time + 15
        second.payload = Array("ho".utf8)
        return [
            ("text", content("mayfly/text:1.0", Array("grüße".utf8))), ("ephemeral text", .content(ephemeral, age: 0)),
            ("two texts", .contents([AgedContent(ephemeral, age: 20), AgedContent(second, age: 5)])),
            ("reply", content("mayfly/reply:1.0", [], .reply(Reply(replyTo: message, text: "ja")), fallback: "ja")),
            ("reaction", reaction(isRemoved: false, "reacted 👍")),
            ("reaction taken back", reaction(isRemoved: true, "took back 👍")),
            (
                "attachment",
                content(
                    "mayfly/attachment:1.0", [], .attachment(attachment),
                    fallback: "[file grüße.txt, 100000 bytes] look")
            ), ("unknown type", content("example.org/poll:2.1", [0x00, 0xff], fallback: "a poll")),
        ]
    }

    private mutating func lifetimes() throws -> [(String, Frame)] {
        let proposal = try values.plainProposal()
        let full = try values.fullProposal()
        return [
            ("proposal", .lifetime(.proposal(full))), ("accept", .lifetime(.accept(try values.accept()))),
            ("reject", .lifetime(.reject(proposal.id, .policy))), ("withdraw", .lifetime(.withdraw(proposal.id))),
            ("agreement", .lifetime(.agreement(agreement))),
            ("ended", .lifetime(.ended(agreement.id, renewable: full.terms))),
        ]
    }

    private mutating func joins() throws -> [(String, Frame)] {
        let request = JoinRequest(
            invite: try values.signedInvite(), joinSecret: values.joinSecret, member: try values.bobMember())
        let welcome = Welcome(
            tag: values.tag, genesis: values.genesis(), group: try values.group(), members: [try values.annMember()],
            expiresAt: nil, agreement: agreement)
        var scheduled = welcome
        scheduled.agreement = nil
        scheduled.expiresAt = values.notice(isImmediate: false).expiresAt
        scheduled.notice = try values.sealedNotice("notice, scheduled")
        let error = JoinError(errorType: .genericFailure, inviteTag: values.tag, timestamp: values.time)
        let invitation = Invitation(
            id: message, slug: InviteSlug.encode(try values.signedInvite()), name: try values.group().name)
        return [
            ("join request", .joinRequest(request)), ("welcome", .welcome(welcome)),
            ("welcome, explosion scheduled", .welcome(scheduled)), ("join error", .joinError(error)),
            ("join cancelled", .joinCancelled), ("invitation", .invitation(invitation)),
        ]
    }

    private mutating func group() throws -> [(String, Frame)] {
        let departure = values.departure()
        let update = GroupUpdate(state: try values.group(), members: [try values.bobMember()], departures: [departure])
        return [
            ("group updated", .group(update)), ("profile", .profile(try values.annMember())),
            ("member left", .memberLeft(departure)), ("deletion receipt", .deletionReceipt(try values.receipt())),
        ]
    }

    private func relays() throws -> [(String, Frame)] {
        let reservation = try SpecifiedValues.known(ReservationID(nonce))
        let punch = try SpecifiedValues.known(PunchNonce(nonce))
        let candidate = try SpecifiedValues.known(Endpoint(try values.examples["member"].text("endpoint")))
        let stream = RelayStreamID(7)
        let label = try SpecifiedValues.known(RelayLabel(nonce))
        let grant = RelayGrant(reservationCount: 1_024, streamsPerReservation: 8, streamCount: 32, byteRate: 1 << 20)
        let piece = RelayStreamFrame.data(Array("piece".utf8))
        return [
            ("reserve", .relayRequest(.reserve([label]))), ("withdraw reservations", .relayRequest(.withdraw([label]))),
            ("release", .relayRequest(.release)), ("open", .relayRequest(.open(reservation))),
            ("stream data to the rendezvous node", .relayRequest(.stream(.guest, piece))),
            ("reserved", .relayAnswer(.reserved(grant))), ("refused", .relayAnswer(.refused(.unknownPeer))),
            ("incoming", .relayAnswer(.incoming(stream, reservation))),
            ("stream data", .relayAnswer(.stream(stream, piece))),
            ("stream credit", .relayAnswer(.stream(stream, .credit(16_384)))),
            ("stream end", .relayAnswer(.stream(stream, .end))),
            ("stream close", .relayAnswer(.stream(stream, .close(.unknownReservation)))),
            ("punch offer", .punch(PunchMessage(step: .offer, nonce: punch, candidates: [candidate]))),
            ("punch go", .punch(PunchMessage(step: .go, nonce: punch, candidates: []))),
        ]
    }

    private func mailbox() throws -> [(String, Frame)] {
        let (box, slot) = (BoxID(unchecked: [UInt8](0x40..<0x50)), SlotID(unchecked: [UInt8](0x50..<0x60)))
        let tag = SlotTag(unchecked: [UInt8](0x60..<0x80))
        let label = BoxLabel(unchecked: nonce)
        let (ann, bob) = (values.ann.publicKey, values.bob.publicKey)
        let put = SlotPut(id: slot, kind: .disk, keeping: .oneDay, body: [UInt8](repeating: 0x61, count: 1_024))
        let requests: [(String, MailboxRequest)] = [
            ("mailbox claim", .claim(owner: ann, proof: [UInt8](0x80..<0xa0), [label])),
            ("mailbox drop", .drop([label])), ("mailbox list", .list(box)), ("mailbox purge", .purge(box, [slot])),
            ("mailbox put", .put(box, put)), ("mailbox take", .take(box, [tag])),
            ("mailbox discard", .discard(box, [tag], answer: [])),
            ("mailbox discard, a notice answered", .discard(box, [tag], answer: Array("answer".utf8))),
        ]
        let grant = MailboxGrant(boxCount: 128, slotCount: 256, byteCount: 4_194_304, longest: 2_592_000_000)
        let answer = Array("answer".utf8)
        let answers: [(String, MailboxAnswer)] = [
            ("mailbox granted", .granted(grant)), ("mailbox refused", .refused(.unknownPeer)),
            ("mailbox waiting", .waiting(box)), ("mailbox slots", .slots(box, [slot])),
            ("mailbox put, stored", .put(box, slot, .stored)),
            ("mailbox slot, a notice answered", .slot(box, slot, dwell: 1_500, isAnswer: true, body: answer)),
            ("mailbox absent", .absent(box, slot)), ("mailbox discarded", .discarded(box, [slot])),
        ]
        let keys = SliceKeys(agreement: agreement.id, first: 41_557, present: 41_556, left: 900_000, keys: [ann, bob])
        return requests.map { ($0, .mailboxRequest($1)) } + answers.map { ($0, .mailboxAnswer($1)) } + [
            ("slices wanted", .mailbox(.want(agreement.id, above: 41_556))),
            ("slices wanted, of none known", .mailbox(.want(agreement.id, above: nil))),
            ("slice keys", .mailbox(.keys(keys))),
        ]
    }
}
