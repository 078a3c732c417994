import Control
import Glibc
import Messaging

/// The chat in lines: commands and texts on standard input, events on standard output.
final class PlainSession {
    private let jobs: FileJobs
    private let client: ControlClient
    private var model: ChatModel
    private var transcript = Transcript()
    private var requests: [RequestID: ChatRequest] = [:]
    private var input = LineReader()
    private var jobCount = 0
    /// Whether a leading slash means a command: true for a user at a terminal, false for piped text.
    private let takesCommands: Bool
    private var isOver = false
    /// First failed request of the input; it determines the exit code of a pipe.
    private var failure: ControlError?

    init(home: String, room: String?, takesCommands: Bool) throws(ControlError) {
        self.takesCommands = takesCommands
        jobs = try FileJobs(home: home)
        client = try ControlClient(home: home)
        model = ChatModel(room: room, now: wallClock(), calendar: { localTime(of: $0) })
    }

    /// Runs until the input has ended and all answers are in, or the node disconnects.
    func run() throws(ControlError) {
        signal(SIGPIPE, SIG_IGN)
        try perform(model.begin())
        while !isOver, !input.hasEnded || !requests.isEmpty || jobCount > 0 {
            model.now = wallClock()
            try perform(model.handle(.tick))
            for line in transcript.update(&model) {
                guard DescriptorOutput.write("\(line)\n".utf8, to: STDOUT_FILENO) == nil else { return }
            }
            try wait()
        }
        for line in transcript.update(&model) { _ = DescriptorOutput.write("\(line)\n".utf8, to: STDOUT_FILENO) }
        // At a terminal the user has already seen the notice.
        if isatty(STDIN_FILENO) == 0, let failure { throw failure }
    }

    private func wait() throws(ControlError) {
        // Each line waits for the previous answer, because its meaning may depend on it.
        let takesInput = !input.hasEnded && requests.isEmpty
        if takesInput, try takeLine() { return }
        var polled = [
            pollfd(fd: takesInput ? STDIN_FILENO : -1, events: Int16(POLLIN), revents: 0),
            pollfd(fd: jobs.descriptor, events: Int16(POLLIN), revents: 0),
            pollfd(fd: client.descriptor, events: Int16(client.hasUnsent ? POLLIN | POLLOUT : POLLIN), revents: 0),
            pollfd(fd: STDOUT_FILENO, events: 0, revents: 0),
        ]
        guard poll(&polled, nfds_t(polled.count), -1) > 0 else { return }
        if polled[3].revents & Int16(POLLERR) != 0 { isOver = true }
        if polled[1].revents != 0 {
            for outcome in jobs.take() {
                jobCount -= 1
                try perform(model.handle(outcome))
            }
        }
        if polled[2].revents != 0 { try readNode() }
        if polled[0].revents != 0 {
            try input.read()
            if input.hasEnded { _ = try takeLine() }
        }
    }

    private func takeLine() throws(ControlError) -> Bool {
        switch input.next() {
        case nil: return false
        case .refused(let error):
            failure = failure ?? error
            _ = model.handle(.said(error.message, isFailure: true))
        case .text(let line):
            let effects = takesCommands ? model.enter(line: line) : model.say(line)
            if effects.isEmpty, failure == nil, let refusal = model.refusal {
                failure = ControlError(model.isLocked ? .locked : .usage, refusal)
            }
            try perform(effects)
        }
        return true
    }

    private func readNode() throws(ControlError) {
        try client.sendPosted()
        for response in try client.responses() {
            guard let input = ChatInput(response, &requests) else { continue }
            if case .answer(.action, .failure(var error)) = input, failure == nil {
                error.conversation = model.currentID
                failure = error
            }
            try perform(model.handle(input))
        }
    }

    private func perform(_ effects: [ChatEffect]) throws(ControlError) {
        for effect in effects {
            switch effect {
            case .call(let request, let method, let params): requests[try client.post(method, params)] = request
            case .upload, .save:
                jobCount += 1
                jobs.start(effect)
            case .bell, .preview, .remember: break
            case .quit: isOver = true
            }
        }
    }
}

/// The chat as lines for pipes, slow terminals and screen readers. Each line appears once.
struct Transcript {
    private var messages: Set<HexID> = []
    private var noteCount = 0
    private var roomID: String?
    private var proposal: String?
    private var retention: String?
    private var notice: String?
    private var ended: Lifetime?
    private var receipts: Set<String> = []
    /// Messages already reported as mailed.
    private var mailed: Set<HexID> = []
    private var listed: [String] = []
    private var question: String?

    init() {}

    /// The new lines since the last call.
    mutating func update(_ model: inout ChatModel) -> [String] {
        var lines: [String] = []
        if let lostConnection = model.lostConnection, notice != lostConnection {
            notice = lostConnection
            lines.append("* no node: \(lostConnection)")
        }
        if model.currentID != roomID {
            self = Transcript()
            roomID = model.currentID
        }
        if let room = model.room { lines += update(room, model) } else { lines += list(model) }
        if let overlay = model.overlay {
            lines += Self.lines(of: overlay)
            model.overlay = nil
        }
        let asked = Self.words(model.question, model)
        if let asked, asked != question { lines.append(asked) }
        question = asked
        if let said = model.notice {
            lines.append("* \(said.text)")
            model.notice = nil
        }
        return lines
    }

