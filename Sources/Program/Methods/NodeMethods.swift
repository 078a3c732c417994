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

struct ConfigReloadResult: CodableRecord {
    /// Settings of config.json in force now; `peers` stands for peers.json.
    var changed: [String] = []
    /// Settings that take effect at the next start.
    var pending: [String] = []
    /// Settings that a command line option of the node overrides.
    var overridden: [String] = []
}

struct ProtectionResult: CodableRecord {
    /// `passphrase` or `key file`, as in `status`.
    var protection = ""
    /// Erasure of the old protection on this disk: `in-place`, `best-effort` or `ram`.
    var erasure = ""
}

struct PassphraseChangeParams: CodableRecord {
    var passphrase = ""
    var newPassphrase = ""
}

struct PassphraseSetParams: CodableRecord { var newPassphrase = "" }

struct MetricsResult: CodableRecord {
    /// Prometheus text format, version 0.0.4.
    var text = ""
}

struct Inbox: CodableRecord {
    /// Client id.
    var inbox = ""
    /// `awake`, `sleeping` or `unused`.
    var state = ""
    @OrNull var wakeReason: String?
    @OrNull var lastActivity: Timestamp?
    /// Never put to sleep to make room.
    var protected = false
    var conversation: String?
}

struct InboxListResult: CodableRecord { var inboxes: [Inbox] = [] }

struct InboxRebalanceResult: CodableRecord {
    /// Inboxes being woken.
    var woken: Int = 0
    /// Inboxes put to sleep.
    var slept: Int = 0
    /// Target number of awake inboxes.
    var capacity: Int = 0
}

/// A rendezvous node's answer from one of its addresses.
struct NetcheckAnswer: CodableRecord {
    /// Name of the peer; absent when only a member uses this rendezvous node.
    var rendezvous: String?
    /// Address queried.
    var address = ""
    var port: Int = 0
    /// Our UDP source address as the rendezvous node saw it; absent without an answer.
    var seenAddress: String?
    var seenPort: Int?
    /// Round trip in milliseconds.
    var rttMs: Double?
    /// Time to connect over TCP, in milliseconds; absent without a connection.
    var tcpMs: Double?
}

struct NetcheckFamily: CodableRecord {
    /// `ipv4` or `ipv6`.
    var family = ""
    /// Whether a route to other networks exists.
    var route = false
    /// Our local address on that route.
    var local: String?
    /// Whether UDP answers arrive, and whether TCP connects; null when there was no node to query.
    @OrNull var udp: Bool?
    @OrNull var tcp: Bool?
    /// `none`, `endpoint-independent`, `symmetric` or `unknown`.
    var nat = ""
    /// NAT mapping behaviour (RFC 4787): `endpoint-independent`, `address-dependent`, `address-and-port-dependent`,
    /// `destination-dependent` (one of the two before) or `unknown`.
    var mapping = ""
    /// Whether the outer port equals the local one; null when unknown.
    @OrNull var portPreserved: Bool?
    var answers: [NetcheckAnswer] = []
}

struct NetcheckParams: CodableRecord {
    /// Answers with partial results after this time; greater than 0. Absent means 10 s, or 30 s with `mapPorts`.
    var timeout: Interval?
    /// Ask gateways for a test mapping and remove it at once, if port mapping is off. Absent means false.
    var mapPorts: Bool?
}

struct NetcheckResult: CodableRecord {
    var families: [NetcheckFamily] = []
    /// Whether this node uses UDP links.
    var datagrams = false
    /// Absent when gateways were not queried.
    var portMappings: [PortMappingStatus]?
    /// Networks searched for members, or `off`.
    var discovery = ""
    /// UDP hole punching: `unneeded`, `works`, `limited`, `impossible` or `unknown`.
    var punching = ""
    /// Whether a rendezvous node answered; null when none is known.
    @OrNull var reached: Bool?
    /// Sentences for people.
    var advice: [String] = []
}
