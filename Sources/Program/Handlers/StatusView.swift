import Control
import Cryptography
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
        let full = node.conversationsWithFullMemory.map { machine in
            Words.name(node.alias(of: machine.client) ?? machine.record.name ?? MemberName.id(machine.key.publicKey))
        }
        checks.append(memoryCheck(status.unreadByteCount, full: full))
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

    /// - Parameter full: names of conversations whose own limit is nearly reached.
    static func memoryCheck(_ unread: Int, full: [String] = []) -> HealthCheck {
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

enum MailboxView {
    /// - Parameter withBoxes: include each box kept for another node.
    static func status(_ node: isolated Node, withBoxes: Bool) -> MailboxStatus {
        MailboxStatus(
            own: node.mailboxStanding.map { own($0, isLocked: node.isLocked) },
            service: node.mailboxService.map { service($0, withBoxes ? (try? node.peers.file()) : nil, withBoxes) })
    }

    // MARK: Our mailbox

    private static func own(_ standing: OwnMailboxStanding, isLocked: Bool) -> OwnMailboxStatus {
        var status = describe(standing.name, standing.standing, boxCount: standing.boxCount, isLocked: isLocked)
        status.boxes = standing.boxCount
        status.taken = Int64(clamping: standing.takenCount)
        if case .granted(let grant) = standing.standing {
            status.boxesMax = grant.boxCount
            status.slotsPerBox = grant.slotCount
            status.bytesPerBox = Int64(grant.byteCount)
            status.longest = Interval(milliseconds: grant.longest)
        }
        return status
    }

    private static func describe(
        _ name: String, _ standing: MailboxOwnerStateMachine.Standing, boxCount: Int, isLocked: Bool
    ) -> OwnMailboxStatus {
        func status(_ state: MailboxStanding, _ message: String, _ hint: String? = nil) -> OwnMailboxStatus {
            OwnMailboxStatus(peer: name, state: state, message: message, hint: hint)
        }
        if isLocked {
            return status(.unreachable, "is not queried: this node is locked", "open it with `mayfly unlock`")
        }
        switch standing {
        case .granted(let grant) where grant.boxCount < boxCount:
            return status(
                .granted, "keeps messages for \(grant.boxCount) of \(boxCount) conversations",
                "ask its operator for more: `boxes` of `mailbox` in config.json there")
        case .granted: return status(.granted, "keeps messages for \(boxCount) conversation\(boxCount == 1 ? "" : "s")")
        case .unused:
            return status(
                .unused, "is not used: no conversation has agreed to a mailbox",
                "propose it: `mayfly lifetime propose C 1d --mailbox disk`")
        case .asking: return status(.asking, "has not answered yet", "look again in a moment")
        case .unreachable:
            return status(.unreachable, "is unreachable", "check that its node runs: `mayfly peer ping \(name)`")
        case .refused(let refusal):
            var result = refused(name, refusal)
            result.reason = "\(refusal)"
            return result
        }
    }

    private static func refused(_ name: String, _ refusal: MailboxRefusal) -> OwnMailboxStatus {
        func status(_ message: String, _ hint: String) -> OwnMailboxStatus {
            OwnMailboxStatus(peer: name, state: .refused, message: message, hint: hint)
        }
        switch refusal {
        case .notServing:
            return status(
                "is not a mailbox", "ask its operator to run: mayfly run --mailbox; this node retries automatically")
        case .unknownPeer:
            return status(
                "does not know this node",
                "ask its operator to run: mayfly peer add NAME CARD, with the card that `mayfly peer card` prints "
                    + "here; this node retries automatically")
        case .full:
            return status(
                "has reached its limit of boxes",
                "ask its operator for more: `boxes` of `mailbox` in config.json there; this node retries automatically")
        case .unavailable:
            return status("is locked", "ask its operator to run: mayfly unlock; this node retries automatically")
        case .other: return status("refuses for a reason that this version does not know", "bring this node up to date")
        }
    }

    // MARK: Boxes for other nodes

    private static func service(_ standing: MailboxServiceStanding, _ peers: PeersFile?, _ withBoxes: Bool)
        -> MailboxServiceStatus
    {
        let (terms, counts) = (standing.terms, standing.counts)
        var status = MailboxServiceStatus(
            serving: terms.isServing, owners: counts.owners, boxes: counts.boxes, boxesMax: terms.boxCount,
            boxesUnread: counts.unreadBoxes, slots: counts.slots, slotsPerBox: terms.slotCount,
            bytes: Int64(counts.byteCount - counts.memoryByteCount), bytesPerBox: Int64(terms.boxByteCount),
            memoryBytes: Int64(counts.memoryByteCount), memoryBytesMax: Int64(terms.memoryByteCount),
            longest: Interval(milliseconds: terms.longest), put: Int64(clamping: counts.put),
            taken: Int64(clamping: counts.taken), discarded: Int64(clamping: counts.discarded),
            expired: Int64(clamping: counts.expired), refused: Int64(clamping: counts.refused))
        guard withBoxes else { return status }
        var names: [PublicKey: String] = [:]
        for peer in peers?.peers ?? [] { if let key = peer.contact?.key { names[key] = peer.name } }
        status.kept = standing.boxes.map { box in
            KeptBox(
                peer: names[box.record.owner], slots: box.slotCount,
                bytes: box.slotCount == nil ? nil : Int64(box.byteCount), lastSeen: box.record.seenAt)
        }.sorted { ($0.peer ?? "", $0.lastSeen.milliseconds) < ($1.peer ?? "", $1.lastSeen.milliseconds) }
        return status
    }

    // MARK: For doctor

    static func checks(_ node: isolated Node, _ status: MailboxStatus) -> [HealthCheck] {
        var checks: [HealthCheck] = []
        if let own = status.own {
            let state: CheckState = (own.state == .granted && own.hint == nil) || own.state == .unused ? .ok : .warning
            checks.append(
                HealthCheck(name: "mailbox", state: state, message: "`\(own.peer)` \(own.message)", hint: own.hint))
        } else {
            let count = node.mailboxConversationCount
            if count > 0 {
                checks.append(
                    .warning(
                        "mailbox",
                        "\(count) conversation\(count == 1 ? " has" : "s have") agreed to a mailbox, and this node has "
                            + "none",
                        "while this node is offline, messages wait at their senders; name a mailbox: "
                            + "`mayfly peer set NAME mailbox=on`"))
            }
        }
        if status.service?.serving ?? false {
            let count = (try? node.peers.file())?.peers.filter { $0.contact != nil && !$0.isBlocked }.count ?? 0
            checks.append(
                count == 0
                    ? .warning(
                        "mailbox", "this node is a mailbox without users: no named peer has a card",
                        "add a peer to serve: `mayfly peer add NAME CARD`")
                    : .ok("mailbox", "this node is a mailbox for \(count) named peer\(count == 1 ? "" : "s")"))
        }
        return checks
    }
}
