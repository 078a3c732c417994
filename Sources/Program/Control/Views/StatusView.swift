import Control
import Glibc
import Messaging
import NodeRuntime
import Store
import Transport

enum StatusView {
    static func status(_ node: isolated Node, hooks: HookRunner, droppedLogLines: Int, metrics: String?) -> NodeStatus {
        let status = node.status()
        var checks: [HealthCheck] = [
            HealthCheck(
                name: "erasure", state: status.erasure.erasure == .bestEffort ? .warning : .ok,
                message: "\(status.erasure.erasure.rawValue): \(status.erasure.reason)")
        ]
        checks.append(memoryCheck(status.unreadByteCount))
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
        checks += copiesChecks(node)
        checks += node.rendezvousStandings().map(NetworkView.rendezvousCheck)
        let mailbox = MailboxView.status(node, withBoxes: false)
        checks += MailboxView.checks(node, mailbox)
        let portMappings = NetworkView.portMappings(node)
        checks += (portMappings ?? []).map(NetworkView.portMappingCheck)
        return NodeStatus(
            running: true, version: node.options.version, pid: Int(getpid()), home: node.options.home,
            listen: node.listening.map(\.description), locked: status.isLocked,
            erasure: status.erasure.erasure.rawValue,
            protection: status.protection == .keyFile ? "key file" : "passphrase",
            inboxes: InboxCounts(
                awake: status.awake, sleeping: status.sleeping, unused: status.unused,
                unreadBytes: status.unreadByteCount, unreadBytesMaximum: Limits.memoryTotalByteCount),
            links: status.links, outbox: status.outbox, nextExpiry: status.nextExpiry, checks: checks,
            hooks: hooks.counts, discovery: node.discovery,
            rendezvous: node.relayService.map { RendezvousCounts($0.counts, $0.terms) },
            mailbox: mailbox.own == nil && mailbox.service == nil ? nil : mailbox, portMappings: portMappings,
            metrics: metrics)
    }

    /// Reports two running copies of a member's home, or, by members' reports, of ours.
    private static func copiesChecks(_ node: isolated Node) -> [HealthCheck] {
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

    private static func memoryCheck(_ unread: Int) -> HealthCheck {
        let limit = Limits.memoryTotalByteCount
        let isNearlyFull = unread >= limit / 10 * 9
        return HealthCheck(
            name: "memory", state: isNearlyFull ? .warning : .ok,
            message: "unread messages in memory only take \(unread) of \(limit) bytes",
            hint: isNearlyFull ? "read them: messages beyond the limit wait at their senders" : nil)
    }
}
