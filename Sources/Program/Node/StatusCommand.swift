import ArgumentParser
import Control
import Cryptography
import Glibc
import Messaging
import NodeRuntime
import Store
import Transport

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

struct InboxCounts: CodableRecord {
    var awake: Int = 0
    var sleeping: Int = 0
    var unused: Int = 0
    /// Bytes of unread contents that are in memory only, and the maximum. Beyond it, senders keep their contents.
    var unreadBytes: Int = 0
    var unreadBytesMaximum: Int = 0
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

extension NodeMethods {
    static let status = NodeMethod<Nothing, NodeStatus>("status", "Show the state of the node.") {
        call, node, service in call.succeed(NodeStatus(node, service))
    }
}

extension NodeStatus {
    fileprivate init(_ node: isolated Node, _ service: MethodService) {
        let status = node.status()
        let droppedLogLines = service.logOutput.droppedCount
        var checks: [HealthCheck] = [
            HealthCheck(
                name: "erasure", state: status.erasure.erasure == .bestEffort ? .warning : .ok,
                message: "\(status.erasure.erasure.rawValue): \(status.erasure.reason)")
        ]
        let full = node.conversationsWithFullMemory.map { machine in
            Words.name(node.alias(of: machine.client) ?? machine.record.name ?? MemberName.id(machine.key.publicKey))
        }
        checks.append(HealthCheck.memory(status.unreadByteCount, full: full))
        if status.isReadOnly { checks.append(.failed("home", "read-only", "mount it writable")) }
        if let trouble = status.storageTrouble { checks.append(.failed("disk", "\(trouble)", trouble.advice)) }
        for damage in status.damage { checks.append(.warning("store", damage, "check the disk")) }
        checks.append(NetworkView.addressesCheck(node.reachable, isFound: node.discovery != nil))
        if droppedLogLines > 0 {
            checks.append(
                .warning(
                    "log", "\(droppedLogLines) log lines were dropped: standard error was not read",
                    "check the program that reads the node's standard error, or lower --log-level"))
        }
        for failure in node.withoutDatagrams {
            checks.append(
                .warning(
                    "UDP", "links over TCP alone: \(failure.reason)",
                    "free the port for UDP, or choose another with `mayfly run --listen`"))
        }
        for name in node.missingInterfaces {
            checks.append(
                .warning("LAN discovery", "no interface \(name) has an address now", "see `ip link` for their names"))
        }
        checks += HealthCheck.copies(node)
        checks += node.rendezvousStandings().map(NetworkView.rendezvousCheck)
        let mailbox = MailboxStatus(node, withBoxes: false)
        checks += mailbox.checks(node)
        let portMappings = node.portMappings.map { NetworkView.portMappings($0, isLocked: status.isLocked) }
        checks += (portMappings ?? []).map(NetworkView.portMappingCheck)
        self.init(
            running: true, version: node.options.version, pid: Int(getpid()), home: node.options.home,
            listen: node.listening.map(\.description), locked: status.isLocked,
            erasure: status.erasure.erasure.rawValue,
            protection: status.protection == .keyFile ? "key file" : "passphrase",
            inboxes: InboxCounts(
                awake: status.awake, sleeping: status.sleeping, unused: status.unused,
                unreadBytes: status.unreadByteCount, unreadBytesMaximum: Limits.memoryTotalByteCount),
            links: status.links, outbox: status.outbox, nextExpiry: status.nextExpiry, checks: checks,
            hooks: service.hooks.counts, discovery: node.discovery,
            rendezvous: node.relayService.map { RendezvousCounts($0.counts, $0.terms) },
            mailbox: mailbox.own == nil && mailbox.service == nil ? nil : mailbox, portMappings: portMappings,
            metrics: service.metricsEndpoint)
    }
}

extension HealthCheck {
    /// Reports two running copies of a member's home, or, by members' reports, of ours.
    fileprivate static func copies(_ node: isolated Node) -> [HealthCheck] {
        let now = node.currentTime
        var checks: [HealthCheck] = []
        for machine in node.conversationsWithCopies {
            let place = (node.alias(of: machine.client) ?? machine.record.name).map { " (\(Words.name($0)))" } ?? ""
            for member in machine.currentMembers {
                let peer = member.profile ?? node.peerName(of: member.key, in: machine.client)
                let name = Words.name(peer ?? MemberName.id(member.key))
                if machine.reportsCopies(member.key, now: now) {
                    checks.append(
                        .warning(
                            "copies", Words.copies(reportedBy: name) + place,
                            "stop the other one, such as a restored backup or a cloned machine"))
                }
                if machine.isCopied(member.key, now: now) {
                    checks.append(.warning("copies", Words.copies(of: name) + place, "ask \(name) to stop one of them"))
                }
            }
        }
        let shown = 8
        guard checks.count > shown else { return checks }
        let more = HealthCheck.warning("copies", "and \(checks.count - shown) more of these")
        return checks.prefix(shown) + [more]
    }

