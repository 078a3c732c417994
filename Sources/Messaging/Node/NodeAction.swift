import Cryptography

/// Effects that the core asks of the shell. The shell performs them in order and holds output (`transmit…`, `notify`)
/// until everything before it is durable.
package enum NodeAction: Hashable, Sendable {
    /// Make the inbox's present record durable.
    case save(ClientID)
    case keep(ClientID, [Message], Keeping)
    case setState(ClientID, [MessageID], DeliveryState)
    case forgetMemory(ClientID)
    /// Write the tombstone first, then destroy the inbox's keys, then remove its files.
    case explode(ClientID, ExplosionRecord, fanOut: [Member])
    /// Destroy the inbox's keys and files without a tombstone: after a failed join, or when we leave.
    case destroy(ClientID)
    case saveTombstone(ConversationID)
    case removeTombstone(ConversationID)
    /// Prepare the tombstone and the fan-out list of an explosion at ``ExplosionRecord/explodedAt``. The
    /// store destroys the inbox's keys at that time, whether or not the node runs.
    case armExplosion(ClientID, ExplosionRecord, fanOut: [Member])

    /// A message was read and has a new expiry. Reading it again changes nothing.
    case reschedule(ClientID, MessageID, expiresAt: Timestamp)

    case register(ClientID, Route)
    case unregister(ClientID, Route)
    case dial(ClientID, Dial)
    case transmit(LinkID, Frame)
    /// Send messages from the archive, in this order and in as few frames as possible.
    case transmitMessages(LinkID, ClientID, [AgedMessage])
    case close(LinkID)
    /// Rate limit: read nothing from this link for this long.
    case pauseReading(LinkID, Milliseconds)
    /// Deliver or request a sealed notice without a handshake.
    case knock(Knock)

    case notify(Event)
    /// Like ``notify(_:)``, for many messages of one inbox, in their order.
    case notifyMessages(MessageEvents)

    /// Read this sleeping inbox from the disk and pass it to ``NodeStateMachine/wake(_:key:undelivered:_:_:)``.
    case wake(ClientID, WakeReason)
    /// Make the inbox's record durable, call ``NodeStateMachine/fallAsleep(_:_:)``, and release its memory.
    case sleep(ClientID)

    /// Note a member's delivery state of our messages. Written with the next ``setState(_:_:_:)``, or at once for
    /// `read`.
    case setDelivery(ClientID, [MessageID], Delivery)
    /// Keep a chunk beside its message, with the message's expiry.
    case keepChunk(ClientID, AttachmentChunk, expiresAt: Timestamp?, Keeping)
    /// Overwrite all chunks of a file in memory and on the disk.
    case forgetChunks(ClientID, MessageID)
    /// Compare a complete file with its hash and tell the core the result.
    case verifyAttachment(ClientID, MessageID)
    /// Call ``NodeStateMachine/chunksMayGo(on:_:)`` while the link has room for chunks.
    case serveChunks(LinkID)
    case transmitChunk(LinkID, ClientID, MessageID, index: Int)

    /// Send a frame at once: it depends on nothing that is not durable yet.
    case forward(LinkID, Frame)
    /// For a stream that ends at this node, over a link to a rendezvous node. The shell owns the stream's end.
    case relayed(LinkID, RelayAnswer)
    case endpointsMayHaveChanged
    /// Find our candidate addresses for UDP and answer with ``Conversation/gathered(_:for:_:)``.
    case gatherCandidates(ClientID, PublicKey)
    /// Dial over UDP only, while the other side punches with the same nonce.
    case dialPunching(ClientID, Dial, PunchNonce)
    /// Open our own NAT towards these addresses.
    case punch(PunchNonce, [Endpoint])

    /// Seal contents and put them into a member's box; the answer is ``Conversation/mailed(_:_:_:)``.
    case mail(ClientID, MailOrder)
    /// Make and send slice keys of this agreement above the last one that the member knows.
    case makeSlices(ClientID, AgreementID, above: UInt32?, LinkID)
    /// Put these into the reserved slots, with retries. Comes before ``explode(_:_:fanOut:)``, which destroys the keys.
    case mailNotices(ConversationID, [MailNotice])
    /// For the boxes that this node keeps for others.
    case mailbox(MailboxAction)

    package struct AgedMessage: Hashable, Sendable {
        package let id: MessageID
        package let age: Milliseconds
    }

    package enum Keeping: Hashable, Sendable {
        /// In memory until the conversation is closed or the node stops.
        case memory
        /// In memory while the storage is locked, afterwards on the disk with this expiry.
        case untilUnlocked(Lifetime)
        case disk(Lifetime)
    }

    /// The origin of the routing tokens by which an inbox is reached.
    package enum Route: Hashable, Sendable {
        case member(PublicKey)
        /// Any holder of this invite's join secret.
        case invite(InviteID)
        /// Any holder of our contact card.
        case contact
    }

    package struct Dial: Hashable, Sendable {
        package var remote: PublicKey
        package var endpoints: [Endpoint]
        package var route: DialRoute
        /// A relayed link exists; the dial looks for a direct one and reports no failure.
        package var isUpgrade = false
        /// Something waits for the remote, or there is a reason to try now. Goes before dials that only look again.
        package var isUrgent = false
    }

    /// The source of the dial's routing token.
    package enum DialRoute: Hashable, Sendable {
        case member
        case invite(InviteID)
        /// The routing secret of the remote's contact card.
        case contact([UInt8])
    }

    /// A sealed message without a handshake (Explode.md).
    package enum Knock: Hashable, Sendable {
        /// Notify a member of an exploded conversation. The fan-out list has its endpoints and tokens.
        case deliver(ConversationID, PublicKey)
        /// Ask a member that no longer knows our tokens whether the conversation has exploded.
        case ask(ClientID, PublicKey, [Endpoint])
        /// Ask the creator of an invite whose token it no longer knows.
        case askByInvite(ClientID, InviteID, [Endpoint])
        /// Send our receipt to the creator's tombstone, once. If that fails, the creator knocks for it.
        case report(ConversationID, [Endpoint])
    }
}

