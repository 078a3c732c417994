import ArgumentParser
import Control
import Messaging
import NIOCore
import NodeRuntime

enum JoinMethods {
    static let all: [any ServedMethod] = [join, list, retry, cancel]

    static let join = NodeMethod<JoinParams, JoinStatus>(
        "join", "Join a conversation by an invitation or a code.",
        waits: .when { ($0.wait ?? true) || SpokenCode.isMeant(by: $0.slug) }
    ) { call, node, service in
        // `call.params` is cleared when this body returns.
        let params = call.params
        guard SpokenCode.isMeant(by: params.slug) else {
            guard params.at == nil else {
                throw ControlError(.usage, "--at requires a code; an invite contains its endpoints")
            }
            return try join(by: params.slug, nil, params, call, service, node)
        }
        let code = try Node.code(params.slug)
        let place = try params.at.map { text throws(ControlError) in try EndpointOption.place(text, option: "--at") }
        try node.invite(for: code, at: place).assumeIsolated().whenComplete { [node] outcome in
            node.assumeIsolated { node in
                do {
                    let found = try outcome.get()
                    try join(by: found.slug, found, params, call, service, node)
                } catch { call.fail(controlError(error)) }
            }
        }
    }

    static let list = NodeMethod<Nothing, JoinListResult>(
        "join.list", "List the joins in progress and the invitations to answer."
    ) { _, node in
        let joins = try node.joins().map { try JoinStatus($0.client, node) }
        return .now(JoinListResult(joins: node.peers.invitations().map { JoinStatus($0) } + joins))
    }

    static let retry = NodeMethod<JoinIDParams, JoinStatus>("join.retry", "Dial the creator of a join again now.") {
        params, node in .now(try JoinStatus(try node.retryJoin(params.join), node))
    }

    static let cancel = NodeMethod<JoinIDParams, JoinStatus>("join.cancel", "Cancel a join or decline an invitation.") {
        params, node in
        let prefix = params.join.lowercased()
        let invitations = node.peers.invitations().filter { $0.id.description.hasPrefix(prefix) }
        // A prefix that fits an invitation and a join is ambiguous.
        let ids =
            invitations.map(\.id.description)
            + (try node.joins()).map(\.client.description).filter { $0.hasPrefix(prefix) }
        if !prefix.isEmpty, ids.count > 1 { throw NodeError.ambiguous(params.join, matches: ids) }
        if !prefix.isEmpty, let invitation = invitations.first {
            node.peers.dismissInvitation(invitation.id)
            var status = JoinStatus(invitation)
            status.state = .cancelled
            return .durable(status, node)
        }
        var status = try JoinStatus(try node.resolveJoin(params.join).client, node)
        try node.cancelJoin(params.join)
        status.state = .cancelled
        return .durable(status, node)
    }

    /// Starts a join and answers the call when the join has started or ended.
    /// - Parameter found: the answer to a spoken code, if the invite came from one.
    private static func join(
        by slug: String, _ found: CodeInvite?, _ params: JoinParams, _ call: MethodCall<JoinParams, JoinStatus>,
        _ service: MethodService, _ node: isolated Node
    ) throws {
        // Only a user may name an invitation by its id. A code's invite comes from another node.
        let slug = found == nil ? try JoinStatus.slug(slug, node) : slug
        let (profile, alias, asks) = (params.profile, params.alias, params.accept == false ? true : nil)
        let begin: JoinWait.Beginning = { (node: isolated Node) throws(NodeError) in
            try node.join(slug, profile: profile, alias: alias, asks: asks)
        }
        let waiting = params.wait == false ? nil : call
        // A user who names a join that asks agrees to it.
        if params.slug.count >= 4, let asking = try? node.resolveJoin(params.slug), asking.offer != nil {
            node.agreeToJoin(asking.client)
            let wait = JoinWait(asking.client, params.timeout, waiting, service.deadlines)
            return waiting == nil ? call.succeed(try JoinStatus(asking.client, node)) : wait.begin(node)
        }
        let wait: JoinWait
        do throws(NodeError) { wait = JoinWait(try begin(node), params.timeout, waiting, service.deadlines) } catch {
            if found != nil, case .invite = error {
                throw ControlError(
                    .refused, "the node that has the code sent no invite",
                    hint: "ask the person who made it for a new one")
            }
            // A repeated request: use the running join, or the conversation it led to.
            guard case .command(.alreadyMember(let known)) = error else { throw error }
            wait = JoinWait(known, params.timeout, waiting, service.deadlines)
            if asks == nil { node.agreeToJoin(known) }
            if node.joinOutcome(known) != nil, node.isMember(known) == nil {
                try node.askCreator(of: known, by: slug)
                wait.membership = JoinWait.Membership(alias: alias, begin: begin)
            } else if let alias {
                try node.assignAlias(alias, to: known)
            }
        }
        if let found { node.dial(wait.client, found) }
        var started = try JoinStatus(wait.client, node)
        if wait.membership != nil { started.state = .validating }
        wait.begin(node)
        guard waiting == nil else { return }
        node.whenCommitted().assumeIsolated().whenComplete { outcome in
            call.complete(outcome.map { started }.mapError { controlError($0) })
        }
    }
}

