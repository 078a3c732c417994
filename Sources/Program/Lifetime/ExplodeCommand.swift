import ArgumentParser
import Control
import Cryptography
import Glibc
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
                conversation: machine.conversation.description, name: node.alias(of: machine.client), state: "none")
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

extension ExplosionStatus: ShownRecord, RowRecord {
    func names(of members: [String]) -> String {
        let names = members.map { member in self.names?.first { $0.member == member }?.name ?? member }
        return names.isEmpty ? "-" : names.map(safe).joined(separator: ", ")
    }

    static let head = ["CONVERSATION", "NAME", "STATE", "AT", "CONFIRMED", "WAITING FOR"]
    static let none = "no explosions in the last 45 days, and none scheduled"
    var cells: [String] {
        [short(conversation), name ?? "-", state, shown(expiresAt), names(of: confirmed), names(of: waiting)]
    }

    func show(_ terminal: Terminal) {
        terminal.fields([
            ("conversation", short(conversation)), ("name", name), ("state", state), ("at", shown(expiresAt)),
            ("by", by), ("confirmed", names(of: confirmed)), ("error", error), ("waiting for", names(of: waiting)),
        ])
    }
}

struct ExplodeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "explode", abstract: "Destroy a conversation for all members.",
        discussion: """
            Usage: mayfly explode C [--at ISO8601 | --in 2h] [--no-trace] [--wait [--timeout 60]] [--force]

            Asks you to type the displayed name to confirm. --force skips the question and is required without a \
            terminal. An explosion cannot be undone. With --at or --in every member destroys its copy at that time, \
            online or not. A schedule can move earlier but never later, and is at most 365 d ahead.

            --wait prints each confirmation. The exit code is 0 when all members have confirmed, or 4 when --timeout \
            passes first. After that, the node still notifies the missing members for 7 d.

            --no-trace stores no list of members to notify (endpoints and knock keys, kept for 7 d). Offline members \
            then learn of the explosion from another member, by asking this node later, or never. In any case a sealed \
            tombstone without content or endpoint stays for 45 d, with your alias unless --no-trace. It prevents the \
            conversation from coming back.

            Examples:
              mayfly explode room
              mayfly explode room --force
              mayfly explode room --wait --timeout 60
              mayfly explode room --in 2h
              mayfly explode room --at 2026-12-24T18:00:00Z --force
              mayfly explode status 4f1c09ab      the name works, too, unless exploded with --no-trace
              mayfly explode list                 names and ids of the last 45 days, and scheduled ones
            """, subcommands: [Now.self, Status.self, ListCall<List>.self], defaultSubcommand: Now.self)

    struct Now: NodeCommand {
        static let configuration = CommandConfiguration(commandName: "now", abstract: ExplodeMethods.explode.summary)

        @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String
        @Option(
            .init("Explode at this time.", valueName: "iso8601"), expected: Timestamp.format,
            read: { Timestamp(iso8601: $0) }) var at: Timestamp?
        // Elsewhere a bare number is seconds.
        @Option(
            name: .customLong("in"), .init("Explode after this time: 30m, 2h, 7d.", valueName: "time"),
            expected: { _ in "a time with its unit: 30m, 2h, 7d" },
            read: { $0.last?.isLetter == true ? Interval(text: $0) : nil }) var delay: Interval?
        @Flag(help: "Store no list of members to notify: offline members learn of it from others, or never.")
        var noTrace = false
        @Flag(help: "Do not ask for confirmation.") var force = false
        @Flag(help: "Wait until every member has confirmed, and print each confirmation.") var wait = false
        @Option(time: "How long to --wait; after that the exit code is 4.") var timeout: Interval?
        @OptionGroup var global: GlobalOptions

        func validate() throws {
            if at != nil, delay != nil { throw ValidationError("give only one of --at and --in") }
            if let at, at.milliseconds < wallClock().milliseconds - 60_000 {
                throw ValidationError("--at: \(at.exactISO8601) is in the past; to explode now, omit --at")
            }
            if timeout != nil, !wait { throw ValidationError("--timeout requires --wait") }
            if let delay, delay.milliseconds <= 0 {
                throw ValidationError("--in: expected a time in the future; to explode now, omit --in")
            }
        }

        func perform(_ terminal: Terminal) throws {
            if !force, isatty(STDIN_FILENO) != 1 {
                throw ControlError(.usage, "not exploded: there is no terminal to confirm on", hint: "use --force")
            }
            let client = try connect()
            let shown = try show(client)
            if let shown, !force { try confirm(shown) }
            let members = Members(of: shown, named: conversation, client)
            let target = members.conversation
            // At the limit of waiting clients the subscription is refused; the state is polled all the same.
            if wait { try? members.subscribe() }
            let params = ExplodeParams(conversation: target, at: at, delay: delay, noTrace: noTrace ? true : nil)
            var value: JSONValue
            do { value = try client.call(ExplodeMethods.explode, params, timeout: .seconds(60)) } catch {
                throw error.about(conversation)
            }
            var isInTime = true
            if wait {
                let deadline = timeout.map { ContinuousClock.now + $0.duration }
                (value, isInTime) = try members.follow(value, until: deadline, terminal)
            }
            let status = try members.status(value)
            let code =
                isInTime
                ? wait && status.state == "error" ? FailureKind.failed.exitCode : 0 : FailureKind.timedOut.exitCode
            if terminal.json {
                terminal.result(value, exitCode: code)
            } else {
                status.show(terminal)
                note(status, terminal)
            }
            if code != 0 { throw ExitCode(code) }
        }

        private func note(_ status: ExplosionStatus, _ terminal: Terminal) {
            if status.state == "scheduled" { return noteSchedule(status, terminal) }
            if status.trace == false {
                terminal.note(
                    "no list of members to notify is stored: offline members learn of it from others, or never")
            }
            if !status.waiting.isEmpty {
                terminal.note(
                    "see who has confirmed with `mayfly explode status \(short(safe(status.conversation)))`; "
                        + "`mayfly explode list` shows it again")
            }
        }

        private func noteSchedule(_ status: ExplosionStatus, _ terminal: Terminal) {
            let asked = at ?? delay.map { wallClock() + $0.milliseconds }
            if let asked, let end = status.expiresAt, end.milliseconds + 2_000 < asked.milliseconds {
                terminal.note(
                    "the explosion is earlier than requested: a schedule never moves later, and is at most 365 d ahead")
            }
            terminal.note(
                "see which members know of it with `mayfly explode status \(short(safe(status.conversation)))`")
        }

        /// The conversation; with --force `nil` when it cannot be shown. Then it has exploded already, or `explode`
        /// reports the error.
        private func show(_ client: ControlClient) throws -> Conversation? {
            do { return try client.result(ConversationMethods.show, .init(conversation: conversation)) } catch {
                guard force, ![.noNode, .timedOut].contains(error.kind) else { throw error }
                return nil
            }
        }

        private func confirm(_ found: Conversation) throws {
            let name = found.title
            let now = wallClock()
            let time = at.map(\.exactISO8601) ?? delay.map { shown(now + $0.milliseconds, now: now) }
            let words = time.map { " at \($0)" } ?? ""
            try Terminal.confirm(
                "This destroys '\(name)' for all \(found.memberCount) members\(words) and cannot be undone.",
                byTyping: name)
        }
    }

    /// The members of a conversation, with names saved before the explosion destroys them.
    private struct Members {
        private let client: ControlClient
        let conversation: String
        private let names: [NamedMember]

        /// - Parameter found: `nil` when the conversation cannot be shown; its members then have no names.
        init(of found: Conversation?, named text: String, _ client: ControlClient) {
            self.client = client
            // The id, so that no other conversation explodes if names change meanwhile.
            conversation = found?.conversation ?? text
            names = (found?.members ?? []).compactMap { member in
                (member.profile ?? member.peer).map { NamedMember(member: member.member, name: $0) }
            }
        }

        func subscribe() throws {
            let params = SubscribeParams(
                conversation: conversation, since: nil, events: [.deletionReceipt, .exploded], marksRead: false)
            _ = try client.call(EventMethods.subscribe, params)
        }

        func status(_ value: JSONValue) throws -> ExplosionStatus {
            var status = try understand(value, as: ExplosionStatus.self)
            status.names = status.names ?? names
            return status
        }

        /// Polling interval: no event reports that a member knows a scheduled explosion.
        private static let pause = Duration.seconds(1)

        /// Prints each confirmation until all members have confirmed.
        /// - Returns: the node's last answer, and whether all members have confirmed.
        func follow(_ answer: JSONValue, until deadline: ContinuousClock.Instant?, _ terminal: Terminal) throws -> (
            value: JSONValue, isComplete: Bool
        ) {
            var value = answer
            var confirmed: Set<String>?
            while true {
                let status = try status(value)
                for member in status.confirmed where !(confirmed?.contains(member) ?? false) {
                    let time = status.receipts?.first { $0.member == member }?.destroyedAt
                    terminal.note("\(status.names(of: [member])) ✓ \(shown(time ?? wallClock()))")
                }
                if status.waiting.isEmpty { return (value, true) }
                if confirmed == nil { terminal.note("waiting for \(status.names(of: status.waiting))") }
                confirmed = Set(status.confirmed)
                if let deadline, deadline <= .now { return (value, false) }
                let pause = ContinuousClock.now + Self.pause
                if case .dropped = try client.nextEvent(until: min(deadline ?? pause, pause)) { try? subscribe() }
                value = try client.call(ExplodeMethods.status, .init(conversation: conversation))
            }
        }
    }

    struct Status: MethodCommand {
        static let method = ExplodeMethods.status

        @Argument(help: "The name, or the id from `mayfly explode list`.", completion: .explodedConversation)
        var conversation: String
        @OptionGroup var global: GlobalOptions

        func params(_ terminal: Terminal) -> ConversationParams { .init(conversation: conversation) }
    }

    enum List: ListAction {
        typealias Element = ExplosionStatus
        static let method = ExplodeMethods.list
        static let list = "explosions"
        static var from: WritableKeyPath<ListParams, String?>? { \.from }
        static let discussion = """
            NAME is the local name. CONFIRMED lists the members that have signed a deletion receipt. For a \
            scheduled explosion it lists the members that know of it. Only the creator's node collects receipts.

            Examples:
              mayfly explode list
              mayfly explode list --json
            """
    }
}
