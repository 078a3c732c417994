import Cryptography

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
    /// Whether the archive has, or had in this session, a message of this inbox.
    package var isKnown: (ClientID, MessageID) -> Bool = { _, _ in false }
    /// Whether disk and index have room for another content of a peer in this inbox.
    package var hasRoom: (ClientID) -> Bool = { _ in true }
    /// Whether this contact inbox is a named peer's.
    package var isNamedPeer: (PublicKey) -> Bool = { _ in false }
    package var contents = ContentLookup()
    /// Our cap on lifetimes, unless a conversation has its own.
    package var defaultCap = LifetimeCap.none
    /// A hash of the address prefix of a link's other side; `nil` if it has none.
    package var sourceOf: (LinkID) -> UInt64? = { _ in nil }
    package var mailbox: MailboxPlace?
    /// The slots of a box at this node; `nil` when the disk cannot be read.
    package var keptSlots: (BoxID) -> KeptSlots? = { _ in KeptSlots([]) }
    /// When this run of the node began, by the system's clock: ``SlotRun``.
    package var startedAt = Timestamp(milliseconds: 0)
    /// The identity key of a sleeping inbox; `nil` while the storage is locked.
    package var sleeperKey: (ClientID) -> IdentityKey? = { _ in nil }

    package init(now: Timestamp, random: Randomness, endpoints: [Endpoint] = [], isLocked: Bool = false) {
        (self.now, self.random, self.endpoints, self.isLocked) = (now, random, endpoints, isLocked)
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

package struct ContentLookup {
    /// A readable message.
    package var message: (ClientID, MessageID) -> Message? = { _, _ in nil }
    /// The members' delivery states of our message; `nil`: read them from the message.
    package var said: ((ClientID, MessageID) -> [Delivery])?
    package var isStored: (ClientID, MessageID) -> Bool = { _, _ in false }
    /// Whether a message is in memory until it can be written. It is not acknowledged before.
    package var awaitsStorage: (ClientID, MessageID) -> Bool = { _, _ in false }
    /// Whether a member's content was shown, or is being received, since the start, even if it has expired. A file
    /// counts when it is complete.
    package var wasShown: (ClientID, MessageID) -> Bool = { _, _ in false }
    package var hasChunk: (ClientID, MessageID, Int) -> Bool = { _, _, _ in false }
    package var hasRoom: (ClientID, Int64) -> Bool = { _, _ in true }
    /// Bytes that files may still take in memory.
    package var memoryAvailable: () -> Int64 = { Limits.attachmentMemoryTotalByteCount }
    package var attachmentByteCount = Limits.attachmentByteCount
    /// Whether to send read receipts, unless a conversation has its own setting.
    package var sendsReadReceipts = false

    package init() {}

    package func deliveries(_ client: ClientID, _ id: MessageID) -> [Delivery] {
        said?(client, id) ?? message(client, id)?.deliveries ?? []
    }
}
