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
            ("next expiry", shown(status.nextExpiry, now: wallClock())),
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
            let ends = until.map { ", until \(shown($0, now: wallClock()))" } ?? ""
            return "\(outer.map(safe).joined(separator: " ")) by \(safe(method ?? "-"))\(ends)"
        case .possible: return "\(outer.map(safe).joined(separator: " ")) by \(safe(method ?? "-")), tried and removed"
        case .asking: return "\(safe(family)): the gateway is being asked"
        case .failed: return "\(safe(family)): none: \(safe(reason ?? "-"))"
        }
    }
}

extension InboxCounts {
    /// `1.2 KiB of 16.0 MiB in memory`
    fileprivate var unread: String {
        "\(Words.size(Int64(unreadBytes))) of \(Words.size(Int64(unreadBytesMaximum))) in memory"
    }
}