/// A request waiting for the end of a join. Used on the node's loop only.
private final class JoinWait: @unchecked Sendable {
    // @unchecked: mutable state is confined to the node's loop.

    typealias Beginning = (isolated Node) throws(NodeError) -> ClientID

    /// For an invite to a known conversation. The creator may have removed us while one of the nodes was offline.
    struct Membership {
        /// New alias of the conversation, if we are still a member.
        let alias: String?
        /// Joins by the invite, if we are no longer a member.
        let begin: Beginning
    }

    private(set) var client: ClientID
    /// `nil` after the creator's answer, and for a new conversation.
    var membership: Membership?
    private let timeout: Interval?
    /// `nil` when the request was already answered and only the membership check goes on.
    private let call: MethodCall<JoinParams, JoinStatus>?
    private let deadlines: DeadlineQueue
    /// `nil` except during the wait.
    private var watcher: UInt64?
    private var deadline: UInt64 = 0
    private var closeAction: UInt64 = 0

    init(
        _ client: ClientID, _ timeout: Interval?, _ call: MethodCall<JoinParams, JoinStatus>?,
        _ deadlines: DeadlineQueue
    ) {
        self.client = client
        self.timeout = timeout
        self.call = call
        self.deadlines = deadlines
    }

    /// The outcome of the join; `nil` while it is in progress.
    private func answer(_ node: isolated Node) -> Result<JoinStatus, any Error>? {
        // The join goes on, but a locked node cannot read its state.
        if node.isLocked { return .failure(controlError(NodeError.locked)) }
        if let membership {
            guard let isMember = node.isMember(client) else { return nil }
            self.membership = nil
            do throws(NodeError) {
                if !isMember {
                    client = try membership.begin(node)
                } else if let alias = membership.alias {
                    try node.assignAlias(alias, to: client)
                }
            } catch {
                guard case .command(.alreadyMember(let other)) = error else { return .failure(controlError(error)) }
                client = other
            }
        }
        return JoinStatus.ended(client, node).map { .success($0) }
    }

    private func lateAnswer(_ node: isolated Node) -> Result<JoinStatus, any Error> {
        guard membership == nil else {
            return .failure(
                ControlError(
                    .timedOut,
                    "the conversation exists here, but its creator does not answer whether you are still a member",
                    hint: "try again when the creator's node runs"))
        }
        return Result { try JoinStatus(client, node) }.mapError { controlError($0) }
    }

    // MARK: The wait

    /// Answers now, after the event that ends the join, or at the timeout.
    func begin(_ node: isolated Node) {
        guard call != nil || membership != nil else { return }
        if let answer = answer(node) {
            call?.complete(answer)
            return
        }
        watcher = node.watch { [self, unowned node] _ in
            // Deferred: an event arrives within a turn of the core, and a join starts its own turn.
            node.loop.execute { [self] in node.assumeIsolated { look($0) } }
        }
        deadline = deadlines.add(after: .milliseconds(timeout?.milliseconds ?? 60_000)) { [self, unowned node] in
            node.assumeIsolated { node in end(node, lateAnswer(node)) }
        }
        closeAction = call?.session.onClose { [self, unowned node] in node.assumeIsolated { end($0, nil) } } ?? 0
    }

    private func look(_ node: isolated Node) {
        guard watcher != nil, let answer = answer(node) else { return }
        end(node, answer)
    }

    private func end(_ node: isolated Node, _ answer: Result<JoinStatus, any Error>?) {
        guard let watcher else { return }
        self.watcher = nil
        node.unwatch(watcher)
        deadlines.remove(deadline)
        call?.session.removeOnClose(closeAction)
        if let answer { call?.complete(answer) }
    }
}

