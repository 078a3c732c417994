import ArgumentParser
import Control
import Cryptography
import Messaging
import NodeRuntime

/// State of our mailbox.
enum MailboxStanding: String, JSONChoice, Hashable, Sendable {
    /// The mailbox accepts contents for us.
    case granted
    case asking
    case unreachable
    /// `reason` says why.
    case refused
    /// No conversation has agreed to a mailbox.
    case unused
}

/// The peer that keeps contents for this node while it is offline.
struct OwnMailboxStatus: CodableRecord {
    /// Name in `peers.json`.
    var peer = ""
    var state: MailboxStanding = .unused
    /// `notServing`, `unknownPeer`, `full`, `unavailable` or `other`; only with `refused`.
    var reason: String?
    /// Describes `state`.
    var message = ""
    /// Advice; absent when no action is needed.
    var hint: String?
    /// Number of conversations that need a box.
    var boxes: Int = 0
    /// Grant: maximum number of boxes, slots and bytes per box, and the longest lifetime. Absent without a grant.
    var boxesMax: Int?
    var slotsPerBox: Int?
    var bytesPerBox: Int64?
    var longest: Interval?
    /// Slots fetched since the start.
    var taken: Int64 = 0
}

/// A box kept for another node.
struct KeptBox: CodableRecord {
    /// Owner; absent when it is no longer a named peer.
    var peer: String?
    /// Used slots and bytes; absent until a first request for the box since the start.
    var slots: Int?
    var bytes: Int64?
    /// The owner's last visit.
    var lastSeen = Timestamp(milliseconds: 0)
}

/// The boxes kept for other nodes, with the limits.
struct MailboxServiceStatus: CodableRecord {
    /// False stops new contents; kept ones stay.
    var serving = false
    /// Number of nodes with boxes here.
    var owners: Int = 0
    var boxes: Int = 0
    var boxesMax: Int = 0
    /// Boxes without a request since the start; the figures below do not count their slots.
    var boxesUnread: Int = 0
    /// Used slots in all other boxes, and the maximum per box.
    var slots: Int = 0
    var slotsPerBox: Int = 0
    /// Bytes on disk, and the maximum per box including bytes in memory.
    var bytes: Int64 = 0
    var bytesPerBox: Int64 = 0
    /// Bytes in memory, and the maximum over all boxes.
    var memoryBytes: Int64 = 0
    var memoryBytesMax: Int64 = 0
    /// Longest lifetime in a box; explosion notices may stay longer.
    var longest = Interval(milliseconds: 0)
    /// Slots since the start.
    var put: Int64 = 0
    var taken: Int64 = 0
    var discarded: Int64 = 0
    var expired: Int64 = 0
    /// Requests refused since the start.
    var refused: Int64 = 0
    /// Only in `mailbox.status`.
    var kept: [KeptBox]?
}

struct MailboxStatus: CodableRecord {
    /// Null when no peer is our mailbox.
    @OrNull var own: OwnMailboxStatus?
    /// Null when this node is not a mailbox and keeps no boxes.
    @OrNull var service: MailboxServiceStatus?
}

extension NodeMethods {
    static let mailboxStatus = NodeMethod<Nothing, MailboxStatus>(
        "mailbox.status", "Show the state of this node's mailbox, and of the boxes kept for others."
    ) { _, node in .now(MailboxStatus(node, withBoxes: true)) }
}

extension MailboxStatus {
    /// - Parameter withBoxes: include each box kept for another node.
    init(_ node: isolated Node, withBoxes: Bool) {
        self.init(
            own: node.mailboxStanding.map { Self.own($0, isLocked: node.isLocked) },
            service: node.mailboxService.map { Self.service($0, withBoxes ? (try? node.peers.file()) : nil, withBoxes) }
        )
    }

    private static func own(_ standing: OwnMailboxStanding, isLocked: Bool) -> OwnMailboxStatus {
        var status = describe(standing.name, standing.standing, boxCount: standing.boxCount, isLocked: isLocked)
        status.boxes = standing.boxCount
        status.taken = Int64(clamping: standing.takenCount)
        switch standing.standing {
        case .granted(let grant):
            status.boxesMax = grant.boxCount
            status.slotsPerBox = grant.slotCount
            status.bytesPerBox = Int64(grant.byteCount)
            status.longest = Interval(milliseconds: grant.longest)
        case .refused(let refusal) where !isLocked: status.reason = "\(refusal)"
        default: break
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
        case .refused(.notServing):
            return status(
                .refused, "is not a mailbox",
                "ask its operator to run: mayfly run --mailbox; this node retries automatically")
        case .refused(.unknownPeer):
            return status(
                .refused, "does not know this node",
                "ask its operator to run: mayfly peer add NAME CARD, with the card that `mayfly peer card` prints "
                    + "here; this node retries automatically")
        case .refused(.full):
            return status(
                .refused, "has reached its limit of boxes",
                "ask its operator for more: `boxes` of `mailbox` in config.json there; this node retries automatically")
        case .refused(.unavailable):
            return status(
                .refused, "is locked", "ask its operator to run: mayfly unlock; this node retries automatically")
        case .refused(.other):
            return status(
                .refused, "refuses for a reason that this version does not know", "bring this node up to date")
        }
    }

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

    func checks(_ node: isolated Node) -> [HealthCheck] {
        var checks: [HealthCheck] = []
        if let own {
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
        if service?.serving ?? false {
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

    struct Status: MethodCommand {
        static let method = NodeMethods.mailboxStatus
        static let discussion = """
            For each box kept for others it shows the owner's peer name and the amount of data. Only the owner can \
            see more.

            Example:
              mayfly mailbox status --json | jq .own.state
            """

        @OptionGroup var global: GlobalOptions

        func show(_ status: MailboxStatus, _ terminal: Terminal) {
            if let own = status.own { show(own, terminal) }
            if let service = status.service { show(service, terminal) }
            if status.own == nil, status.service == nil {
                terminal.note(
                    "no mailbox here: name one with `mayfly peer set NAME mailbox=on`, "
                        + "or be one with `mayfly run --mailbox`")
            }
        }

        private func show(_ own: OwnMailboxStatus, _ terminal: Terminal) {
            terminal.fields([
                ("our mailbox", own.words), ("state", own.state.rawValue),
                ("boxes", own.boxesMax.map { "\(own.boxes) of \($0)" } ?? String(own.boxes)),
                ("slots of a box", own.slotsPerBox.map { String($0) }),
                ("bytes of a box", own.bytesPerBox.map { sizeText($0) }),
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
                        box.peer ?? "-", box.slots.map { String($0) } ?? "-", box.bytes.map { sizeText($0) } ?? "-",
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
            ("on disk", "\(sizeText(bytes))\(unread), \(sizeText(bytesPerBox)) of a box"),
            ("in memory", "\(sizeText(memoryBytes)) of \(sizeText(memoryBytesMax))"),
            ("kept for", "\(length(longest)) at most"),
            (
                "since the start",
                "\(put) put, \(taken) taken, \(discarded) discarded, \(expired) expired, \(refused) refused"
            ),
        ]
    }
}
