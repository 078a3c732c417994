import Crypto

/// What the shell does for the core. Actions are performed in order; what leaves the node (`transmit…`, `notify`) waits
/// until everything before it is durable.
package enum NodeAction: Hashable, Sendable {
    // MARK: Storage

    /// Make the inbox's record durable as it is now.
    case save(ClientID)
    /// Keep these messages, in this order.
    case keep(ClientID, [Message], Keeping)
    case setState(ClientID, [MessageID], DeliveryState)
    /// Forget what is in memory only.
    case forgetMemory(ClientID)
    /// Keys first: write the tombstone, destroy the inbox's keys, then remove its files.
    case explode(ClientID, ExplodeStateMachine.Record, fanOut: [Member])
    /// Destroy the inbox's keys and remove its files; no tombstone (a join that failed, a member that leaves).
    case destroy(ClientID)
    case saveTombstone(ConversationID)
    case removeTombstone(ConversationID)
    /// An explosion is scheduled for the record's ``ExplodeStateMachine/Record/explodedAt``: prepare its tombstone and
    /// the list of whom to tell, and let the store destroy the inbox's keys at that time, whoever is running then.
    case armExplosion(ClientID, ExplodeStateMachine.Record, fanOut: [Member])

    /// A message has been read: its expiry is another one now, and reading it again changes nothing.
    case reschedule(ClientID, MessageID, expiresAt: Timestamp)
    /// Overwrite everything of our own that names this agreement: it was taken back.
    case eraseSent(ClientID, AgreementID)

    // MARK: Links

    case register(ClientID, Route)
    case unregister(ClientID, Route)
    case dial(ClientID, Dial)
    case transmit(LinkID, Frame)
    /// Send messages from the archive, in this order and in as few frames as they fit into.
    case transmitMessages(LinkID, ClientID, [AgedMessage])
    case close(LinkID)
    /// Its sender is too fast: read nothing from it for so long.
    case pauseReading(LinkID, Milliseconds)
    /// Deliver a sealed notice, or ask for one, without a handshake.
    case knock(Knock)

    // MARK: Watchers

    case notify(Event)
    /// The same of many messages of one inbox, in their order.
    case notifyMessages(MessageEvents)

    // MARK: Inboxes

    /// Read this sleeping inbox from the disk and hand it to ``NodeStateMachine/wake(_:key:undelivered:_:_:)``.
    case wake(ClientID, WakeReason)
    /// Make the inbox's record durable, call ``NodeStateMachine/fallAsleep(_:_:)``, and let go of what is in memory.
    case sleep(ClientID)

    // MARK: Contents

    /// Note what a member has said of messages of ours. Written with the next ``setState(_:_:_:)``, or at once when they
    /// were read.
    case setDelivery(ClientID, [MessageID], Delivery)
    /// Keep a chunk of a file beside its message, with the message's expiry.
    case keepChunk(ClientID, AttachmentChunk, expiresAt: Timestamp?, Keeping)
    /// Overwrite all chunks of a file wherever they are.
    case forgetChunks(ClientID, MessageID)
    /// Compare the chunks of a file, which are all here, with its hash, and tell the core.
    case verifyAttachment(ClientID, MessageID)
    /// There are chunks to send: call ``NodeStateMachine/chunksMayGo(on:_:)`` while the link takes them.
    case serveChunks(LinkID)
    /// Send a chunk from the archive.
    case transmitChunk(LinkID, ClientID, MessageID, index: Int)

    // MARK: Relay

    /// Send at once a frame that says nothing of what is on the disk.
    case forward(LinkID, Frame)
    /// Of a stream that ends here, over a link to a rendezvous node: its end is the shell's.
    case relayed(LinkID, RelayAnswer)
    /// Where this node can be reached may have changed.
    case endpointsMayHaveChanged
    /// Find out where this node may be seen over UDP, and say so with ``NodeStateMachine/gathered(_:_:_:_:)``.
    case gatherCandidates(ClientID, PublicKey)
    /// Dial over UDP alone, while the other side punches with the same nonce.
    case dialPunching(ClientID, Dial, PunchNonce)
    /// Make a way through our own NAT to these addresses.
    case punch(PunchNonce, [Endpoint])

    // MARK: Mailboxes

    /// Seal contents and put them into a member's box; the answer is ``NodeStateMachine/mailed(_:_:client:_:)``.
    case mail(ClientID, MailOrder)
    /// Make keys of slices under this agreement, of those above the last that is known there, and send them.
    case makeSlices(ClientID, AgreementID, above: UInt32?, LinkID)
    /// Put these into the reserved slots, until they are there; before ``explode(_:_:fanOut:)``, with which the keys go.
    case mailNotices(ConversationID, [MailNotice])
    /// Of the boxes that this node keeps for others.
    case mailbox(MailboxAction)

    /// A message to be sent, and its age at transmission.
    package struct AgedMessage: Hashable, Sendable {
        package let id: MessageID
        package let age: Milliseconds

        package init(id: MessageID, age: Milliseconds) {
            self.id = id
            self.age = age
        }
    }

    /// Where a message is kept.
    package enum Keeping: Hashable, Sendable {
        /// In memory until the conversation is closed or the node stops.
        case memory
        /// In memory while the storage is locked, on the disk with its own expiry afterwards.
        case untilUnlocked(Lifetime)
        case disk(Lifetime)
    }

    /// By which tokens an inbox can be reached.
    package enum Route: Hashable, Sendable {
        /// A member of the conversation.
        case member(PublicKey)
        /// Whoever holds this invite's join secret.
        case invite(InviteID)
        /// Whoever holds our contact card.
        case contact
    }

    /// Whom to dial, where, and by which tokens.
    package struct Dial: Hashable, Sendable {
        package var remote: PublicKey
        package var endpoints: [Endpoint]
        package var route: DialRoute
        /// There is a relayed link: a direct one is looked for, and nobody needs to hear that there is none.
        package var isUpgrade = false
        /// There is something for the remote, or a reason to try now: it goes before the dials that only look again.
        package var isUrgent = false
    }

    /// From what the routing token of a dial is derived.
    package enum DialRoute: Hashable, Sendable {
        case member
        case invite(InviteID)
        /// The routing secret of the remote's contact card.
        case contact([UInt8])
    }

    /// A sealed message without a handshake (Explode.md).
    package enum Knock: Hashable, Sendable {
        /// Tell a member of an exploded conversation; the shell has its endpoints and tokens in the fan-out list.
        case deliver(ConversationID, PublicKey)
        /// Ask a member that does not know our tokens any more whether the conversation is gone.
        case ask(ClientID, PublicKey, [Endpoint])
        /// Ask the creator of an invite that does not know its token any more.
        case askByInvite(ClientID, InviteID, [Endpoint])
        /// Bring our receipt to the creator's tombstone, once; it comes for it otherwise.
        case report(ConversationID, [Endpoint])
    }
}

