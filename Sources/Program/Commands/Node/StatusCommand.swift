import ArgumentParser
import Control

struct StatusCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "status", abstract: "Show the state of the node.",
        discussion: """
            If no node is running, the exit code is 8 and --json prints {"running":false}.

            Example:
              mayfly status --json | jq .listen
            """)

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        do { try call(Methods.status, Nothing(), terminal) { show($0, terminal) } } catch let error as ControlError
            where error.kind == .noNode && terminal.json
        {
            terminal.result(["running": false], exitCode: error.kind.exitCode)
            throw ExitCode(error.kind.exitCode)
        }
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
            ("unread", inboxes.unread), ("links", String(status.links)),
            ("discovery", status.discovery.map(safe) ?? "off"), ("outbox", String(status.outbox)),
            ("next expiry", shown(status.nextExpiry)),
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

extension InboxCounts {
    fileprivate var unread: String {
        "\(Words.size(Int64(unreadBytes))) of \(Words.size(Int64(unreadBytesMaximum))) in memory"
    }
}

struct MailboxCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "mailbox", abstract: "Nodes that keep sealed messages for offline nodes.",
        discussion: """
            A mailbox is a node that runs with --mailbox; it serves its named peers. Its contents are sealed for the \
            offline member, so the mailbox cannot read them. A conversation uses mailboxes only if all its members \
            have agreed.

            Examples:
              mayfly run --mailbox                             on the machine that is always on
              mayfly peer set hub mailbox=on                   on the node that is often offline
              mayfly lifetime propose room 1d --mailbox disk
              mayfly mailbox status
            """, subcommands: [Status.self])
}

extension MailboxCommand {
    struct Status: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "status", abstract: "Show the state of this node's mailbox, and of the boxes kept for others.",
            discussion: """
                For each box kept for others it shows the owner's peer name and the amount of data. Only the owner can \
                see more.

                Example:
                  mayfly mailbox status --json | jq .own.state
                """)

        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try call(Methods.mailboxStatus, Nothing(), terminal) { status in
                if let own = status.own { show(own, terminal) }
                if let service = status.service { show(service, terminal) }
                if status.own == nil, status.service == nil {
                    terminal.note(
                        "no mailbox here: name one with `mayfly peer set NAME mailbox=on`, "
                            + "or be one with `mayfly run --mailbox`")
                }
            }
        }

        private func show(_ own: OwnMailboxStatus, _ terminal: Terminal) {
            terminal.fields([
                ("our mailbox", own.words), ("state", own.state.rawValue),
                ("boxes", own.boxesMax.map { "\(own.boxes) of \($0)" } ?? String(own.boxes)),
                ("slots of a box", own.slotsPerBox.map { String($0) }),
                ("bytes of a box", own.bytesPerBox.map { Words.size($0) }),
                ("kept for", own.longest.map { "\(length($0)) at most" }), ("taken", "\(own.taken) since the start"),
            ])
            if let hint = own.hint { terminal.note(safe(hint)) }
        }

        private func show(_ service: MailboxServiceStatus, _ terminal: Terminal) {
            terminal.fields(service.fields)
            guard let kept = service.kept, !kept.isEmpty else { return }
            terminal.table(
                ["BOX OF", "SLOTS", "SIZE", "LAST SEEN"],
                kept.map { box in
                    [
                        box.peer ?? "-", box.slots.map { String($0) } ?? "-", box.bytes.map { Words.size($0) } ?? "-",
                        shown(box.lastSeen),
                    ]
                })
        }
    }
}

extension OwnMailboxStatus { var words: String { "\(peer) \(message)" } }

extension MailboxServiceStatus {
    /// The boxes missing from the counts of slots and bytes.
    private var unread: String {
        boxesUnread == 0 ? "" : " and those of \(boxesUnread) box\(boxesUnread == 1 ? "" : "es") not asked for yet"
    }