extension NodeAction {
    var isExplosion: Bool { if case .explode = self { true } else { false } }

    func concerns(_ link: LinkID) -> Bool {
        switch self {
        case .transmit(link, _), .forward(link, _), .close(link), .pauseReading(link, _), .transmitMessages(link, _, _):
            true
        default: false
        }
    }
}

/// One ``Event`` for each of several messages of an inbox: the same change at the same time.
package struct MessageEvents: Hashable, Sendable {
    package let client: ClientID
    package let conversation: ConversationID
    package let at: Timestamp
    package let messages: [MessageID]
    package let happening: Happening

    package enum Happening: Hashable, Sendable {
        case came
        case state(DeliveryState, stored: Bool?)
        case delivery(PublicKey, DeliveryState)
    }

    package var events: some Sequence<Event> {
        messages.lazy.map { id in
            let kind: Event.Kind =
                switch happening {
                case .came: .message(id)
                case .state(let state, let isStored): .messageState(id, state, stored: isStored)
                case .delivery(let member, let state): .messageDelivery(id, member, state)
                }
            return Event(client: client, conversation: conversation, at: at, kind: kind)
        }
    }
}

/// A notification for clients. It holds no text: the archive is read when the event is shown, so an expired message
/// leaves no copy here.
package struct Event: Hashable, Sendable {
    package var client: ClientID?
    package var conversation: ConversationID?
    package var at: Timestamp
    package var kind: Kind

    package init(client: ClientID?, conversation: ConversationID?, at: Timestamp, kind: Kind) {
        (self.client, self.conversation, self.at, self.kind) = (client, conversation, at, kind)
    }

    package enum Kind: Hashable, Sendable {
        case message(MessageID)
        case messageState(MessageID, DeliveryState, stored: Bool?)
        case messageExpired(MessageID)
        case lifetimeProposed(LifetimeTerms, ours: Bool, ProposalID)
        case lifetimeSigned(ProposalID, by: PublicKey)
        case lifetimeAgreed(LifetimeTerms, AgreementID, automatic: Bool)
        case lifetimeRejected(ProposalID, LifetimeRejectReason)
        case lifetimeWithdrawn(ProposalID)
        case lifetimeExpired(ProposalID)
        case lifetimeReset(previous: Lifetime)
        case memberJoined(PublicKey, profile: String?)
        case memberLeft(PublicKey)
        case joinRequested(PublicKey)
        case joined
        case joinFailed(JoinErrorType, InviteTag)
        /// The user must agree to what the conversation keeps.
        case joinValidated
        case invited(MessageID, from: PublicKey)
        case exploded
        case deletionReceipt(PublicKey)
        /// All copies are destroyed at this time.
        case explosionScheduled(Timestamp)
        /// The explosion is near; sent once.
        case explosionReminder(Timestamp)
        case peerOnline(PublicKey)
        case peerOffline(PublicKey)
        case locked
        case unlocked
        /// With more than two members: one member's delivery state of our message.
        case messageDelivery(MessageID, PublicKey, DeliveryState)
        /// Chunks received from, or sent to, this member.
        case attachmentProgress(MessageID, PublicKey, count: Int, of: Int)
        case conversationUpdated(name: String?, isLocked: Bool)
        /// The creator has signed two different states of one version. All members adopt the same one.
        case groupConflict(version: UInt64)
        case memberRemoved(PublicKey)
        case removed
        case profileChanged(PublicKey, profile: String?)
        /// Messages of this member that were lost for good.
        case messagesMissed(PublicKey, count: UInt64)
        /// Two copies of one home run at once: this member's home, or, as the member reports, ours.
        case twoCopies(PublicKey, ours: Bool)
        case inboxAwake(WakeReason)
        case inboxAsleep
        /// A new member has not signed yet; messages are ephemeral until then.
        case lifetimeSuspended(previous: Lifetime)
        /// A spoken code was used or has expired.
        case codeEnded(OpenCodes.Number, CodeOutcome)
    }
}
