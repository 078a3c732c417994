import Crypto

/// The inputs of one turn of the core: time, random numbers, and the shell's state.
package struct Turn {
    /// The node's own wall clock; never goes back (Store.md, "clock").
    package let now: Timestamp
    /// Advances with each use, so that a seeded run replays.
    package var random: Randomness
    /// This node's direct endpoints, as advertised.
    package let endpoints: [Endpoint]
    package let relayPlaces: [RelayPlace]
    /// The storage is locked: nothing can be made durable.
    package let isLocked: Bool
    /// Our answer to proposals, unless a conversation has its own.
    package let defaultPolicy: LifetimePolicy
    /// How long a link may be missing before the session ends.
    package let sessionGrace: Milliseconds
    /// Whether the archive has, or had in this session, a message of this inbox.
    package let isKnown: (ClientID, MessageID) -> Bool
    /// Whether disk and index have room for another content of a peer in this inbox.
    package let hasRoom: (ClientID) -> Bool
    /// Whether this contact inbox is a named peer's.
    package let isNamedPeer: (PublicKey) -> Bool
    package let contents: ContentLookup
    /// Our cap on lifetimes, unless a conversation has its own.
    package let defaultCap: LifetimeCap
    /// A hash of the address prefix of a link's other side; `nil` if it has none.
    package let sourceOf: (LinkID) -> UInt64?
    package let mailbox: MailboxPlace?
    /// The slots of a box at this node; `nil` when the disk cannot be read.
    package let keptSlots: (BoxID) -> KeptSlots?
    /// When this run of the node began, by the system's clock: ``SlotRun``.
    package let startedAt: Timestamp
    /// The identity key of a sleeping inbox; `nil` while the storage is locked.
    package let sleeperKey: (ClientID) -> IdentityKey?

    package init(
        now: Timestamp, random: Randomness, endpoints: [Endpoint], relayPlaces: [RelayPlace] = [], isLocked: Bool,
        defaultPolicy: LifetimePolicy, sessionGrace: Milliseconds, isKnown: @escaping (ClientID, MessageID) -> Bool,
        hasRoom: @escaping (ClientID) -> Bool = { _ in true },
        isNamedPeer: @escaping (PublicKey) -> Bool = { _ in false }, contents: ContentLookup = ContentLookup(),
        defaultCap: LifetimeCap = .none, sourceOf: @escaping (LinkID) -> UInt64? = { _ in nil },
        mailbox: MailboxPlace? = nil, keptSlots: @escaping (BoxID) -> KeptSlots? = { _ in KeptSlots([]) },
        startedAt: Timestamp = Timestamp(milliseconds: 0),
        sleeperKey: @escaping (ClientID) -> IdentityKey? = { _ in nil }
    ) {
        self.now = now
        self.random = random
        self.endpoints = endpoints
        self.relayPlaces = relayPlaces
        self.isLocked = isLocked
        self.defaultPolicy = defaultPolicy
        self.sessionGrace = sessionGrace
        self.isKnown = isKnown
        self.hasRoom = hasRoom
        self.isNamedPeer = isNamedPeer
        self.contents = contents
        self.defaultCap = defaultCap
        self.sourceOf = sourceOf
        self.mailbox = mailbox
        self.keptSlots = keptSlots
        self.startedAt = startedAt
        self.sleeperKey = sleeperKey
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
    package var message: (ClientID, MessageID) -> Message?
    /// The members' delivery states of our message; `nil`: read them from the message.
    private var said: ((ClientID, MessageID) -> [Delivery])?
    package var isStored: (ClientID, MessageID) -> Bool
    /// Whether a message is in memory until it can be written. It is not acknowledged before.
    package var awaitsStorage: (ClientID, MessageID) -> Bool
    /// Whether a member's content was shown, or is being received, since the start, even if it has expired. A file
    /// counts when it is complete.
    package var wasShown: (ClientID, MessageID) -> Bool
    package var hasChunk: (ClientID, MessageID, Int) -> Bool
    package var hasRoom: (ClientID, Int64) -> Bool
    /// Bytes that files may still take in memory.
    package var memoryAvailable: () -> Int64
    package var attachmentByteCount: Int64
    /// Whether to send read receipts, unless a conversation has its own setting.
    package var sendsReadReceipts: Bool

    package init(
        message: @escaping (ClientID, MessageID) -> Message? = { _, _ in nil },
        deliveries: ((ClientID, MessageID) -> [Delivery])? = nil,
        isStored: @escaping (ClientID, MessageID) -> Bool = { _, _ in false },
        hasChunk: @escaping (ClientID, MessageID, Int) -> Bool = { _, _, _ in false },
        hasRoom: @escaping (ClientID, Int64) -> Bool = { _, _ in true },
        memoryAvailable: @escaping () -> Int64 = { Limits.attachmentMemoryTotalByteCount },
        attachmentByteCount: Int64 = Limits.attachmentByteCount, sendsReadReceipts: Bool = false,
        awaitsStorage: @escaping (ClientID, MessageID) -> Bool = { _, _ in false },
        wasShown: @escaping (ClientID, MessageID) -> Bool = { _, _ in false }
    ) {
        said = deliveries
        self.wasShown = wasShown
        self.awaitsStorage = awaitsStorage
        self.message = message
        self.isStored = isStored
        self.hasChunk = hasChunk
        self.hasRoom = hasRoom
        self.memoryAvailable = memoryAvailable
        self.attachmentByteCount = attachmentByteCount
        self.sendsReadReceipts = sendsReadReceipts
    }

    package func deliveries(_ client: ClientID, _ id: MessageID) -> [Delivery] {
        said?(client, id) ?? message(client, id)?.deliveries ?? []
    }
}
