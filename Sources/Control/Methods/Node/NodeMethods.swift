package enum NodeMethods {
    package static let all: [any ControlMethod.Type] = [
        StatusMethod.self, StopMethod.self, LockMethod.self, UnlockMethod.self, ReapMethod.self, VersionMethod.self,
        SchemaMethod.self, NetcheckMethod.self, ConfigReloadMethod.self, MetricsMethod.self,
    ]
}

package struct InboxCounts: JSONRecord, Hashable, Sendable {
    package var awake: Int = 0
    package var sleeping: Int = 0
    package var unused: Int = 0
    /// Bytes of unread contents that are in memory only, and the maximum. Beyond it, senders keep their contents.
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

package enum CheckState: String, JSONChoice, Hashable, Sendable {
    case ok
    case warning
    case failed
}

/// One line of `doctor`.
package struct HealthCheck: JSONRecord, Hashable, Sendable {
    /// `clock`, `listen`, `erasure`…
    package var name = ""
    package var state: CheckState = .ok
    /// The finding, in one phrase.
    package var message = ""
    /// Advice.
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

/// Runs of hook programs.
package struct HookCounts: JSONRecord, Hashable, Sendable {
    package var running: Int = 0
    package var queued: Int = 0
    /// Exit code 0.
    package var done: Int = 0
    /// Another exit code, killed after a timeout, or not started.
    package var failed: Int = 0
    /// Not started, because the queue was full.
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

/// The load of a rendezvous node, with its limits.
package struct RendezvousCounts: JSONRecord, Hashable, Sendable {
    /// Nodes reachable through this one.
    package var users: Int = 0
    package var usersMax: Int = 0
    /// Reserved inboxes in all, and the maximum per user.
    package var reservations: Int = 0
    package var reservationsPerUser: Int = 0
    /// Relayed streams.
    package var streams: Int = 0
    package var streamsMax: Int = 0
    package var streamsPerUser: Int = 0
    package var streamsPerReservation: Int = 0
    /// Limits: per direction of a stream, and in total.
    package var bytesPerSecond: Int = 0
    package var bytesPerSecondTotal: Int = 0
    /// Since the start: opened streams, and relayed bytes.
    package var opened: Int64 = 0
    package var bytes: Int64 = 0
    /// Since the start: refused requests, and streams closed for a protocol violation.
    package var refused: Int64 = 0
    package var violations: Int64 = 0
    /// True serves all holders of the card, false only named peers.
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

package enum PortMappingStanding: String, JSONChoice, Hashable, Sendable {
    /// The gateway forwards connections to us.
    case mapped
    case asking
    /// Not mapped; `reason` says why. The node retries.
    case failed
    /// Only in `netcheck`: the gateway made a mapping, and the node removed it at once.
    case possible
}

/// A port mapping, or why there is none.
package struct PortMappingStatus: JSONRecord, Hashable, Sendable {
    /// `ipv4` or `ipv6`.
    package var family = ""
    package var state: PortMappingStanding = .mapped
    /// `pcp`, `nat-pmp` or `upnp`; absent unless mapped.
    package var method: String?
    /// Our outer address, `tcp://ADDRESS:PORT`; valid for UDP too.
    package var outer: [String] = []
    /// Expiry unless renewed.
    package var until: Timestamp?
    /// Why the mapping is missing.
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

package struct NodeStatus: JSONRecord, Hashable, Sendable {
    /// Always true in an answer of the node; the command line reports false without a node.
    package var running = false
    package var version = ""
    package var pid: Int?
    package var home: String?
    /// Endpoints in use, with the actual ports.
    package var listen: [String] = []
    /// The storage waits for its passphrase.
    package var locked = false
    /// Erasure on this disk: `in-place`, `best-effort` or `ram`.
    package var erasure = ""
    /// Protection of the keys at rest: `passphrase` or `key file`.
    package var protection: String?
    package var inboxes = InboxCounts()
    /// Open links to other inboxes.
    package var links: Int = 0
    /// Unacknowledged messages.
    package var outbox: Int = 0
    /// Next destruction; null when nothing expires.
    package var nextExpiry: Timestamp?
    /// Findings of the node, for `doctor`.
    package var checks: [HealthCheck]?
    /// Absent without hooks.
    package var hooks: HookCounts?
    /// Networks searched for members, as in `--discover`; absent when off.
    package var discovery: String?
    /// Absent unless the node is a rendezvous node.
    package var rendezvous: RendezvousCounts?
    /// Absent without a mailbox and without boxes for others.
    package var mailbox: MailboxStatus?
    /// One for each local address that leads to a gateway; absent when port mapping is off.
    package var portMappings: [PortMappingStatus]?
    /// HTTP address of the metrics; absent when off.
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

package enum StatusMethod: ControlMethod {
    package static let name = "status"
    package static let summary = "Tells how the node is."
    package typealias Params = Nothing
    package typealias Result = NodeStatus
}

package enum StopMethod: ControlMethod {
    package static let name = "stop"
    package static let summary = "Stops the node cleanly."
    package typealias Params = Nothing

    package struct Result: JSONRecord, Hashable, Sendable {
        /// Always `true`.
        package var ok = false
        /// Unread messages of other members that were in memory only and are now gone.
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

package enum LockMethod: ControlMethod {
    package static let name = "lock"
    package static let summary = "Forgets the storage keys until unlock."
    package typealias Params = Nothing
    package typealias Result = Acknowledged
}

package enum UnlockMethod: ControlMethod {
    package static let name = "unlock"
    package static let summary = "Opens the storage with its passphrase."
    package typealias Result = Acknowledged

    /// Unlocks run one at a time, each with a slow key derivation.
    package static func waits(_ params: Params) -> Bool { true }

    package struct Params: JSONRecord, Hashable, Sendable {
        package var passphrase = ""

        package init(passphrase: String) { self.passphrase = passphrase }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("passphrase", &passphrase)
        }
    }
}

package enum ReapMethod: ControlMethod {
    package static let name = "reap"
    package static let summary = "Destroys everything that is due now."
    package typealias Params = Nothing
    package typealias Result = Acknowledged
}

package enum VersionMethod: ControlMethod {
    package static let name = "version"
    package static let summary = "Tells the version of the node."
    package typealias Params = Nothing

    package struct Result: JSONRecord, Hashable, Sendable {
        package var version = ""

        package init(version: String) { self.version = version }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("version", &version)
        }
    }
}

package enum SchemaMethod: ControlMethod {
    package static let name = "schema"
    package static let summary = "Lists methods, events and failures."
    package typealias Params = Nothing
    package typealias Result = JSONValue
}
