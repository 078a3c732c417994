/// The node as a whole.
package enum NodeMethods {
    package static let all: [any ControlMethod.Type] = [
        StatusMethod.self, StopMethod.self, LockMethod.self, UnlockMethod.self, ReapMethod.self, VersionMethod.self,
        SchemaMethod.self, NetcheckMethod.self, ConfigReloadMethod.self, MetricsMethod.self,
    ]
}

/// How many inboxes are in which state.
package struct InboxCounts: JSONRecord, Hashable, Sendable {
    package var awake: Int = 0
    package var sleeping: Int = 0
    package var unused: Int = 0
    /// What unread contents that are in memory only take, and may take in all; what is beyond it stays with its senders.
    package var unreadBytes: Int = 0
    package var unreadBytesMaximum: Int = 0

    package init(awake: Int, sleeping: Int, unused: Int, unreadBytes: Int, unreadBytesMaximum: Int) {
        self.awake = awake
        self.sleeping = sleeping
        self.unused = unused
        self.unreadBytes = unreadBytes
        self.unreadBytesMaximum = unreadBytesMaximum
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("awake", &awake)
        try fields.field("sleeping", &sleeping)
        try fields.field("unused", &unused)
        try fields.field("unreadBytes", &unreadBytes)
        try fields.field("unreadBytesMaximum", &unreadBytesMaximum)
    }
}

/// How a check of `doctor` came out.
package enum CheckState: String, JSONChoice, Hashable, Sendable {
    case ok
    case warning
    case failed
}

/// One line of `doctor`.
package struct HealthCheck: JSONRecord, Hashable, Sendable {
    /// What was looked at: `clock`, `listen`, `erasure`…
    package var name = ""
    package var state: CheckState = .ok
    /// What was found, in one phrase.
    package var message = ""
    /// What to do about it.
    package var hint: String?

    package init(name: String, state: CheckState, message: String, hint: String? = nil) {
        self.name = name
        self.state = state
        self.message = message
        self.hint = hint
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("name", &name)
        try fields.field("state", &state)
        try fields.field("message", &message)
        try fields.field("hint", &hint)
    }
}

/// The programs that are started when something happens.
package struct HookCounts: JSONRecord, Hashable, Sendable {
    /// Started and not ended.
    package var running: Int = 0
    /// Waiting to be started.
    package var queued: Int = 0
    /// Ended with exit code 0.
    package var done: Int = 0
    /// Ended otherwise, killed after their time, or not started at all.
    package var failed: Int = 0
    /// Not started because too many were waiting.
    package var dropped: Int = 0

    package init(running: Int, queued: Int, done: Int, failed: Int, dropped: Int) {
        self.running = running
        self.queued = queued
        self.done = done
        self.failed = failed
        self.dropped = dropped
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("running", &running)
        try fields.field("queued", &queued)
        try fields.field("done", &done)
        try fields.field("failed", &failed)
        try fields.field("dropped", &dropped)
    }
}

/// What a rendezvous node does for others, and what it may do at most.
package struct RendezvousCounts: JSONRecord, Hashable, Sendable {
    /// Nodes that others reach through this one, now.
    package var users: Int = 0
    package var usersMax: Int = 0
    /// Inboxes of theirs, now, and of one of them at most.
    package var reservations: Int = 0
    package var reservationsPerUser: Int = 0
    /// Streams that are passed on, now.
    package var streams: Int = 0
    package var streamsMax: Int = 0
    package var streamsPerUser: Int = 0
    package var streamsPerReservation: Int = 0
    /// In one direction of a stream, and of all.
    package var bytesPerSecond: Int = 0
    package var bytesPerSecondTotal: Int = 0
    /// Since the start: streams that were opened, and bytes that were passed on.
    package var opened: Int64 = 0
    package var bytes: Int64 = 0
    /// Since the start: requests that were refused, and streams that were ended for what one end sent.
    package var refused: Int64 = 0
    package var violations: Int64 = 0
    /// Whether everybody who holds the card is served, not only named peers.
    package var everybody = false

    package init(
        users: Int, usersMax: Int, reservations: Int, reservationsPerUser: Int, streams: Int, streamsMax: Int,
        streamsPerUser: Int, streamsPerReservation: Int, bytesPerSecond: Int, bytesPerSecondTotal: Int, opened: Int64,
        bytes: Int64, refused: Int64, violations: Int64, everybody: Bool
    ) {
        self.users = users
        self.usersMax = usersMax
        self.reservations = reservations
        self.reservationsPerUser = reservationsPerUser
        self.streams = streams
        self.streamsMax = streamsMax
        self.streamsPerUser = streamsPerUser
        self.streamsPerReservation = streamsPerReservation
        self.bytesPerSecond = bytesPerSecond
        self.bytesPerSecondTotal = bytesPerSecondTotal
        self.opened = opened
        self.bytes = bytes
        self.refused = refused
        self.violations = violations
        self.everybody = everybody
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("users", &users)
        try fields.field("usersMax", &usersMax)
        try fields.field("reservations", &reservations)
        try fields.field("reservationsPerUser", &reservationsPerUser)
        try fields.field("streams", &streams)
        try fields.field("streamsMax", &streamsMax)
        try fields.field("streamsPerUser", &streamsPerUser)
        try fields.field("streamsPerReservation", &streamsPerReservation)
        try fields.field("bytesPerSecond", &bytesPerSecond)
        try fields.field("bytesPerSecondTotal", &bytesPerSecondTotal)
        try fields.field("opened", &opened)
        try fields.field("bytes", &bytes)
        try fields.field("refused", &refused)
        try fields.field("violations", &violations)
        try fields.field("everybody", &everybody)
    }
}

