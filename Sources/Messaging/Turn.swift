import Cryptography

/// What the core asks of the node during a turn.
package protocol Surroundings: AnyObject {
    /// Whether the archive has, or had in this session, a message of this inbox.
    func isKnown(_ message: MessageID, _ client: ClientID) -> Bool
    /// A readable message.
    func message(_ message: MessageID, _ client: ClientID) -> Message?
    /// The members' delivery states of our message.
    func deliveries(of message: MessageID, _ client: ClientID) -> [Delivery]
    func isStored(_ message: MessageID, _ client: ClientID) -> Bool
    /// Whether a message is in memory until it can be written. It is not acknowledged before.
    func awaitsStorage(_ message: MessageID, _ client: ClientID) -> Bool
    /// Whether a member's content was shown since the start, even if it has expired. A file counts when it is complete.
    func wasShown(_ message: MessageID, _ client: ClientID) -> Bool
    /// Whether reading has shortened a member's content, even if it has expired.
    func wasRead(_ message: MessageID, _ client: ClientID) -> Bool
    func hasChunk(_ index: Int, of message: MessageID, _ client: ClientID) -> Bool
    /// Whether disk and index have room for another content of a peer in this inbox.
    func hasRoom(_ client: ClientID) -> Bool
    func hasRoom(for byteCount: Int64, _ client: ClientID) -> Bool
    /// Bytes that files may still take in memory.
    var memoryAvailable: Int64 { get }
    /// Whether this contact inbox is a named peer's.
    func isNamedPeer(_ key: PublicKey) -> Bool
    /// A hash of the address prefix of a link's other side; `nil` if it has none.
    func source(of link: LinkID) -> UInt64?
    /// The slots of a box at this node; `nil` when the disk cannot be read.
    func keptSlots(of box: BoxID) -> KeptSlots?
    /// The identity key of a sleeping inbox; `nil` while the storage is locked.
    func sleeperKey(_ client: ClientID) -> IdentityKey?
}

/// One turn of the core: its inputs, such as time, random numbers and the shell's state, and its effects.
package struct Turn {
    /// The effects that the shell performs, in this order, when the turn ends.
    package internal(set) var actions: [NodeAction] = []
    /// The node's own wall clock; never goes back (Store.md, "clock").
    package let now: Timestamp
    /// Advances with each use, so that a seeded run replays.
    package var random: Randomness
    /// This node's direct endpoints, as advertised.
    package let endpoints: [Endpoint]
    package var relayPlaces: [RelayPlace] = []
    /// The storage is locked: nothing can be made durable.
    package let isLocked: Bool
    /// Our answer to proposals, unless a conversation has its own.
    package var defaultPolicy = LifetimePolicy.ask
    /// How long a link may be missing before the session ends.
    package var sessionGrace = Limits.sessionGrace
    /// Our cap on lifetimes, unless a conversation has its own.
    package var defaultCap = LifetimeCap.none
    package var mailbox: MailboxPlace?
    /// The largest file that this node takes or sends.
    package var attachmentByteCount = Limits.attachmentByteCount
    /// Whether to send read receipts, unless a conversation has its own setting.
    package var sendsReadReceipts = false
    /// When this run of the node began, by the system's clock: ``SlotRun``.
    package var startedAt = Timestamp(milliseconds: 0)

    /// Answers what the core asks during the turn.
    package let node: any Surroundings

    package init(
        now: Timestamp, random: Randomness, endpoints: [Endpoint] = [], isLocked: Bool = false, node: any Surroundings
    ) {
        (self.now, self.random, self.endpoints, self.isLocked) = (now, random, endpoints, isLocked)
        self.node = node
    }

    package mutating func add(_ action: NodeAction) {
        // One block of memory for most turns.
        if actions.isEmpty { actions.reserveCapacity(8) }
        actions.append(action)
    }

    package mutating func add(_ more: [NodeAction]) { actions += more }

    mutating func save(_ client: ClientID) { add(.save(client)) }

    mutating func send(_ frame: Frame, on link: LinkID) { add(.transmit(link, frame)) }

    mutating func close(_ link: LinkID) { add(.close(link)) }

    mutating func tell(_ kind: Event.Kind, _ client: ClientID?, _ conversation: ConversationID?) {
        add(.notify(Event(client: client, conversation: conversation, at: now, kind: kind)))
    }

    var mark: Int { actions.count }

    /// Whether the effects since `mark` are those of a no-op frame: dropped, answered to its sender only, or its link
    /// closed.
    func isIdle(since mark: Int, on link: LinkID) -> Bool {
        actions[mark...].allSatisfy { action in
            switch action {
            case .transmit(link, _), .forward(link, _), .close(link): true
            default: false
            }
        }
    }

    /// Runs `body` and takes its effects out of the turn, for a caller that adds them later or drops them.
    package mutating func apart(_ body: (inout Turn) -> Void) -> [NodeAction] {
        let mark = mark
        body(&self)
        defer { actions.removeSubrange(mark...) }
        return Array(actions[mark...])
    }

    /// An inbox's direct endpoints and, last, its endpoints at rendezvous nodes.
    package func endpoints(of seed: RelaySeed, atMost count: Int = Limits.endpointCount) -> [Endpoint] {
        let relayed = relayPlaces.endpoints(of: seed)
        return endpoints.prefix(count - relayed.count) + relayed
    }

    /// As many as fit into a profile.
    package func fittingEndpoints(of seed: RelaySeed) -> [Endpoint] { Member.fitting(endpoints(of: seed)) }

    /// As a profile has them, with the inbox's box if all members have agreed to a mailbox.
    func endpointTexts(of seed: RelaySeed, usesMailbox: Bool) -> [String] {
        Member.texts(fittingEndpoints(of: seed), usesMailbox ? mailbox?.address(of: seed) : nil)
    }
}
