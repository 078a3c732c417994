import ArgumentParser
import Control
import Messaging

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
                    short(join.join), join.state.rawValue,
                    join.from ?? (join.state == .invited ? "not in peers.json" : "-"), join.name ?? "-",
                    shown(join.startedAt), shown(join.expiresAt), join.attempts.map(String.init) ?? "-",
                    shown(join.nextAttempt), join.inviteTag ?? "-",
                ]
            })
        if joins.isEmpty { terminal.note("no joins in progress") }
        for join in joins where join.isAsking {
            let id = short(safe(join.join))
            if let agreement = join.agreement { terminal.note("\(id) keeps messages: \(agreement.words)") }
            terminal.note("accept with `mayfly join \(id)`, refuse with `mayfly join cancel \(id)`")
        }
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
            if terminal.json { return try terminal.result(value, failure: failure) }
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
