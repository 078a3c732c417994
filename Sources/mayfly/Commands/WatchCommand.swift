import ArgumentParser
import Control
import Glibc

struct WatchCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "watch",
        abstract: "Follow what happens, or wait until something does.",
        discussion: """
            With --until the exit code is 0 when it has happened and 4 when --timeout passes first; without, the end \
            of --timeout is no failure. Who waits in a conversation for `lifetimeAgreed` ends with 2 when what was \
            proposed is rejected. A `gap` says that events after --since are no longer kept. The keys \
            are the fields of the event, see `mayfly schema`. A value matches when it is equal; the start of an id is \
            enough. `from` is a name that a member has chosen, and another may \
            choose tomorrow; `member` is its id, see `mayfly conversation members`. --since 0 replays from the oldest \
            event still kept, so nothing that happened before the command started is missed.

            Examples:
              mayfly watch room --json
              mayfly watch room --until message:member=4f1c09ab3d2e --timeout 60
              mayfly watch --since 0 --until messageState:message=4f1c,state=delivered
            """
    )

    @Argument(help: "Only this conversation.") var conversation: String?
    @Option(parsing: .unconditional, help: ArgumentHelp("Replay everything after this cursor.", valueName: "cursor"))
    var since: Int64?
    @Option(help: ArgumentHelp("End when this happens.", valueName: "event[:key=value,…]")) var until: EventCondition?
    @Option(parsing: .unconditional, help: ArgumentHelp("Give up after this long.", valueName: "seconds")) var timeout:
        Interval?
    @OptionGroup var global: GlobalOptions

    func validate() throws {
        if let since, since < 0 { throw ValidationError("--since is 0 or a cursor from an earlier event") }
    }

    func perform(_ terminal: Terminal) throws {
        try until?.check()
        endOnInterrupt(code: until == nil ? 0 : 1)
        let deadline = timeout.map { ContinuousClock.now + $0.duration }
        let client = try connect()
        var (cursor, replayed) = try subscribe(client, since: since)
        var agreement = AwaitedAgreement(until, in: conversation)
        while true {
            // What had happened before is shown however short the time is: the node has sent it by now.
            let step = try client.nextEvent(
                until: replayed > 0 ? .now + Self.replayTime : deadline,
                for: STDOUT_FILENO
            )
            switch step {
            case .event(let event):
                replayed -= 1
                cursor = event["cursor"]?.integerValue ?? cursor
                let isAwaited = until?.matches(event) ?? false
                show(event, terminal, exitCode: until == nil || isAwaited ? 0 : 1)
                if isAwaited { return }
                agreement?.happened(event)
                // Of what has happened before only how it ended counts.
                if replayed <= 0, let rejection = agreement?.rejection {
                    throw ControlError(
                        .refused,
                        "the proposal was rejected (\(rejection["reason"]?.stringValue ?? "no reason was given"))",
                        hint: "propose other terms with `mayfly lifetime propose`"
                    )
                }
            case .dropped:
                // We were too slow; what we missed is still kept.
                (cursor, replayed) = try subscribe(client, since: cursor)
            case .unread: throw ExitCode(until == nil ? 0 : 1)
            case .timedOut:
                guard let until else { return }
                throw ControlError(
                    .timedOut,
                    "`\(until.text)` did not happen in time",
                    hint: "give a longer --timeout"
                )
            }
        }
    }

    private static let replayTime = Duration.seconds(30)

    /// - Returns: the cursor after which events are delivered, and how many of those have happened already.
    private func subscribe(_ client: ControlClient, since: Int64?) throws -> (cursor: Int64, replayed: Int) {
        let params = SubscribeMethod.Params(conversation: conversation, since: since)
        let answer = try understand(try client.call(SubscribeMethod.self, params), as: SubscribeMethod.Result.self)
        return (since ?? answer.cursor, answer.replayed ?? 0)
    }

    private func show(_ event: JSONValue, _ terminal: Terminal, exitCode code: Int32) {
        if terminal.json { return terminal.result(event, exitCode: code) }
        let common: Set = ["cursor", "event", "conversation", "at"]
        var words = [
            event["at"]?.stringValue ?? "-", event["cursor"]?.text ?? "-", event["event"]?.stringValue ?? "-",
            short(event["conversation"]?.stringValue ?? "-"),
        ]
        if case .object(let members) = event {
            for (name, value) in members.sorted(by: { $0.key < $1.key }) where !common.contains(name) {
                words.append("\(name)=\(value.stringValue ?? value.text)")
            }
        }
        terminal.result(words.map(safe).joined(separator: "  "), exitCode: code)
    }
}

/// Makes Ctrl-C and SIGTERM end the program with `code`, without a trace. Every line has been written by then.
private func endOnInterrupt(code: Int32) {
    for number in [SIGINT, SIGTERM] {
        if code == 0 {
            signal(number) { _ in _exit(0) }
        } else {
            signal(number) { _ in _exit(1) }
        }
    }
}
