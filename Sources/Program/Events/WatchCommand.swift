import ArgumentParser
import Control
import Glibc
import Messaging

struct WatchCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "watch", abstract: "Print events as they occur, or wait for one event.",
        discussion: """
            With --until only the awaited event, the events of --only and `gap` are printed. The exit code is 0 when \
            the event has occurred, and 4 when --timeout passes first. Without --until a timeout is not a failure. \
            `watch C --until lifetimeAgreed` ends with 2 when the proposal is rejected. A node that does not answer \
            for 35 s, as when it is stopped, ends it with 4, too; with --reconnect it waits.

            --since CURSOR replays the events after that cursor, so none is missed between two commands. --since 0 \
            replays the 1,000 newest. A `gap` event, printed always, says that events after the cursor are no \
            longer kept, and how many. After a crash the number is unknown. A bot then reads what it has missed.

            The keys are the fields of the event; see `mayfly schema`. A value matches if it is equal; for an id its \
            start is enough. `from` is a name that a member chooses and may change. `member` is the member's id; see \
            `mayfly conversation members`.

            Examples:
              mayfly watch room --json
              mayfly watch --only message,exploded --reconnect
              mayfly watch room --until message:member=4f1c09ab3d2e --timeout 60
              mayfly watch --since 0 --until messageState:message=4f1c,state=delivered
            """)

    @Argument(help: "Only this conversation.", completion: .conversation) var conversation: String?
    @Option(
        .init("Replay the events after this cursor.", valueName: "cursor"),
        expected: { _ in "0, or the `cursor` of an earlier event" }, read: { Int64($0).flatMap { $0 < 0 ? nil : $0 } })
    var since: Int64?
    @Option(help: ArgumentHelp("End when this event occurs.", valueName: "event[:key=value,…]")) var until:
        EventCondition?
    @Option(help: ArgumentHelp("Print only these events.", valueName: "event,…")) var only: EventKinds?
    @Option(time: "End after this time.") var timeout: Interval?
    @Flag(help: "Reconnect when the node has restarted or hung. Also wait for a node that does not run yet.")
    var reconnect = false
    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        try until?.check()
        endOnInterrupt()
        let deadline = timeout.map { ContinuousClock.now + $0.duration }
        var progress = Progress(cursor: since, agreement: AwaitedAgreement(until, in: conversation))
        var isWaiting = false
        while true {
            let end: End
            do {
                let client = try connect()
                isWaiting = false
                end = try follow(client, &progress, until: deadline, terminal)
            } catch let error as ControlError where reconnect && Self.mayPass(error) {
                if !isWaiting { terminal.note("waiting for the node: \(error.message)") }
                isWaiting = true
                end = Self.pause(until: deadline)
            }
            switch end {
            case .happened: return
            case .disconnected: continue
            case .timedOut:
                guard let until else { return }
                throw ControlError(.timedOut, "`\(until.text)` did not happen in time", hint: "give a longer --timeout")
            }
        }
    }

    private struct Progress {
        /// Cursor of the newest event seen; `nil` before the first subscription, which starts with new events.
        var cursor: Int64?
        var agreement: AwaitedAgreement?
        var names = Names()
    }

    /// Titles of conversations and names of members, by id. The short id stands for an unknown name.
    private struct Names {
        private(set) var titles: [String: String] = [:]
        private(set) var members: [String: String] = [:]

        mutating func learn(_ event: JSONValue, _ client: ControlClient) {
            let (member, kind) = (event["member"]?.stringValue, event["event"]?.stringValue)
            if kind == EventKind.unlocked.rawValue { self = Names() }
            guard let id = event["conversation"]?.stringValue else { return }
            let changing: [EventKind] = [.memberJoined, .profileChanged, .conversationUpdated]
            guard
                titles[id] == nil || member.map({ members[$0] == nil }) ?? false
                    || changing.contains(where: { $0.rawValue == kind })
            else { return }
            titles[id] = titles[id] ?? short(id)
            if let member { members[member] = members[member] ?? short(member) }
            guard let value = try? client.call(ConversationMethods.show, .init(conversation: id)),
                let conversation = try? value.decoded(as: Conversation.self)
            else { return }
            // A name is the creator's choice, and may be that of another conversation.
            titles[id] =
                conversation.alias.map(safe) ?? conversation.name.map { "\(safe($0)) (\(short(id)))" } ?? short(id)
            let names = conversation.members.map { $0.profile ?? $0.peer } + [conversation.profile]
            for (index, known) in conversation.members.enumerated() {
                guard let name = names[index] else { continue }
                let others = names.enumerated().compactMap { $0.offset == index ? nil : $0.element }
                let isClear = MemberName.isClear(name, among: others)
                members[known.member] = isClear ? name : "\(name) (\(known.member))"
            }
        }
    }

    private enum End {
        case happened
        case disconnected
        case timedOut
    }

    /// A transient error: the node is starting or hangs, or it is locked and does not know the conversation.
    private static func mayPass(_ error: ControlError) -> Bool { [.noNode, .timedOut, .locked].contains(error.kind) }

    private static let reconnectPause = Duration.milliseconds(200)

    private static func pause(until deadline: ContinuousClock.Instant?) -> End {
        let left = deadline.map { $0 - .now } ?? reconnectPause
        guard left > .zero else { return .timedOut }
        usleep(useconds_t(min(left, reconnectPause) / .microseconds(1)))
        return .disconnected
    }

    /// - Throws: `noNode` when the node disconnects.
    private func follow(
        _ client: ControlClient, _ progress: inout Progress, until deadline: ContinuousClock.Instant?,
        _ terminal: Terminal
    ) throws -> End {
        var replayed = try subscribe(client, &progress)
        while true {
            // Replayed events are shown even with a short timeout, because the node has sent them already.
            let step = try client.nextEvent(until: replayed > 0 ? .now + Self.replayTime : deadline, for: STDOUT_FILENO)
            switch step {
            case .event(let event):
                replayed -= 1
                progress.cursor = event["cursor"]?.integerValue ?? progress.cursor
                let isAwaited = until?.matches(event) ?? false
                if isAwaited || isShown(event["event"]?.stringValue.flatMap(EventKind.init(rawValue:))) {
                    if !terminal.json { progress.names.learn(event, client) }
                    show(event, progress.names, terminal, exitCode: until == nil || isAwaited ? 0 : 1)
                }
                if isAwaited { return .happened }
                progress.agreement?.happened(event)
                // A replayed rejection counts only if no later event supersedes it.
                if replayed <= 0, let rejection = progress.agreement?.rejection {
                    throw ControlError(
                        .refused,
                        "the proposal was rejected (\(rejection["reason"]?.stringValue ?? "no reason was given"))",
                        hint: "propose other terms with `mayfly lifetime propose`")
                }
            case .dropped:
                // Missed events are still kept by the node.
                replayed = try subscribe(client, &progress)
            case .unread: throw ExitCode(until == nil ? 0 : 1)
            case .timedOut: return .timedOut
            }
        }
    }

    private static let replayTime = Duration.seconds(30)

    /// - Returns: the number of replayed events that follow.
    private func subscribe(_ client: ControlClient, _ progress: inout Progress) throws -> Int {
        let params = SubscribeParams(
            conversation: conversation, since: progress.cursor, events: wanted,
            // The user does not see the messages in which an event is searched.
            marksRead: until == nil || only?.kinds.contains(.message) ?? false ? nil : false)
        let answer = try client.result(EventMethods.subscribe, params)
        progress.cursor = progress.cursor ?? answer.cursor
        return answer.replayed ?? 0
    }

    private var wanted: [EventKind]? {
        guard until != nil || only != nil else { return nil }
        var kinds = only?.kinds ?? []
        if let until { kinds.append(until.event) }
        if AwaitedAgreement(until, in: conversation) != nil { kinds += AwaitedAgreement.kinds }
        return kinds
    }

    /// A gap is always shown, because it may hide the events that the user waits for.
    func isShown(_ kind: EventKind?) -> Bool {
        if kind == .gap { return true }
        return only.map { only in kind.map(only.kinds.contains) ?? false } ?? (until == nil)
    }

    private static let ids: Set = ["message", "member", "proposal", "agreement", "join"]

    private func show(_ event: JSONValue, _ names: Names, _ terminal: Terminal, exitCode code: Int32) {
        if terminal.json { return terminal.result(event, exitCode: code) }
        let kind = event["event"]?.stringValue.flatMap(EventKind.init(rawValue:))
        var words = [
            event["at"]?.stringValue.flatMap { Timestamp(iso8601: $0) }.map { localTime(of: $0).clock } ?? "-",
            event["cursor"]?.text ?? "-", event["event"]?.stringValue ?? "-",
            event["conversation"]?.stringValue.flatMap { names.titles[$0] } ?? "-",
        ]
        if kind == .message {
            words.append("\(event["from"]?.stringValue ?? "-"): \(event["text"]?.stringValue ?? "-")")
        }
        for name in kind == .message ? ["message"] : kind?.fields ?? [] {
            guard let value = event[name], value != .null else { continue }
            let text = value.stringValue ?? value.text
            let isID = Self.ids.contains(name) && kind != .joinFailed
            words.append("\(name)=\(isID ? name == "member" ? names.members[text] ?? text : short(text) : text)")
        }
        terminal.result(words.map(safe).joined(separator: "  "), exitCode: code)
    }
}