    var fields: [(String, String?)] {
        [
            ("mailbox for others", serving ? "named peers" : "off; stored messages stay until they expire"),
            ("boxes", "\(boxes) of \(boxesMax), of \(owners) node\(owners == 1 ? "" : "s")"),
            ("slots", "\(slots)\(unread), \(slotsPerBox) of a box"),
            ("on disk", "\(Words.size(bytes))\(unread), \(Words.size(bytesPerBox)) of a box"),
            ("in memory", "\(Words.size(memoryBytes)) of \(Words.size(memoryBytesMax))"),
            ("kept for", "\(length(longest)) at most"),
            (
                "since the start",
                "\(put) put, \(taken) taken, \(discarded) discarded, \(expired) expired, \(refused) refused"
            ),
        ]
    }
}

struct NetcheckCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "netcheck", abstract: "Check the NAT of this network, and which paths work.",
        discussion: """
            Asks the known rendezvous nodes at which address they see the running node. Reports for IPv4 and IPv6 \
            whether there is a NAT, of what kind, and what works. The gateway is asked only if port mapping is on, or \
            with --map-ports, which removes its mapping at once. No other host is asked. The NAT's filtering is not \
            measured, because that needs unsolicited datagrams.

            The exit code is 5 when rendezvous nodes are known and none answers.

            Examples:
              mayfly netcheck
              mayfly netcheck --json | jq -r '.families[] | "\\(.family) \\(.nat)"'
            """)

    @Option(time: "How long to wait for answers. Default: 10, with --map-ports 30.") var timeout: Interval?
    @Flag(help: "Ask the gateway for a port mapping, and remove it.") var mapPorts = false
    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        let params = NetcheckParams(timeout: timeout, mapPorts: mapPorts ? true : nil)
        let wait = (timeout ?? Interval(milliseconds: 30_000)).withGrace
        let value = try connect().call(Methods.netcheck, params, timeout: wait)
        let result = try understand(value, as: NetcheckResult.self)
        let code = result.reached == false ? FailureKind.unreachable.exitCode : 0
        if terminal.json { terminal.result(value, exitCode: code) } else { show(result, terminal) }
        if code != 0 { throw ExitCode(code) }
    }

    private func show(_ result: NetcheckResult, _ terminal: Terminal) {
        for family in result.families {
            let name = family.family == "ipv4" ? "IPv4" : "IPv6"
            guard family.route else {
                terminal.fields([(name, "no route")])
                continue
            }
            terminal.fields([
                (name, family.local ?? "-"),
                ("  UDP", result.datagrams ? word(family.udp) : "off: this node runs with --no-udp"),
                ("  TCP", word(family.tcp)), ("  NAT", nat(family)),
                ("  port", family.portPreserved.map { $0 ? "kept" : "changed" } ?? "unknown"),
            ])
            terminal.table(
                ["  ASKED", "AT", "SEES US AT", "UDP", "TCP"],
                family.answers.map { answer in
                    [
                        "  " + (answer.rendezvous ?? "a member's"), place(answer.address, answer.port),
                        answer.seenAddress.map { place($0, answer.seenPort ?? 0) } ?? "-",
                        !result.datagrams ? "-" : answer.seenAddress == nil ? "silent" : milliseconds(answer.rttMs),
                        answer.tcpMs == nil ? "fails" : milliseconds(answer.tcpMs),
                    ]
                })
        }
        let mappings = result.portMappings.map { $0.map(\.words) } ?? ["off; --map-ports tries it"]
        terminal.fields(
            mappings.map { ("port mapping", $0) } + [
                ("LAN discovery", result.discovery), ("hole punching", result.punching),
            ])
        for sentence in result.advice { terminal.result(safe(sentence)) }
    }

    private func word(_ works: Bool?) -> String { works.map { $0 ? "works" : "no answer" } ?? "unknown" }

    private func nat(_ family: NetcheckFamily) -> String {
        switch family.nat {
        case "none": "none: others see our own address"
        case "unknown" where family.udp == true: "there is one; its kind is unknown: needs a second rendezvous node"
        case "unknown": "unknown"
        default: "\(family.nat), mapping \(family.mapping)"
        }
    }

    private func place(_ address: String, _ port: Int) -> String {
        address.contains(":") ? "[\(address)]:\(port)" : "\(address):\(port)"
    }
}