/// How a port mapping stands.
package enum PortMappingStanding: String, JSONChoice, Hashable, Sendable {
    /// Others get in.
    case mapped
    /// The gateway is being asked.
    case asking
    /// There is none; `reason` says why. It is tried again.
    case failed
    /// In `netcheck` alone: the gateway has made one, and it was removed at once.
    case possible
}

/// A port mapping, or why there is none.
package struct PortMappingStatus: JSONRecord, Hashable, Sendable {
    /// `ipv4` or `ipv6`.
    package var family = ""
    package var state: PortMappingStanding = .mapped
    /// `pcp`, `nat-pmp` or `upnp`; absent unless it is mapped.
    package var method: String?
    /// Where others reach us by it: `tcp://ADDRESS:PORT`, for UDP, too.
    package var outer: [String] = []
    /// When it ends, should it not be renewed.
    package var until: Timestamp?
    /// Why there is none.
    package var reason: String?

    package init(
        family: String, state: PortMappingStanding, method: String? = nil, outer: [String] = [],
        until: Timestamp? = nil, reason: String? = nil
    ) {
        self.family = family
        self.state = state
        self.method = method
        self.outer = outer
        self.until = until
        self.reason = reason
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("family", &family)
        try fields.field("state", &state)
        try fields.field("method", &method)
        try fields.field("outer", &outer)
        try fields.nullable("until", &until)
        try fields.field("reason", &reason)
    }
}