/// Ctrl-C and SIGTERM end the program with 128 and their number, as a shell shows it. All lines are written by then.
func endOnInterrupt() { for number in [SIGINT, SIGTERM] { signal(number) { _exit(128 + $0) } } }

/// `EVENT[:key=value[,key=value…]]`
struct EventCondition: ExpressibleByArgument, Sendable {
    let text: String
    let event: EventKind
    private let values: [(key: String, value: String)]
    /// A part that is not `key=value`.
    private var unreadable: Substring?

    init?(argument: String) {
        let parts = argument.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        guard let event = EventKind(rawValue: String(parts[0])) else { return nil }
        var values: [(key: String, value: String)] = []
        if parts.count == 2 {
            for pair in parts[1].split(separator: ",", omittingEmptySubsequences: false) {
                let words = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
                if words.count == 2, !words[0].isEmpty, words[0].allSatisfy(\.isLetter) {
                    values.append((words[0], words[1]))
                } else if let last = values.last {
                    // Without a `key=` after it, a comma belongs to the value.
                    values[values.count - 1].value = "\(last.value),\(pair)"
                } else {
                    unreadable = pair
                }
            }
            for index in values.indices where Self.isID(values[index].key, of: event) {
                values[index].value = values[index].value.lowercased()
            }
        }
        self.text = argument
        self.event = event
        self.values = values
    }

