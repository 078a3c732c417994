import Crypto

/// What crosses a link, as a value; `Wire` gives it its bytes.
package enum Frame: Hashable, Sendable {
    /// First on every member link, from both sides: see ``SessionStart``.
    case session(SessionStart)
    /// Chat contents, in the order in which they were sent: at most ``Limits/contentsCount``.
    case contents([AgedContent])
    /// End-to-end acknowledgement of many contents at once.
    case acknowledgement(Acknowledgement)
    case lifetime(LifetimeMessage)
    case joinRequest(JoinRequest)
    case welcome(Welcome)
    case joinError(JoinError)
    /// A sealed explode notice of ``Limits/noticeByteCount`` bytes.
    case explosion([UInt8])
    case deletionReceipt(DeletionReceipt)
    case invitation(Invitation)
    /// A member has destroyed its own copy of the conversation.
    case memberLeft(Departure)
    case ping(UInt64)
    case pong(UInt64)
    /// Nothing follows on this link. `asleep`: the sender's inbox goes to sleep, and the session goes on; otherwise what
    /// was in flight goes by the other link.
    case closing(asleep: Bool)
    /// A frame of a later version. Skipped.
    case unknown
    /// What has become of our messages at their receiver.
    case receipt(Receipt)
    /// Chunks `first…first + count - 1` of the file of our message are wanted.
    case attachmentRequest(MessageID, first: Int, count: Int)
    case attachmentChunk(AttachmentChunk)
    /// The answer to a request for what is not, or no longer, to be had.
    case attachmentGone(MessageID)
    /// Who is in the conversation, and how they describe themselves.
    case group(GroupUpdate)
    /// A member describes itself anew.
    case profile(Member)
    /// A joiner gives up. The creator may have admitted it already.
    case joinCancelled
    /// To a rendezvous node.
    case relayRequest(RelayRequest)
    /// From a rendezvous node.
    case relayAnswer(RelayAnswer)
    /// Between members with a relayed link.
    case punch(PunchMessage)
    /// To a mailbox.
    case mailboxRequest(MailboxRequest)
    /// From a mailbox.
    case mailboxAnswer(MailboxAnswer)
    /// Between members: keys of slices.
    case mailbox(MailboxMessage)
}

/// What two members tell each other when a link opens, so that both come to the same lifetime (section 6, point 6).
package struct SessionStart: Hashable, Sendable {
    /// The session has ended since the last link: the agreement in force ends with it.
    package var reset: Bool
    /// The agreement that stands here, whether or not a new member has yet to sign it.
    package var inForce: AgreementID?
    /// The newest agreement that this side knows of, in force or not.
    package var head: Agreement?
    /// A standing policy of this side would renew these terms.
    package var renewable: LifetimeTerms?
    /// How this side describes itself now.
    package var member: Member?
    /// What this side knows of the group; who knows something else is sent it.
    package var groupDigest: [UInt8] = []
    /// How many messages to the other side were given up undelivered, since the conversation began.
    package var undelivered: UInt64 = 0
    /// The highest epoch of a proposal or an agreement under this side's member list that it knows of. Unsigned.
    package var epoch: UInt64
    /// This side's own proposal that waits for answers.
    package var open: ProposalID?
    /// Random, the same for as long as this side's inbox is awake; 0 for none.
    package var run: UInt64 = 0
    /// Two copies of the other side's home run at once.
    package var copies = false

    package init(
        reset: Bool, inForce: AgreementID?, head: Agreement?, renewable: LifetimeTerms?, epoch: UInt64 = 0,
        open: ProposalID? = nil
    ) {
        self.reset = reset
        self.inForce = inForce
        self.head = head
        self.renewable = renewable
        self.epoch = epoch
        self.open = open
    }
}

extension Frame {
    /// What a frame that changes nothing counts as: each element of its lists costs us a look, a key of a curve or a
    /// signature, and its sender a few bytes.
    package var elementCount: Int {
        let count =
            switch self {
            case .contents(let contents): contents.count
            case .acknowledgement(let said): said.count
            case .receipt(let receipt): receipt.messages.count
            case .session(let start): (start.head?.accepts.count ?? 0) + (start.member?.endpoints.count ?? 0)
            case .lifetime(.agreement(let agreement)): agreement.accepts.count
            case .joinRequest(let request): request.member.endpoints.count
            case .welcome(let welcome): welcome.members.count + (welcome.agreement?.accepts.count ?? 0)
            case .group(let update): update.members.count + update.departures.count
            case .profile(let member): member.endpoints.count
            case .punch(let message): message.candidates.count
            case .relayRequest(.reserve(let labels)), .relayRequest(.withdraw(let labels)): labels.count
            case .mailboxRequest(let request): request.elementCount
            case .mailboxAnswer(.slots(_, let ids)), .mailboxAnswer(.discarded(_, let ids)): ids.count
            case .mailbox(.keys(let keys)): keys.keys.count
            // A request for chunks costs one look, however many it names.
            case .lifetime, .joinError, .explosion, .deletionReceipt, .invitation, .memberLeft, .ping, .pong, .closing,
                .unknown, .attachmentRequest, .attachmentChunk, .attachmentGone, .joinCancelled, .relayRequest,
                .relayAnswer, .mailboxAnswer, .mailbox:
                1
            }
        return max(1, count)
    }

    /// A frame of one content.
    package static func content(_ content: Content, age: Milliseconds) -> Frame {
        .contents([AgedContent(content, age: age)])
    }

    /// The acknowledgement of one content.
    package static func acknowledgement(_ message: MessageID, stored: Bool) -> Frame {
        .acknowledgement(stored ? Acknowledgement(stored: [message]) : Acknowledgement(held: [message]))
    }

    /// That one content was past its time when it came.
    package static func expiredOnArrival(_ message: MessageID) -> Frame {
        .acknowledgement(Acknowledgement(expired: [message]))
    }
}
