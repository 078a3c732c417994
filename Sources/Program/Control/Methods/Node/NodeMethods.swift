import Control

struct InboxCounts: CodableRecord {
    var awake: Int = 0
    var sleeping: Int = 0
    var unused: Int = 0
    /// Bytes of unread contents that are in memory only, and the maximum. Beyond it, senders keep their contents.
    var unreadBytes: Int = 0
    var unreadBytesMaximum: Int = 0
}

enum CheckState: String, JSONChoice, Hashable, Sendable {
    case ok
    case warning
    case failed
}

/// One line of `doctor`.
struct HealthCheck: CodableRecord {
    /// `clock`, `listen`, `erasure`…
    var name = ""
    var state: CheckState = .ok
    /// The finding, in one phrase.
    var message = ""
    /// Advice.
    var hint: String?

    static func ok(_ name: String, _ message: String) -> HealthCheck { HealthCheck(name: name, message: message) }

    static func warning(_ name: String, _ message: String, _ hint: String? = nil) -> HealthCheck {
        HealthCheck(name: name, state: .warning, message: message, hint: hint)
    }

    static func failed(_ name: String, _ message: String, _ hint: String? = nil) -> HealthCheck {
        HealthCheck(name: name, state: .failed, message: message, hint: hint)
    }
}

/// Runs of hook programs.
struct HookCounts: CodableRecord {
    var running: Int = 0
    var queued: Int = 0
    /// Exit code 0.
    var done: Int = 0
    /// Another exit code, killed after a timeout, or not started.
    var failed: Int = 0
    /// Not started, because the queue was full.
    var dropped: Int = 0
}

/// The load of a rendezvous node, with its limits.
struct RendezvousCounts: CodableRecord {
    /// Nodes reachable through this one.
    var users: Int = 0
    var usersMax: Int = 0
    /// Reserved inboxes in all, and the maximum per user.
    var reservations: Int = 0
    var reservationsPerUser: Int = 0
    /// Relayed streams.
    var streams: Int = 0
    var streamsMax: Int = 0
    var streamsPerUser: Int = 0
    var streamsPerReservation: Int = 0
    /// Limits: per direction of a stream, and in total.
    var bytesPerSecond: Int = 0
    var bytesPerSecondTotal: Int = 0
    /// Since the start: opened streams, and relayed bytes.
    var opened: Int64 = 0
    var bytes: Int64 = 0
    /// Since the start: refused requests, and streams closed for a protocol violation.
    var refused: Int64 = 0
    var violations: Int64 = 0
    /// True serves all holders of the card, false only named peers.
    var everybody = false
}

enum PortMappingStanding: String, JSONChoice, Hashable, Sendable {
    /// The gateway forwards connections to us.
    case mapped
    case asking
    /// Not mapped; `reason` says why. The node retries.
    case failed
    /// Only in `netcheck`: the gateway made a mapping, and the node removed it at once.
    case possible
}

/// A port mapping, or why there is none.
struct PortMappingStatus: CodableRecord {
    /// `ipv4` or `ipv6`.
    var family = ""
    var state: PortMappingStanding = .mapped
    /// `pcp`, `nat-pmp` or `upnp`; absent unless mapped.
    var method: String?
    /// Our outer address, `tcp://ADDRESS:PORT`; valid for UDP too.
    var outer: [String] = []
    /// Expiry unless renewed.
    @OrNull var until: Timestamp?
    /// Why the mapping is missing.
    var reason: String?
}

struct NodeStatus: CodableRecord {
    /// Always true in an answer of the node; the command line reports false without a node.
    var running = false
    var version = ""
    var pid: Int?
    var home: String?
    /// Endpoints in use, with the actual ports.
    var listen: [String] = []
    /// The storage waits for its passphrase.
    var locked = false
    /// Erasure on this disk: `in-place`, `best-effort` or `ram`.
    var erasure = ""
    /// Protection of the keys at rest: `passphrase` or `key file`.
    var protection: String?
    var inboxes = InboxCounts()
    /// Open links to other inboxes.
    var links: Int = 0
    /// Unacknowledged messages.
    var outbox: Int = 0
    /// Next destruction; null when nothing expires.
    @OrNull var nextExpiry: Timestamp?
    /// Findings of the node, for `doctor`.
    var checks: [HealthCheck]?
    /// Absent without hooks.
    var hooks: HookCounts?
    /// Networks searched for members, as in `--discover`; absent when off.
    var discovery: String?
    /// Absent unless the node is a rendezvous node.
    var rendezvous: RendezvousCounts?
    /// Absent without a mailbox and without boxes for others.
    var mailbox: MailboxStatus?
    /// One for each local address that leads to a gateway; absent when port mapping is off.
    var portMappings: [PortMappingStatus]?
    /// HTTP address of the metrics; absent when off.
    var metrics: String?
}

struct StopResult: CodableRecord {
    var ok = true
    /// Unread messages of other members that were in memory only and are now gone.
    var forgotten: Int = 0
}

struct UnlockParams: CodableRecord { var passphrase = "" }

struct VersionResult: CodableRecord { var version = "" }
