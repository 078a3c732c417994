import ArgumentParser
import Control
import Glibc
import Messaging
import NodeRuntime

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

}

extension ExplodeCommand {
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
            let asked = at ?? delay.map { Timestamp(milliseconds: wallClock().milliseconds + $0.milliseconds) }
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
            let time = at.map { " at \($0.exactISO8601)" } ?? delay.map { " \(shown(after: $0))" } ?? ""
            try Terminal.confirm(
                "This destroys '\(name)' for all \(found.memberCount) members\(time) and cannot be undone.",
                byTyping: name)
        }

        private func shown(after delay: Interval) -> String {
            let now = wallClock()
            return "at " + Program.shown(Timestamp(milliseconds: now.milliseconds + delay.milliseconds), now: now)
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
