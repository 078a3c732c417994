import Primitives

/// What one turn of the core is given from outside: the time, random numbers, and what the shell knows.
package struct Turn {
    /// The node's own wall clock; never goes back (section 9).
    package let now: Timestamp
    /// Advances with each use, so that a seeded run replays.
    package var random: Randomness
    /// Where this node can be reached, as it tells others.
    package let endpoints: [Endpoint]
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
    /// Our bound on what is kept, where a conversation has none of its own.
    package let defaultCap: LifetimeCap

    package init(
        now: Timestamp,
        random: Randomness,
        endpoints: [Endpoint],
        isLocked: Bool,
        defaultPolicy: LifetimePolicy,
        sessionGrace: Milliseconds,
        isKnown: @escaping (ClientID, MessageID) -> Bool,
        hasRoom: @escaping (ClientID) -> Bool = { _ in true },
        isNamedPeer: @escaping (PublicKey) -> Bool = { _ in false },
        defaultCap: LifetimeCap = .none
    ) {
        self.now = now
        self.random = random
        self.endpoints = endpoints
        self.isLocked = isLocked
        self.defaultPolicy = defaultPolicy
        self.sessionGrace = sessionGrace
        self.isKnown = isKnown
        self.hasRoom = hasRoom
        self.isNamedPeer = isNamedPeer
        self.defaultCap = defaultCap
    }
}