    static var allValueStrings: [String] { EventKind.allCases.map(\.rawValue) }

    func check() throws(ControlError) {
        let fields = EventKind.commonFields + event.fields
        if let unreadable {
            throw ControlError(
                .usage, "`\(unreadable)` is not KEY=VALUE",
                hint: "the keys of `\(event.rawValue)` are \(fields.joined(separator: ", "))")
        }
        for (key, value) in values {
            guard fields.contains(key) else {
                throw ControlError(
                    .usage, "`\(event.rawValue)` has no field `\(key)`",
                    hint: "it has \(fields.joined(separator: ", "))")
            }
            let possible = EventKind.values(of: key)
            guard possible.isEmpty || possible.contains(value) else {
                throw ControlError(
                    .usage, "`\(key)` is never `\(value)`", hint: "it is one of \(possible.joined(separator: ", "))")
            }
            if Self.isID(key, of: event) { try Self.checkID(key, value) }
        }
    }

    private static func checkID(_ key: String, _ value: String) throws(ControlError) {
        let digits = Set("0123456789abcdef-".utf8)
        guard value.utf8.allSatisfy(digits.contains) else {
            let hint =
                switch key {
                case "conversation": "give a name before: `mayfly watch NAME --until …`"
                case "member": "see `mayfly conversation members`; names are in `from` and `profile`"
                default: "give the beginning of an id"
                }
            throw ControlError(.usage, "`\(key)` is an id, and `\(value)` is none", hint: hint)
        }
        guard value.utf8.count >= idPrefixByteCount else {
            throw ControlError(
                .usage, "`\(value)` is too short for the beginning of an id",
                hint: "give at least \(idPrefixByteCount) characters of it")
        }
    }

