import Crypto

/// What one turn of the core is given from outside: the time, random numbers, and what the shell knows.
package struct Turn {
    /// The node's own wall clock; never goes back (Store.md, "clock").
    package let now: Timestamp
    /// Advances with each use, so that a seeded run replays.
    package var random: Randomness
    /// Where this node can be reached directly, as it tells others.
    package let endpoints: [Endpoint]
    /// The rendezvous nodes through which it can be reached.
    package let relayPlaces: [RelayPlace]
    /// The storage is locked: nothing can be made durable.
    package let isLocked: Bool
    /// Our answer to proposals where a conversation has none of its own.
    package let defaultPolicy: LifetimePolicy
    /// How long a link may be away before the session ends.
    package let sessionGrace: Milliseconds
    /// Whether the archive has, or had in this session, a message of this inbox.
    package let isKnown: (ClientID, MessageID) -> Bool
    /// Whether another content of a peer may be stored in this inbox: there is room on the disk and in the index.
    package let hasRoom: (ClientID) -> Bool
    /// Whether a contact inbox is that of a named peer.
    package let isNamedPeer: (PublicKey) -> Bool
    /// What contents need to know of the archive and of the configuration.
    package let contents: ContentLookup
    /// Our bound on what is kept, where a conversation has none of its own.
    package let defaultCap: LifetimeCap
    /// Stands for the address prefix of a link's other side; `nil` if it has none.
    package let sourceOf: (LinkID) -> UInt64?
    /// Our mailbox; `nil` without one.
    package let mailbox: MailboxPlace?
    /// What is kept in a box of this node's; `nil` when the disk does not say.
    package let keptSlots: (BoxID) -> KeptSlots?
    /// When this run of the node began, by the system's clock: ``SlotRun``.
    package let startedAt: Timestamp
    /// The identity key of an inbox that sleeps; `nil` while the storage is locked.
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

    /// Where one inbox can be reached: those ways last that go through rendezvous nodes, which are its own.
    package func endpoints(of seed: RelaySeed, atMost count: Int = Limits.endpointCount) -> [Endpoint] {
        let relayed = relayPlaces.endpoints(of: seed)
        return endpoints.prefix(count - relayed.count) + relayed
    }

    /// As many of them as a description may hold.
    package func fittingEndpoints(of seed: RelaySeed) -> [Endpoint] { Member.fitting(endpoints(of: seed)) }

    /// As a description names them, and the inbox's box if all members have agreed to a mailbox.
    func endpointTexts(of seed: RelaySeed, usesMailbox: Bool) -> [String] {
        Member.texts(fittingEndpoints(of: seed), usesMailbox ? mailbox?.address(of: seed) : nil)
    }
}

/// What a turn may look up about contents.
package struct ContentLookup {
    /// A message that can be read now.
    package var message: (ClientID, MessageID) -> Message?
    /// What members have said of a message of ours; asked of the message where it is `nil`.
    private var said: ((ClientID, MessageID) -> [Delivery])?
    /// Whether a message is on the disk.
    package var isStored: (ClientID, MessageID) -> Bool
    /// Whether a message waits in memory for the disk: until it is there it is not acknowledged.
    package var awaitsStorage: (ClientID, MessageID) -> Bool
    /// Whether a content of a member was shown or is being taken since the start, though it may be gone by now; a file
    /// counts when it is whole.
    package var wasShown: (ClientID, MessageID) -> Bool
    /// Whether the archive has a chunk of a file.
    package var hasChunk: (ClientID, MessageID, Int) -> Bool
    /// Whether a file of so many bytes may be stored in this inbox.
    package var hasRoom: (ClientID, Int64) -> Bool
    /// Bytes that files may still take in memory.
    package var memoryAvailable: () -> Int64
    /// Largest file that is sent or taken, in bytes.
    package var attachmentByteCount: Int64
    /// Whether to say that messages were read, where a conversation has no setting of its own.
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
