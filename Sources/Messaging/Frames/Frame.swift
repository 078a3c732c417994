import Cryptography

/// A message on a link; ``FrameCodec`` encodes it.
package enum Frame: Hashable, Sendable {
    /// First on every member link, from both sides: see ``SessionStart``.
    case session(SessionStart)
    /// In the order of sending: at most ``Limits/contentsCount``.
    case contents([AgedContent])
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
    /// The last frame on this link. `asleep`: the sender's inbox goes to sleep and the session continues. Otherwise
    /// frames in flight use the other link.
    case closing(asleep: Bool)
    /// A frame of a later version. Skipped.
    case unknown
    /// The receiver's states of our messages.
    case receipt(Receipt)
    /// Requests chunks `first…first + count - 1` of the file of our message.
    case attachmentRequest(MessageID, first: Int, count: Int)
    case attachmentChunk(AttachmentChunk)
    case attachmentGone(MessageID)
    case group(GroupUpdate)
    case profile(Member)
    /// A joiner cancels. The creator may have admitted it already.
    case joinCancelled
    case relayRequest(RelayRequest)
    case relayAnswer(RelayAnswer)
    /// Between members with a relayed link.
    case punch(PunchMessage)
    case mailboxRequest(MailboxRequest)
    case mailboxAnswer(MailboxAnswer)
    /// Between members: keys of slices.
    case mailbox(MailboxMessage)
}

/// Exchanged when a link opens, so that both members derive the same lifetime.
package struct SessionStart: Hashable, Sendable {
    /// The session has ended since the last link: the agreement in force ends with it.
    package var reset: Bool
    /// The agreement that stands here, even if a new member has not signed it yet.
    package var inForce: AgreementID?
    /// The newest agreement that this side knows, in force or not.
    package var head: Agreement?
    /// A standing policy of this side would renew these terms.
    package var renewable: LifetimeTerms?
    package var member: Member?
    /// Digest of the group as this side knows it. A mismatch makes the other side send its own.
    package var groupDigest: [UInt8] = []
    /// Number of messages to the other side that were given up since the conversation began.
    package var undelivered: UInt64 = 0
    /// The highest epoch of a proposal or agreement under this member list that this side knows. Unsigned.
    package var epoch: UInt64
    /// This side's own proposal that waits for answers.
    package var open: ProposalID?
    /// Random, constant while this side's inbox is awake; 0 for none.
    package var run: UInt64 = 0
    /// Two copies of the other side's home run at once.
    package var copies = false

    package init(
        reset: Bool, inForce: AgreementID?, head: Agreement?, renewable: LifetimeTerms?, epoch: UInt64 = 0,
        open: ProposalID? = nil
    ) {
        (self.reset, self.inForce, self.head, self.renewable, self.epoch) = (reset, inForce, head, renewable, epoch)
        self.open = open
    }
}

extension Frame {
    /// The weight of a no-op frame. Each list element costs us a lookup, a curve point or a signature check, and its
    /// sender a few bytes.
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
            // A request for chunks costs one lookup, however many it names.
            case .attachmentRequest, .attachmentChunk, .attachmentGone, .joinError, .joinCancelled, .explosion,
                .deletionReceipt, .invitation, .memberLeft, .ping, .pong, .closing, .unknown, .lifetime, .relayRequest,
                .relayAnswer, .mailboxAnswer, .mailbox:
                1
            }
        return max(1, count)
    }

    package static func content(_ content: Content, age: Milliseconds) -> Frame {
        .contents([AgedContent(content, age: age)])
    }

    package static func acknowledgement(_ message: MessageID, stored: Bool) -> Frame {
        .acknowledgement(stored ? Acknowledgement(stored: [message]) : Acknowledgement(held: [message]))
    }
    package static func expiredOnArrival(_ message: MessageID) -> Frame {
        .acknowledgement(Acknowledgement(expired: [message]))
    }
}