/// The answer of `status`.
package struct NodeStatus: JSONRecord, Hashable, Sendable {
    /// Always true in an answer of the node; the command line says false when there is none.
    package var running = false
    package var version = ""
    package var pid: Int?
    package var home: String?
    /// Endpoints in use, with the ports really taken.
    package var listen: [String] = []
    /// The storage needs its passphrase.
    package var locked = false
    /// What destroying means on this disk: `in-place`, `best-effort` or `ram`.
    package var erasure = ""
    /// What protects the keys at rest: `passphrase` or `key file`.
    package var protection: String?
    package var inboxes = InboxCounts()
    /// Open links to other inboxes.
    package var links: Int = 0
    /// Messages not yet acknowledged.
    package var outbox: Int = 0
    /// When the next thing is destroyed; null when nothing expires.
    package var nextExpiry: Timestamp?
    /// What the node knows to be worth a look; for `doctor`.
    package var checks: [HealthCheck]?
    /// Absent when the node has no hooks.
    package var hooks: HookCounts?
    /// Networks on which members are looked for, as `--discover` has them; absent when that is off.
    package var discovery: String?
    /// What it does for others as a rendezvous node; absent when it is none.
    package var rendezvous: RendezvousCounts?
    /// Its mailbox, and what it keeps for others as one; absent without both.
    package var mailbox: MailboxStatus?
    /// What gateways let in, for each address of ours toward one; absent when they are not asked.
    package var portMappings: [PortMappingStatus]?
    /// Where the figures are served over HTTP; absent when they are not.
    package var metrics: String?

    package init(
        running: Bool, version: String, pid: Int? = nil, home: String? = nil, listen: [String], locked: Bool,
        erasure: String, protection: String? = nil, inboxes: InboxCounts, links: Int, outbox: Int,
        nextExpiry: Timestamp? = nil, checks: [HealthCheck]? = nil, hooks: HookCounts? = nil, discovery: String? = nil,
        rendezvous: RendezvousCounts? = nil, mailbox: MailboxStatus? = nil, portMappings: [PortMappingStatus]? = nil,
        metrics: String? = nil
    ) {
        self.running = running
        self.version = version
        self.pid = pid
        self.home = home
        self.listen = listen
        self.locked = locked
        self.erasure = erasure
        self.protection = protection
        self.inboxes = inboxes
        self.links = links
        self.outbox = outbox
        self.nextExpiry = nextExpiry
        self.checks = checks
        self.hooks = hooks
        self.discovery = discovery
        self.rendezvous = rendezvous
        self.mailbox = mailbox
        self.portMappings = portMappings
        self.metrics = metrics
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("running", &running)
        try fields.field("version", &version)
        try fields.field("pid", &pid)
        try fields.field("home", &home)
        try fields.field("listen", &listen)
        try fields.field("locked", &locked)
        try fields.field("erasure", &erasure)
        try fields.field("protection", &protection)
        try fields.field("inboxes", &inboxes)
        try fields.field("links", &links)
        try fields.field("outbox", &outbox)
        try fields.nullable("nextExpiry", &nextExpiry)
        try fields.field("checks", &checks)
        try fields.field("hooks", &hooks)
        try fields.field("discovery", &discovery)
        try fields.field("rendezvous", &rendezvous)
        try fields.field("mailbox", &mailbox)
        try fields.field("portMappings", &portMappings)
        try fields.field("metrics", &metrics)
    }
}

/// `status`: tells how the node is.
package enum StatusMethod: ControlMethod {
    package static let name = "status"
    package static let summary = "Tells how the node is."
    package typealias Params = Nothing
    package typealias Result = NodeStatus
}

/// `stop`: stops the node cleanly.
package enum StopMethod: ControlMethod {
    package static let name = "stop"
    package static let summary = "Stops the node cleanly."
    package typealias Params = Nothing

    /// What `stop` answers.
    package struct Result: JSONRecord, Hashable, Sendable {
        /// Always `true`.
        package var ok = false
        /// Messages of others that nobody has read and that were in memory only: they are gone.
        package var forgotten: Int = 0

        package init(forgotten: Int) {
            ok = true
            self.forgotten = forgotten
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("ok", &ok)
            try fields.field("forgotten", &forgotten)
        }
    }
}

/// `lock`: forgets the storage keys until unlock.
package enum LockMethod: ControlMethod {
    package static let name = "lock"
    package static let summary = "Forgets the storage keys until unlock."
    package typealias Params = Nothing
    package typealias Result = Acknowledged
}

/// `unlock`: opens the storage with its passphrase.
package enum UnlockMethod: ControlMethod {
    package static let name = "unlock"
    package static let summary = "Opens the storage with its passphrase."
    package typealias Result = Acknowledged

    /// They are done one after the other, each with a slow derivation of a key.
    package static func waits(_ params: Params) -> Bool { true }

    /// What `unlock` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        package var passphrase = ""

        package init(passphrase: String) { self.passphrase = passphrase }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("passphrase", &passphrase)
        }
    }
}

/// `reap`: destroys everything that is due now.
package enum ReapMethod: ControlMethod {
    package static let name = "reap"
    package static let summary = "Destroys everything that is due now."
    package typealias Params = Nothing
    package typealias Result = Acknowledged
}

/// `version`: tells the version of the node.
package enum VersionMethod: ControlMethod {
    package static let name = "version"
    package static let summary = "Tells the version of the node."
    package typealias Params = Nothing

    /// What `version` answers.
    package struct Result: JSONRecord, Hashable, Sendable {
        package var version = ""

        package init(version: String) { self.version = version }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("version", &version)
        }
    }
}

/// `schema`: lists methods, events and failures.
package enum SchemaMethod: ControlMethod {
    package static let name = "schema"
    package static let summary = "Lists methods, events and failures."
    package typealias Params = Nothing
    package typealias Result = JSONValue
}