extension JoinStatus {
    init(_ invitation: ReceivedInvitation) {
        let from = invitation.from ?? "a node that is not in peers.json"
        let name = invitation.name.map { " to \"\($0)\"" } ?? ""
        self.init(
            join: invitation.id.description, state: .invited, name: invitation.name, from: invitation.from,
            message: "\(from) invites you\(name); accept: mayfly join \(invitation.id.description.prefix(12))",
            startedAt: invitation.receivedAt)
    }

    init(_ client: ClientID, _ node: isolated Node) throws(NodeError) {
        let joins = try node.joins()
        if let ended = Self.ended(client, node) {
            self = ended
            return
        }
        guard let join = joins.first(where: { $0.client == client }) else {
            self.init(join: client.description, state: .cancelled)
            return
        }
        self.init(
            join: client.description, state: .joining, inviteTag: join.record.invite.tag.description,
            startedAt: join.record.startedAt, expiresAt: join.record.startedAt + Limits.joinLifetime,
            attempts: join.attempts, nextAttempt: join.nextAttempt)
    }

    /// `nil` while the join is in progress.
    fileprivate static func ended(_ client: ClientID, _ node: isolated Node) -> JoinStatus? {
        switch node.joinOutcome(client) {
        case nil:
            guard let offer = (try? node.joins())?.first(where: { $0.client == client })?.offer else { return nil }
            let names = Dictionary(offer.members.map { ($0.key, $0.profile) }) { $1 }
            return JoinStatus(
                join: client.description, state: .validated, name: offer.group.name,
                agreement: offer.agreement.map {
                    LifetimeAgreement($0) { key in
                        let id = MemberName.id(key)
                        return NamedMember(member: id, name: (names[key] ?? nil) ?? id)
                    }
                })
        case .success(let machine):
            return JoinStatus(
                join: client.description, state: .ready, conversation: machine.conversation.description,
                alias: node.alias(of: client), name: machine.record.name,
                agreement: machine.agreement.map { LifetimeAgreement($0, machine, node) })
        case .failure(.joinFailed(let type)):
            let tag = (try? node.joins())?.first { $0.client == client }?.record.invite.tag.description
            return JoinStatus(
                join: client.description, state: .joinFailed, inviteTag: tag, errorType: type.rawValue,
                title: type.userFacingTitle, message: type.userFacingMessage)
        case .failure: return JoinStatus(join: client.description, state: .cancelled)
        }
    }

    fileprivate static func slug(_ text: String, _ node: isolated Node) throws(NodeError) -> String {
        let matches = node.peers.invitations().filter { $0.id.description.hasPrefix(text.lowercased()) }
        return matches.count == 1 && text.utf8.count >= 4 ? matches[0].slug : text
    }
}

enum JoinStage: String, JSONChoice, Hashable, Sendable {
    /// A peer sent an invitation; `mayfly join` accepts it.
    case invited
    /// The creator is asked whether we are still a member.
    case validating
    /// The creator has admitted us to a conversation that keeps messages as `agreement` says. `mayfly join ID` agrees.
    case validated
    case joining
    case ready
    case joinFailed
    case cancelled
}

struct JoinStatus: CodableRecord {
    var join = ""
    var state: JoinStage = .invited
    /// Present when ready.
    var conversation: String?
    /// Alias on this node; present when ready, unless there is none.
    var alias: String?
    /// The creator's name for the conversation; present when ready or invited, unless it has no name.
    var name: String?
    /// The agreement of the conversation; present when ready or validated, unless it keeps nothing.
    var agreement: LifetimeAgreement?
    /// The named peer that sent the invitation; present when invited by one.
    var from: String?
    var inviteTag: String?
    /// Present when failed: `conversation_expired`, `single_use_consumed` or `generic_failure`.
    var errorType: String?
    /// Short text for a person; present when failed.
    var title: String?
    /// Sentence for a person; present when failed.
    var message: String?
    var startedAt: Timestamp?
    /// When the join gives up.
    var expiresAt: Timestamp?
    /// Dials to the creator since the node started; present while joining.
    var attempts: Int?
    /// When the node next dials the creator; present while joining, absent during a dial.
    var nextAttempt: Timestamp?
}

struct JoinParams: CodableRecord {
    /// An invite link with or without `mayfly:join/`, the id of a received invitation or of a `validated` join, or a
    /// spoken code.
    var slug = ""
    /// Our name, as the members see it.
    var profile: String?
    /// Absent means 60 s.
    var timeout: Interval?
    /// False answers at once. Absent means true.
    var wait: Bool?
    /// False asks with state `validated` if the conversation keeps what the default policy does not accept. Absent
    /// means true.
    var accept: Bool?
    /// Alias on this node. Absent means the conversation's name, with a number appended if it is in use.
    var alias: String?
    /// Address of the code's issuer: HOST, HOST:PORT or tcp://HOST:PORT. Absent means this network.
    var at: String?