    private mutating func update(_ room: Room, _ model: ChatModel) -> [String] {
        if room.isExploded { return explosion(room, model) }
        var lines: [String] = []
        let kept =
            room.explodesAt.map { "explodes \(Words.time($0, now: model.now, model.calendar))" }
            ?? (room.retention == .ephemeral ? "memory only" : "kept \(Words.lifetime(room.retention)) on disk")
        // Waits for the node's answer.
        if room.lifetime != nil, kept != retention {
            lines.append("* \(room.title): \(kept)")
            retention = kept
        }
        for message in room.messages where messages.insert(message.message).inserted {
            lines += Self.lines(of: message, room, model)
        }
        for message in room.messages
        where message.member == nil && message.state == "mailed" && mailed.insert(message.message).inserted {
            lines.append("* your message of \(model.calendar(message.sentAt).clock) is in the mailbox")
        }
        for note in room.notes.suffix(min(room.notes.count, room.noteTotal - noteCount)) {
            lines.append("* \(note.text)")
        }
        noteCount = room.noteTotal
        let open = room.lifetime?.proposal
        if let open, open.id != proposal {
            let who = open.member == nil ? "you propose" : "\(Words.name(open.from)) proposes"
            let answer = open.member == nil ? "/withdraw withdraws the proposal" : "/accept or /reject"
            let what = ([Words.lifetime(open.terms.lifetime)] + ChatModel.terms(open.terms)).joined(separator: ", ")
            lines.append("* \(who) \(what) (now \(Words.lifetime(room.retention))): \(answer)")
        }
        proposal = open?.id
        if let over = room.endedLifetime, over != ended {
            lines.append(
                "* the agreement of \(Words.lifetime(over)) has ended: in memory only now; /propose \(over.rawValue)")
        }
        ended = room.endedLifetime
        return lines
    }

    private static func lines(of message: Message, _ room: Room, _ model: ChatModel) -> [String] {
        var texts = message.file.map { ["[file \(ShownText.line($0.name)), \(Words.size($0.byteCount))]"] } ?? []
        texts += ShownText.lines(message.text ?? "").filter { !$0.isEmpty || message.file == nil }
        let answers = message.replyTo.flatMap { id in room.messages.first { $0.message.description == id } }
        if let answers { texts[0] = "(to \(ChatModel.you(answers.from))) " + texts[0] }
        let end = message.expiresAt.map { "  (gone \(Words.time($0, now: model.now, model.calendar)))" } ?? ""
        let head = "\(model.calendar(message.sentAt).clock) \(ShownText.line(message.from)): "
        return texts.enumerated().map { index, text in
            let tail = index == texts.count - 1 ? end : ""
            // Continuation lines are indented, so that none can pass for a message.
            return index == 0 ? "\(head)\(text)\(tail)" : "      \(text)\(tail)"
        }
    }

    private mutating func explosion(_ room: Room, _ model: ChatModel) -> [String] {
        var lines: [String] = []
        if receipts.insert("").inserted { lines.append("* \(room.title) has exploded: its keys are destroyed") }
        for receipt in room.explosion?.receipts ?? [] where receipts.insert(receipt.member).inserted {
            let time = Words.time(receipt.destroyedAt, now: model.now, model.calendar)
            lines.append("* \(room.name(of: receipt.member)) has destroyed its copy, \(time)")
        }
        return lines
    }

    private mutating func list(_ model: ChatModel) -> [String] {
        let rooms = model.rooms.enumerated().map { index, room in
            let unread = room.unreadCount > 0 ? ", \(room.unreadCount) new" : ""
            return "\(index + 1) \(room.title)\(unread)"
        }
        let joins = model.joins.filter { $0.state == .invited }.map { join in
            let name = join.name.map { " to \"\(ShownText.line($0))\"" } ?? ""
            let from = ShownText.line(join.from ?? "a node")
            return "* \(from) invites you\(name): /join \(join.join.prefix(12)), or /decline"
        }
        let lines = rooms + joins
        guard lines != listed, !lines.isEmpty else { return [] }
        listed = lines
        return lines + ["* /open CONVERSATION"]
    }

    private static func lines(of overlay: ChatModel.Overlay) -> [String] {
        switch overlay {
        case .help: SlashCommand.helpLines
        case .text(let title, let lines), .invite(let title, let lines, _):
            ["* \(title)"] + lines.filter { !$0.isEmpty && !$0.hasPrefix("q shows") }
        case .code, .image: []
        }
    }

    private static func words(_ question: ChatModel.Question?, _ model: ChatModel) -> String? {
        switch question {
        case .explode(let id, _, let isScheduled):
            "* all copies are destroyed \(isScheduled ? "at that time" : "now"): "
                + "type \(model.room(id)?.title ?? "") to go on"
        case .leave(let id): "* your copy is destroyed: type \(model.room(id)?.title ?? "") to go on"
        case .paste, .reaction, .invitation, .name, nil: nil
        }
    }
}