    /// - Parameter full: names of conversations whose own limit is nearly reached.
    static func memory(_ unread: Int, full: [String] = []) -> HealthCheck {
        let limit = Limits.memoryTotalByteCount
        let isNearlyFull = unread >= limit / 10 * 9 || !full.isEmpty
        let rooms = full.prefix(4).joined(separator: ", ") + (full.count > 4 ? " and \(full.count - 4) more" : "")
        return HealthCheck(
            name: "memory", state: isNearlyFull ? .warning : .ok,
            message: "unread messages, memory only, take \(unread) of \(limit) bytes"
                + (full.isEmpty
                    ? "" : "; the limit of a conversation, \(Limits.memoryByteCount), is nearly reached in \(rooms)"),
            hint: isNearlyFull ? "read them: messages beyond the limit wait at their senders" : nil)
    }
}

struct StatusCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        NodeMethods.status,
        discussion: """
            If no node is running, the exit code is 8 and --json prints {"running":false}.

            Example:
              mayfly status --json | jq .listen
            """)

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        do { try call(NodeMethods.status, Nothing(), terminal) { show($0, terminal) } } catch let error as ControlError
            where error.kind == .noNode && terminal.json
        { try terminal.result(["running": false], failure: error) }
    }

    private func show(_ status: NodeStatus, _ terminal: Terminal) {
        let inboxes = status.inboxes
        let mappings = (status.portMappings ?? []).map { ("port mapping", Optional($0.words)) }
        let fields: [(String, String?)] = [
            ("running", status.pid.map { "yes, process \($0)" } ?? "yes"), ("version", status.version),
            ("listen", status.listen.isEmpty ? "-" : status.listen.map(safe).joined(separator: " ")),
            ("storage", status.locked ? "locked" : "unlocked"), ("protection", status.protection),
            ("erasure", status.erasure),
            ("inboxes", "\(inboxes.awake) awake, \(inboxes.sleeping) sleeping, \(inboxes.unused) unused"),
            (
                "unread",
                "\(sizeText(Int64(inboxes.unreadBytes))) of \(sizeText(Int64(inboxes.unreadBytesMaximum))) in memory"
            ), ("links", String(status.links)), ("discovery", status.discovery.map(safe) ?? "off"),
            ("outbox", String(status.outbox)), ("next expiry", shown(status.nextExpiry)),
        ]
        let mailbox = status.mailbox?.own.map { [("our mailbox", Optional($0.words))] } ?? []
        terminal.fields(fields + mailbox + mappings)
        if let relay = status.rendezvous {
            terminal.fields([
                ("rendezvous", "for \(relay.everybody ? "all nodes that have the card" : "named peers")"),
                ("served nodes", "\(relay.users) of \(relay.usersMax)"),
                ("reservations", "\(relay.reservations), \(relay.reservationsPerUser) of one node"),
                (
                    "streams",
                    "\(relay.streams) of \(relay.streamsMax), \(relay.streamsPerUser) to one node, "
                        + "\(relay.streamsPerReservation) to one reservation"
                ), ("rate", "\(relay.bytesPerSecond) bytes/s for a stream, \(relay.bytesPerSecondTotal) in all"),
                ("relayed", "\(relay.opened) streams, \(relay.bytes) bytes since the start"),
                ("refused", "\(relay.refused) requests; \(relay.violations) streams ended for a violation"),
            ])
        }
        if let service = status.mailbox?.service { terminal.fields(service.fields) }
        if status.locked { terminal.note("unlock it with `mayfly unlock`") }
    }
}

extension PortMappingStatus {
    var words: String {
        switch state {
        case .mapped:
            let ends = until.map { ", until \(shown($0))" } ?? ""
            return "\(outer.joined(separator: " ")) by \(method ?? "-")\(ends)"
        case .possible: return "\(outer.joined(separator: " ")) by \(method ?? "-"), tried and removed"
        case .asking: return "\(family): the gateway is being asked"
        case .failed: return "\(family): none: \(reason ?? "-")"
        }
    }
}
