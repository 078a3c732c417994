import Control
import Cryptography
import Messaging
import NodeRuntime

/// Whether messages to an offline member go to its mailbox.
enum MemberMailbox: String, JSONChoice, Hashable, Sendable {
    case yes
    /// The member has named a mailbox, but its keys for sealing contents have not arrived.
    case named
}

struct Member: CodableRecord {
    /// Short name within the conversation.
    var member = ""
    /// The name the member chose for this conversation.
    @OrNull var profile: String?
    /// The named peer that received the member's invite; known to the inviting node alone.
    var peer: String?
    var online = false
    /// `lan`, `direct`, `relayed` or `punched`; null without a link.
    @OrNull var path: String?
    @OrNull var link: Link?
    /// How the last link was lost. Absent after 10 minutes, or when a node closed the link on purpose.
    var lost: LostLink?
    /// Absent without a mailbox, without an agreement on mailboxes, and in a list while the inbox sleeps.
    var mailbox: MemberMailbox?
    /// True when two copies of the member's home run at once; otherwise absent.
    var copied: Bool?
    /// True when the member reports two running copies of our home; otherwise absent.
    var reportsCopies: Bool?
}

struct Conversation: CodableRecord {
    var conversation = ""
    /// Name on this node alone; unique here.
    @OrNull var alias: String?
    /// Name that the creator chose.
    @OrNull var name: String?
    /// `creator` or `member`.
    var role = ""
    var members: [Member] = []
    var lifetime: Lifetime = .ephemeral
    /// The mailbox term of the agreement; absent for none, and in a list while the inbox sleeps.
    var mailbox: MailboxConsent?
    /// When the conversation explodes; null when nothing is scheduled.
    @OrNull var expiresAt: Timestamp?
    var locked = false
    /// `ready`, `scheduled` (explodes at `expiresAt`) or `removed` (the creator removed us). The answer to
    /// `conversation.leave` says `left`.
    var state = ""
    /// Unread messages of other members, at most 1000.
    var unread = 0
    /// Our name in this conversation; absent without one, and in a list while the inbox sleeps.
    var profile: String?
    /// Whether this node sends read receipts; absent in a list while the inbox sleeps.
    var readReceipts: Bool?
    var inbox: String?
}

extension Conversation {
    /// - Parameter text: alias, id or name.
    init(_ text: String, _ node: isolated Node) throws(NodeError) { self.init(try node.conversation(text), node) }

    init(_ machine: Messaging.Conversation, _ node: isolated Node) {
        let paths = node.paths(of: machine)
        let losses = node.losses(of: machine)
        self.init(
            conversation: machine.conversation.description, alias: node.alias(of: machine.client),
            name: machine.record.name, role: machine.isCreator ? "creator" : "member",
            members: machine.currentMembers.map { one in
                let isOnline = machine.isOnline(one.key)
                return Member(
                    member: MemberName.id(one.key), profile: one.profile,
                    peer: node.peerName(of: one.key, in: machine.client), online: isOnline,
                    path: isOnline ? paths[one.key]?.kind.rawValue : nil,
                    link: isOnline ? paths[one.key].map { Link($0) } : nil, lost: losses[one.key].map { LostLink($0) },
                    mailbox: .init(one, machine, node),
                    copied: machine.isCopied(one.key, now: node.currentTime) ? true : nil,
                    reportsCopies: machine.reportsCopies(one.key, now: node.currentTime) ? true : nil)
            }, lifetime: machine.lifetime, mailbox: machine.agreement?.terms.mailbox.shown,
            expiresAt: machine.record.schedule?.expiresAt, locked: machine.record.group.isLocked,
            state: machine.record.isRemoved ? "removed" : machine.record.schedule == nil ? "ready" : "scheduled",
            unread: node.unreadCount(machine.client), profile: machine.record.own.profile,
            readReceipts: machine.record.sendsReadReceipts ?? node.sendsReadReceiptsByDefault,
            inbox: machine.client.description)
    }

