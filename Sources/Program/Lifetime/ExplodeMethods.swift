import Control
import Cryptography
import Messaging
import NIOCore
import NodeRuntime

struct ExplosionStatus: CodableRecord {
    var conversation = ""
    /// Alias on this node; kept sealed for 45 days after the explosion.
    var name: String?
    /// When every member destroys its copy; null without an explosion.
    @OrNull var expiresAt: Timestamp?
    /// `none`, `scheduled`, `exploding`, `exploded` or `error`.
    var state = ""
    /// Members that signed a deletion receipt; while scheduled, members that acknowledged the schedule.
    var confirmed: [String] = []
    /// Members that have not confirmed.
    var waiting: [String] = []
    /// Destruction times by the members' own clocks.
    var receipts: [Receipt]?
    /// Names as in ``Message/from``; absent once the node has restarted after the explosion, which keeps none.
    var names: [NamedMember]?
    /// The creator, who alone explodes a conversation, named as in ``Message/from``.
    var by: String?
    /// False when the node keeps no list of members to notify.
    var trace: Bool?
    /// The error in state `error`; the node retries.
    var error: String?

    struct Receipt: CodableRecord {
        var member = ""
        var destroyedAt: Timestamp = Timestamp(milliseconds: 0)
    }
}

struct ExplodeParams: CodableRecord {
    var conversation = ""
    /// The default is now, without `at` and `in`.
    var at: Timestamp?
    var delay: Interval?
    /// Keep no list of members to notify: offline members learn of the explosion from other members, or never.
    var noTrace: Bool?

    enum CodingKeys: String, CodingKey {
        case conversation, at
        case delay = "in"
        case noTrace
    }
}

struct ExplodeListResult: CodableRecord {
    /// Ascending by time.
    var explosions: [ExplosionStatus] = []
    /// Present when the answer was cut; pass it as `from`.
    var next: String?
}

enum ExplodeMethods {
    static let all: [any ServedMethod] = [explode, status, list]

    static let explode = NodeMethod<ExplodeParams, ExplosionStatus>(
        "explode", "Destroy a conversation now or at a set time."
    ) { params, node in
        if let record = try destroyed(params.conversation, node) { return .now(ExplosionStatus(record, node)) }
        var time = ExplosionTime.now
        switch (params.at, params.delay) {
        case (nil, nil): break
        case (let at?, nil): time = .at(at)
        case (nil, let delay?): time = .after(delay.milliseconds)
        case (_?, _?): throw ControlError(.usage, "give only one of `at` and `in`")
        }
        let conversation: ConversationID
        do throws(NodeError) {
            conversation = try node.explode(params.conversation, time, isTraceless: params.noTrace ?? false)
        } catch {
            guard case .command(.notCreator) = error else { throw error }
            throw ControlError(
                .failed, "only the conversation's creator may explode it",
                hint: "`mayfly conversation leave C` destroys your own copy")
        }
        let id = conversation.description
        let status = try ExplosionStatus(id, node)
        if status.state == "scheduled" { return .durable(status, node) }
        // Waits for the commit, so that members are notified even after a crash. The keys are destroyed even if a
        // full disk refuses the commit.
        return .later(
            node.whenCommitted().flatMapErrorThrowing { _ in }.map { [node] in
                node.assumeIsolated { (try? ExplosionStatus(id, $0)) ?? status }
            })
    }

    static let status = NodeMethod<ConversationParams, ExplosionStatus>(
        "explode.status", "Show which members have confirmed an explosion."
    ) { params, node in
        do { return .now(try ExplosionStatus(params.conversation, node)) } catch NodeError.unknownConversation(
            let text, nil)
        {
            throw ControlError(
                .notFound, "no conversation `\(text)`", hint: "`mayfly explode list` shows what has exploded")
        }
    }

    /// By time. No inbox is woken.
    static let list = NodeMethod<ListParams, ExplodeListResult>(
        "explode.list", "List the explosions of the last 45 days, and scheduled ones."
    ) { params, node in
        let all = try node.explosions().map { ($0, $0.place) }.sorted { $0.1 < $1.1 }
        let (shown, next) = try AnswerPage.list(
            all, from: params.from, atMost: 256, byteCount: { AnswerPage.largestByteCount(of: $0) },
            show: { one -> ExplosionStatus in
                switch one {
                case .exploded(let record): ExplosionStatus(record, node)
                case .scheduled(let machine): ExplosionStatus(machine, node)
                }
            })
        return .now(ExplodeListResult(explosions: shown, next: next))
    }