    func matches(_ candidate: JSONValue) -> Bool {
        candidate["event"]?.stringValue == event.rawValue && agrees(with: candidate) { _ in true }
    }

    func names(_ key: String) -> Bool { values.contains { $0.key == key } }

    /// Whether the values of these keys equal the candidate's. The candidate may be an event of another kind.
    func agrees(with candidate: JSONValue, in keys: (String) -> Bool) -> Bool {
        values.filter { keys($0.key) }.allSatisfy { key, value in
            guard let actual = candidate[key] else { return false }
            guard let text = actual.stringValue else { return actual.text == value }
            guard Self.isID(key, of: event), value.utf8.count >= Self.idPrefixByteCount else { return text == value }
            return text.hasPrefix(value)
        }
    }

    private static let idPrefixByteCount = 4

    private static func isID(_ key: String, of event: EventKind) -> Bool {
        switch key {
        // In `joinFailed` the field holds a text.
        case "message": event != .joinFailed
        case "conversation", "inbox", "member", "join", "proposal", "agreement", "replyTo", "reactsTo": true
        default: false
        }
    }
}

/// `EVENT[,EVENT…]`
struct EventKinds: ExpressibleByArgument, Sendable {
    let kinds: [EventKind]

    init?(argument: String) {
        let names = argument.split(separator: ",", omittingEmptySubsequences: false)
        kinds = names.compactMap { EventKind(rawValue: String($0)) }
        if kinds.count < names.count { return nil }
    }

    static var allValueStrings: [String] { EventKind.allCases.map(\.rawValue) }
}

/// Follows the proposal whose agreement a command waits for.
struct AwaitedAgreement {
    static let kinds: [EventKind] = [.lifetimeProposed, .lifetimeAgreed, .lifetimeRejected]

    private let condition: EventCondition
    /// The newest proposal; `nil` when it was made before the command started.
    private var proposal: JSONValue?
    private(set) var rejection: JSONValue?

    /// - Returns: `nil` for other conditions, and without a conversation: any other conversation may still reach an
    ///   agreement.
    init?(_ condition: EventCondition?, in conversation: String?) {
        guard let condition, condition.event == .lifetimeAgreed, conversation != nil || condition.names("conversation")
        else { return nil }
        self.condition = condition
    }

    mutating func happened(_ event: JSONValue) {
        guard let kind = event["event"]?.stringValue.flatMap(EventKind.init(rawValue:)),
            condition.agrees(with: event, in: { EventKind.commonFields.contains($0) })
        else { return }
        switch kind {
        case .lifetimeProposed:
            proposal = event
            rejection = nil
        case .lifetimeAgreed: rejection = nil
        case .lifetimeRejected:
            // Ignores the rejection of another proposal, and of a proposal whose terms do not match the condition.
            if let proposal, proposal["proposal"] != event["proposal"] { return }
            if let proposal, !condition.agrees(with: proposal, in: LifetimeTermsRecord.fieldNames.contains) { return }
            rejection = event
        default: break
        }
    }
}