    init(_ listed: ListedConversation, _ node: isolated Node) {
        switch listed {
        case .awake(let machine): self.init(machine, node)
        case .asleep(let summary):
            // The record holds scheduled actions, such as an explosion.
            if summary.deadline != nil, let machine = try? node.conversation(summary.client.description) {
                self.init(machine, node)
                return
            }
            self.init(
                conversation: summary.conversation.description, alias: node.alias(of: summary.client),
                name: summary.name, role: summary.isCreator ? "creator" : "member",
                members: summary.members.map {
                    Member(
                        member: MemberName.id($0.key), profile: $0.profile,
                        peer: node.peerName(of: $0.key, in: summary.client), online: false, path: nil)
                }, lifetime: summary.lifetime, locked: summary.isLocked, state: summary.isRemoved ? "removed" : "ready",
                unread: node.unreadCount(summary.client), inbox: summary.client.description)
        }
    }

    var title: String { (alias ?? name).map(safe) ?? short(safe(conversation)) }

    /// Includes us, unless we were removed.
    var memberCount: Int { members.count + (state == "removed" ? 0 : 1) }
}

extension MemberMailbox {
    fileprivate init?(_ member: Messaging.Member, _ machine: Messaging.Conversation, _ node: isolated Node) {
        guard machine.usesMailbox, member.mailbox != nil else { return nil }
        self = node.isMailable(member.key, in: machine) ? .yes : .named
    }
}

/// The word that names a conversation on a command line: its quoted alias, or a prefix of its id. The prefix is used
/// without an alias, or when the alias has a backquote, which would end the suggested command.
func handle(_ alias: String?, _ conversation: String) -> String {
    quoted(alias.map(safe).flatMap { $0.contains("`") ? nil : $0 } ?? short(safe(conversation)))
}

extension Conversation: ShownRecord, TableRecord {
    func show(_ terminal: Terminal) {
        terminal.fields([
            ("conversation", conversation), ("alias", alias ?? "-"), ("name", name ?? "-"), ("role", role),
            ("state", state), ("locked", locked ? "yes" : "no"),
            ("lifetime", lifetime.shown + (mailbox?.words.map { ", \($0)" } ?? "")), ("unread", Self.unread(unread)),
            ("your name", profile ?? "-"), ("read receipts", readReceipts.map { $0 ? "on" : "off" }),
            ("expires", shown(expiresAt)), ("members", String(memberCount)),
        ])
    }

    func showMembers(_ terminal: Terminal) {
        terminal.table(
            ["NAME", "MEMBER", "ONLINE", "MAILBOX", "PATH", "LINK", "RTT", "SINCE", "IN", "OUT"],
            members.map { member in
                [
                    member.profile ?? member.peer ?? "-", member.member, member.online ? "yes" : "no",
                    member.mailbox?.rawValue ?? "-", member.path ?? "-", member.link.map(shown) ?? "-",
                    milliseconds(member.link?.rttMs), shown(member.link?.since),
                    member.link.map { sizeText($0.bytesIn) } ?? "-", member.link.map { sizeText($0.bytesOut) } ?? "-",
                ]
            })
        for member in members {
            let name = (member.profile ?? member.peer).map(safe) ?? safe(member.member)
            if member.copied ?? false { terminal.note(Words.copies(of: name)) }
            if member.reportsCopies ?? false { terminal.note(Words.copies(reportedBy: name)) }
        }
        for member in members {
            guard let lost = member.lost else { continue }
            let place = "\(safe(member.member)) over \(safe(lost.transport))"
            terminal.note("the last link to \(place) was lost: \(lost.words)")
        }
    }

    private static let mostUnread = 1_000

    private static func unread(_ count: Int) -> String {
        count == 0 ? "-" : count < mostUnread ? String(count) : "\(mostUnread)+"
    }

    static func table(_ conversations: [Conversation], _ terminal: Terminal) {
        let latest = Dictionary(conversations.map { ($0.conversation, $0.inbox) }, uniquingKeysWith: { $1 })
        terminal.table(
            ["CONVERSATION", "ALIAS", "NAME", "UNREAD", "ROLE", "STATE", "MEMBERS", "LIFETIME", "EXPIRES"],
            conversations.map { one in
                [
                    // An id selects the latest copy of a conversation.
                    short(latest[one.conversation] == one.inbox ? one.conversation : one.inbox ?? one.conversation),
                    one.alias ?? "-", one.name ?? "-", unread(one.unread), one.role,
                    one.state + (one.locked ? ", locked" : ""), String(one.memberCount), one.lifetime.shown,
                    shown(one.expiresAt),
                ]
            })
        if conversations.isEmpty { terminal.note("no conversations; start one with `mayfly conversation create`") }
    }
}