    enum CodingKeys: String, CodingKey {
        case slug
        case profile = "as"
        case timeout, wait, accept, alias, at
    }
}

struct JoinListResult: CodableRecord { var joins: [JoinStatus] = [] }

struct JoinIDParams: CodableRecord {
    /// Id, or a prefix of it.
    var join = ""
}

extension JoinIDParams: OneArgument {
    struct Argument: ParsableArguments {
        @ArgumentParser.Argument(help: "The id from `mayfly join list`.") var id: String
    }
    init(_ argument: Argument) { self.init(join: argument.id) }
}

struct JoinCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        JoinMethods.join,
        discussion: """
            Usage: mayfly join SLUG [--at HOST] [--as PROFILE] [--alias NAME] [--accept] [--timeout 60] [--no-wait] \
            [--home DIR] [--json]

            SLUG is an invite, the id of an invitation from `mayfly join list`, or a code from `mayfly invite create C \
            --code`. `-` reads it from standard input, which hides it from the process list. The node searches for a \
            code on this network; elsewhere --at names the machine where it was made. A code allows one guess: after a \
            wrong guess it is void.

            --alias sets the local alias. The default is the conversation's name, or name-2, name-3 … if another \
            conversation has that alias or name.

            To join is to agree to what the conversation keeps. On a terminal the command asks first, unless nothing \
            is kept, or the default policy or --accept allows it.

            If the conversation exists on this node already, the creator is asked whether you are still a member. The \
            exit code is 0 if you are, and 4 if the creator does not answer. If you were removed, you join again.

            The command ends with the creator's answer: 0 ready, 2 refused, 3 expired. With 4, no answer in time, the \
            join goes on; see `mayfly join list`.

            Examples:
              mayfly join 'mayfly:join/…' --as ann
              mayfly join 'mayfly:join/…' --alias night-shift
              mayfly join - < invite.txt
              mayfly join 'mayfly:join/…' --no-wait
              mayfly join 7-harvest-lamp --as ann
              mayfly join 7-harvest-lamp --at desk.example.org
              mayfly join retry 3f2a
              mayfly join cancel 3f2a
            """, subcommands: [With.self, ListCall<List>.self, Call<Cancel>.self, Call<Retry>.self],
        defaultSubcommand: With.self)

}

extension JoinStatus: ShownRecord, TableRecord {
    static func table(_ joins: [JoinStatus], _ terminal: Terminal) {
        terminal.table(
            ["JOIN", "STATE", "FROM", "TO", "STARTED", "GIVES UP", "ATTEMPTS", "NEXT ATTEMPT", "TAG"],
            joins.map { join in
                [
                    short(join.join), join.state.rawValue, sender(of: join), join.name ?? "-", shown(join.startedAt),
                    shown(join.expiresAt), join.attempts.map(String.init) ?? "-", shown(join.nextAttempt),
                    join.inviteTag ?? "-",
                ]
            })
        if joins.isEmpty { terminal.note("no joins in progress") }
        for join in joins where join.isAsking {
            let id = short(safe(join.join))
            if let agreement = join.agreement { terminal.note("\(id) keeps messages: \(agreement.words)") }
            terminal.note("accept with `mayfly join \(id)`, refuse with `mayfly join cancel \(id)`")
        }
    }

    private static func sender(of join: JoinStatus) -> String {
        join.from ?? (join.state == .invited ? "not in peers.json" : "-")
    }

    fileprivate var failure: ControlError? {
        switch state {
        case .ready: return nil
        case .joinFailed:
            let kind: FailureKind = errorType == "conversation_expired" ? .expired : .refused
            return ControlError(
                kind,
                "\(title.map { "\($0): " } ?? "the join failed: ")\(message ?? errorType ?? "no reason was given")",
                hint: "ask for a new invitation")
        case .cancelled: return ControlError(.failed, "the join was cancelled")
        case .invited, .validating, .validated, .joining:
            return ControlError(
                .timedOut, "no answer in time; the join goes on",
                hint: "see `mayfly join list`, cancel it with `mayfly join cancel \(short(join))`")
        }
    }
}