extension NodeAction {
    /// Whether it says or does something on this link.
    func concerns(_ link: LinkID) -> Bool {
        switch self {
        case .transmit(link, _), .forward(link, _), .close(link), .pauseReading(link, _), .transmitMessages(link, _, _):
            true
        default: false
        }
    }
}

/// What watchers are told of messages of one inbox to which the same has happened at the same time: an ``Event`` each.
package struct MessageEvents: Hashable, Sendable {
    package let client: ClientID
    package let conversation: ConversationID
    /// By our clock.
    package let at: Timestamp
    package let messages: [MessageID]
    package let happening: Happening

    /// What has happened to each of them.
    package enum Happening: Hashable, Sendable {
        /// ``Event/Kind/message(_:)``.
        case came
        /// ``Event/Kind/messageState(_:_:stored:)``.
        case state(DeliveryState, stored: Bool?)
        /// ``Event/Kind/messageDelivery(_:_:_:)``.
        case delivery(PublicKey, DeliveryState)
    }

    /// In the order of the messages.
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

/// What watchers are told. Texts are not in it: they are read from the archive when the event is shown, so an expired
/// message leaves no copy here.
package struct Event: Hashable, Sendable {
    package var client: ClientID?
    package var conversation: ConversationID?
    /// By our clock.
    package var at: Timestamp
    package var kind: Kind

    package init(client: ClientID?, conversation: ConversationID?, at: Timestamp, kind: Kind) {
        self.client = client
        self.conversation = conversation
        self.at = at
        self.kind = kind
    }

    /// What has happened.
    package enum Kind: Hashable, Sendable {
        case message(MessageID)
        case messageState(MessageID, DeliveryState, stored: Bool?)
        case messageExpired(MessageID)
        case lifetimeProposed(LifetimeTerms, ours: Bool, ProposalID)
        /// Others have yet to sign.
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
        case invited(MessageID, from: PublicKey)
        case exploded
        case deletionReceipt(PublicKey)
        /// Everybody's copy ends at this time.
        case explosionScheduled(Timestamp)
        /// It is about to: said once.
        case explosionReminder(Timestamp)
        case peerOnline(PublicKey)
        case peerOffline(PublicKey)
        case locked
        case unlocked
        /// In a conversation of more than two: what one member has said of our message.
        case messageDelivery(MessageID, PublicKey, DeliveryState)
        /// Chunks of a file that have come from this member, or were sent to it.
        case attachmentProgress(MessageID, PublicKey, count: Int, of: Int)
        /// Name or lock state.
        case conversationUpdated(name: String?, isLocked: Bool)
        /// The creator has signed two different states of one version. All members take the same one of them.
        case groupConflict(version: UInt64)
        /// The creator has removed a member.
        case memberRemoved(PublicKey)
        /// The creator has removed us.
        case removed
        case profileChanged(PublicKey, profile: String?)
        /// A member's messages that never reached us, and never will.
        case messagesMissed(PublicKey, count: UInt64)
        /// Two copies of one home run at once: this member's, or, as it reports, ours.
        case twoCopies(PublicKey, ours: Bool)
        case inboxAwake(WakeReason)
        case inboxAsleep
        /// Somebody has joined and has yet to sign: ephemeral until then.
        case lifetimeSuspended(previous: Lifetime)
        /// A code to say aloud is spent, or its time is over.
        case codeEnded(slot: UInt16, CodeOutcome)
    }
}