    /// The record of an exploded conversation; `nil` for a living one.
    private static func destroyed(_ text: String, _ node: isolated Node) throws -> ExplosionRecord? {
        let record = try node.explosion(text)
        // A locked node does not know the names of living conversations, so a prefix could mean one of them. It accepts
        // only a full id.
        if let record, node.isLocked, record.conversation.description != text.lowercased() { throw NodeError.locked }
        return record
    }
}

extension ExplosionStatus {
    fileprivate init(_ text: String, _ node: isolated Node) throws(NodeError) {
        if let record = try node.explosion(text) {
            self.init(record, node)
        } else {
            self.init(try node.conversation(text), node)
        }
    }

    fileprivate init(_ record: ExplosionRecord, _ node: isolated Node) {
        let known = node.names(ofExploded: record.conversation)
        func name(_ key: PublicKey) -> String { known[key] ?? MemberName.id(key) }
        self.init(
            conversation: record.conversation.description, name: record.name, expiresAt: record.explodedAt,
            state: "exploded",
            confirmed: record.members.filter { record.confirmed[$0] != nil }.map { MemberName.id($0) },
            waiting: record.waiting.map { MemberName.id($0) },
            receipts: record.members.compactMap { key in
                record.confirmed[key].map { ExplosionStatus.Receipt(member: MemberName.id(key), destroyedAt: $0) }
            },
            names: known.isEmpty ? nil : record.members.map { NamedMember(member: MemberName.id($0), name: name($0)) },
            by: record.role == .creator ? MemberName.own : record.creator.map(name), trace: !record.isTraceless)
        switch node.progress(of: record.conversation) {
        case .exploded: break
        case .exploding: state = "exploding"
        case .failed(let failure):
            state = "error"
            error = "the keys could not be destroyed yet: \(failure)"
        }
    }

    fileprivate init(_ machine: Messaging.Conversation, _ node: isolated Node) {
        guard let schedule = machine.record.schedule else {
            self.init(
                conversation: machine.conversation.description, name: node.alias(of: machine.client), state: "none",
                confirmed: [], waiting: [])
            return
        }
        let members = machine.currentMembers.map(\.key)
        self.init(
            conversation: machine.conversation.description, name: node.alias(of: machine.client),
            expiresAt: schedule.expiresAt, state: "scheduled",
            confirmed: members.filter(schedule.confirmed.contains).map { MemberName.id($0) },
            waiting: members.filter { !schedule.confirmed.contains($0) }.map { MemberName.id($0) },
            names: members.map { NamedMember(member: MemberName.id($0), name: MemberName.shown($0, machine, node)) },
            by: machine.isCreator ? MemberName.own : MemberName.shown(machine.record.genesis.creator, machine, node),
            trace: machine.isCreator ? !schedule.isTraceless : nil)
    }
}

extension ListedExplosion {
    fileprivate var place: ListPlace {
        switch self {
        case .exploded(let record): ListPlace(at: record.explodedAt, id: record.conversation.description)
        case .scheduled(let machine):
            ListPlace(at: machine.record.schedule?.expiresAt ?? .latest, id: machine.conversation.description)
        }
    }
}

extension ExplosionStatus: ShownRecord, TableRecord {
    func names(of members: [String]) -> String {
        let names = members.map { member in self.names?.first { $0.member == member }?.name ?? member }
        return names.isEmpty ? "-" : names.map(safe).joined(separator: ", ")
    }

    static func table(_ explosions: [ExplosionStatus], _ terminal: Terminal) {
        terminal.table(
            ["CONVERSATION", "NAME", "STATE", "AT", "CONFIRMED", "WAITING FOR"],
            explosions.map { status in
                [
                    short(status.conversation), status.name ?? "-", status.state, shown(status.expiresAt),
                    status.names(of: status.confirmed), status.names(of: status.waiting),
                ]
            })
        if explosions.isEmpty { terminal.note("no explosions in the last 45 days, and none scheduled") }
    }

    func show(_ terminal: Terminal) {
        terminal.fields([
            ("conversation", short(conversation)), ("name", name), ("state", state), ("at", shown(expiresAt)),
            ("by", by), ("confirmed", names(of: confirmed)), ("error", error), ("waiting for", names(of: waiting)),
        ])
    }
}