extension JoinCommand {
    struct With: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "with", abstract: "Join by an invitation or a code.")

        @Argument(help: "The invitation, with or without `mayfly:join/`, a code, or `-`.", completion: .spokenCode)
        var slug: String
        @Argument(help: ArgumentHelp(visibility: .hidden)) var words: [String] = []
        @Option(
            help: ArgumentHelp("The machine where the code was made. Default port: 7440.", valueName: "host[:port]"))
        var at: String?
        @Option(name: .customLong("as"), help: "Your name for the members; '' for none.") var profile: String?
        @Option(help: ArgumentHelp("The local alias.", valueName: "name")) var alias: String?
        @Option(time: "How long to wait for the answer. Default: 60.") var timeout: Interval?
        @Flag(help: "Do not wait for the answer.") var noWait = false
        @Flag(help: "Agree to keep messages as the conversation does, without a question.") var accept = false
        @OptionGroup var global: GlobalOptions

        func validate() throws {
            guard let word = words.first, !SpokenCode.isMeant(by: ([slug] + words).joined(separator: " ")) else {
                return
            }
            throw ValidationError("Unexpected argument '\(word)'")
        }

        func perform(_ terminal: Terminal) throws {
            let timeout = timeout ?? Interval(milliseconds: 60_000)
            var params = JoinParams(
                slug: try invite(), profile: try profile ?? OwnName.ask(global, terminal), timeout: timeout,
                wait: noWait ? false : nil, accept: accept || !Terminal.canAsk(terminal) ? nil : false, alias: alias,
                at: at)
            let client = try connect()
            func join() throws -> JSONValue {
                // Redeeming a spoken code takes some seconds before the join.
                try client.call(JoinMethods.join, params, timeout: timeout.withGrace + .seconds(30))
            }
            var value = try join()
            var status = try understand(value, as: JoinStatus.self)
            if status.state == .validated, let agreement = status.agreement {
                terminal.note("\(safe(status.name ?? "the conversation")) keeps messages: \(agreement.words)")
                guard Terminal.asksYes("Join, and keep them so?", terminal) else {
                    _ = try client.call(JoinMethods.cancel, .init(join: status.join))
                    throw ControlError(.failed, "not joined", hint: "the invitation is used up if it was for one")
                }
                params.slug = status.join
                value = try join()
                status = try understand(value, as: JoinStatus.self)
            }
            var failure = status.failure
            if noWait, failure?.kind == .timedOut { failure = nil }
            if terminal.json {
                // The result describes the failure; the exit code gives its kind.
                terminal.result(value, exitCode: failure?.kind.exitCode ?? 0)
                if let failure { throw ExitCode(failure.kind.exitCode) }
                return
            }
            if let failure { throw failure }
            terminal.fields([
                ("join", short(status.join)), ("state", status.state.rawValue), ("conversation", status.conversation),
                ("alias", status.alias), ("name", status.name),
                ("messages", status.conversation.map { _ in status.agreement?.words ?? "memory only" }),
            ])
            if let conversation = status.conversation {
                let name = handle(status.alias, conversation)
                if params.profile == nil, OwnName.isMissing(home: try global.resolvedHome()) {
                    terminal.note(
                        "you have no name here: `mayfly conversation profile \(name) NAME`, or join --as NAME")
                }
                terminal.note("talk with `mayfly chat \(name)`, or send with `mayfly send \(name) TEXT`")
            }
        }

        private static let inviteByteLimit = 1 << 16

        /// The text to join by. For `-` it is the first line of standard input, which keeps the invite out of process
        /// lists.
        private func invite() throws(ControlError) -> String {
            guard slug == "-" else { return ([slug] + words).joined(separator: " ") }
            let bytes = try InputFile.read("-", byteLimit: Self.inviteByteLimit)
            // Editors of other systems start a file with a byte order mark.
            let text = String(decoding: bytes.trimmingPrefix([0xEF, 0xBB, 0xBF]), as: UTF8.self)
            let lines = text.split(whereSeparator: \.isNewline)
            let line = lines.first { $0.contains { !$0.isWhitespace } }
            guard let words = line?.split(whereSeparator: \.isWhitespace), let word = words.first else {
                throw ControlError(.usage, "there is no invite on standard input", hint: "paste it, then Ctrl-D")
            }
            // A spoken code may be typed with spaces.
            let said = words.joined(separator: " ")
            return SpokenCode.isMeant(by: said) ? said : String(word)
        }
    }

    enum List: ListAction {
        typealias Element = JoinStatus
        static let method = JoinMethods.list
        static let list = "joins"
    }

    enum Cancel: MethodAction { static let method = JoinMethods.cancel }
    enum Retry: MethodAction { static let method = JoinMethods.retry }
}
