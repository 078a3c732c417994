import ArgumentParser
import Control
import Glibc
import Messaging
import NodeRuntime

struct ChatCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "chat", abstract: "Chat in a conversation, full screen.",
        discussion: """
            Without CONVERSATION the chat begins with the list of conversations. The screen always shows how long your \
            messages are kept. The chat stores no messages, and clears the screen at the end. /help shows keys and \
            commands. Commands of the shell do the same:
            \(SlashCommand.equivalents)

            --plain prints and reads lines: for pipes, slow connections and screen readers. It is the default if \
            standard input or output is not a terminal.

            Examples:
              mayfly chat room
              mayfly chat room --plain
              echo 'the build is done' | mayfly chat room --plain
            """)

    @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String?
    @Flag(help: "Print lines instead of a full screen.") var plain = false
    @Flag(help: "Run piped lines that begin with a slash as commands; without this flag they are texts.") var commands =
        false
    @OptionGroup var global: GlobalOptions

    func validate() throws {
        if global.json { throw ValidationError("chat is for people; scripts use send, read and watch with --json") }
    }

    func run() throws {
        try global.reporting { _ in
            let home = try global.resolvedHome()
            let isPlain = plain || isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0
            let room = try conversation.map { try id(of: $0, home: home, isPlain: isPlain) }
            if isPlain {
                let takesCommands = commands || isatty(STDIN_FILENO) == 1
                try PlainSession(home: home, room: room, takesCommands: takesCommands).run()
            } else {
                try ChatSession(home: home, room: room).run()
            }
        }
    }

    /// Reports an unknown conversation before the terminal is taken over. At a locked node the chat begins with the
    /// page of the lock, and looks for the conversation after the unlock.
    private func id(of word: String, home: String, isPlain: Bool) throws(ControlError) -> String {
        let params = ConversationParams(conversation: word)
        do throws(ControlError) {
            let answer = try ControlClient(home: home).call(ConversationMethods.show, params)
            return try understand(answer, as: Conversation.self).conversation
        } catch  where error.kind == .locked && !isPlain { return word }
    }
}

/// Event loop of the chat: passes keys, node events, signals, finished file jobs and timers to the model, and draws its
/// screen.
final class ChatSession {
    /// Milliseconds to wait after Escape for the rest of a sequence.
    private static let escapeTime: Int64 = 50
    /// The pause between reconnection attempts.
    private static let retryTime = Duration.seconds(1)

    private let home: String
    private let screen: TerminalScreen
    private let jobs: FileJobs
    private var model: ChatModel
    private var renderer: Renderer
    private var parser = KeyParser()
    private var client: ControlClient?
    private var requests: [RequestID: ChatRequest] = [:]
    private var retryAt = ContinuousClock.now
    private var isOver = false

    init(home: String, room: String?) throws(ControlError) {
        self.home = home
        screen = try TerminalScreen()
        jobs = try FileJobs(home: home)
        model = ChatModel(
            room: room, now: wallClock(), calendar: { localTime(of: $0) }, asksName: OwnName.isMissing(home: home),
            paths: { FileJobs.paths($0) }, makeQRCode: { QRCode.rows(for: $0) })
        renderer = Renderer(hasColours: (getenv("NO_COLOR").map { $0.pointee == 0 } ?? true))
    }

    func run() throws(ControlError) {
        // Before the terminal changes, so that a missing node is reported normally.
        try connect()
        try screen.open()
        defer { screen.close() }
        while !isOver {
            model.now = wallClock()
            perform(model.handle(.resized(screen.size)) + model.handle(.tick))
            guard screen.write(renderer.update(model.picture(screen.size))) else { return }
            wait()
        }
    }

    private func connect() throws(ControlError) {
        let client = try ControlClient(home: home)
        self.client = client
        model.process = client.process
        perform(model.begin())
    }

    private func wait() {
        var polled = [
            pollfd(fd: STDIN_FILENO, events: Int16(POLLIN), revents: 0),
            pollfd(fd: screen.signalDescriptor, events: Int16(POLLIN), revents: 0),
            pollfd(fd: jobs.descriptor, events: Int16(POLLIN), revents: 0),
            pollfd(
                fd: client?.descriptor ?? -1, events: Int16(client?.hasUnsent ?? false ? POLLIN | POLLOUT : POLLIN),
                revents: 0),
        ]
        let count = poll(&polled, nfds_t(polled.count), timeLeft)
        if polled[1].revents != 0 { for number in screen.takeSignals() { take(signal: number) } }
        if count <= 0 {
            if count == 0, let key = parser.timePassed() { perform(model.handle(.key(key))) }
        } else {
            if polled[0].revents != 0 { readKeys() }
            if polled[2].revents != 0 { for outcome in jobs.take() { perform(model.handle(outcome)) } }
            if polled[3].revents != 0 { readNode() }
        }
        if client == nil, ContinuousClock.now >= retryAt {
            do throws(ControlError) { try connect() } catch { lose(error) }
        }
    }

    /// Milliseconds until the next timer; -1 without one.
    private var timeLeft: Int32 {
        var times: [Int64] = []
        if parser.isWaiting { times.append(Self.escapeTime) }
        if client == nil { times.append(Int64(ControlClient.pollTime(left: retryAt - .now))) }
        if let next = model.nextChange { times.append(next - wallClock().milliseconds) }
        return times.min().map { Int32(clamping: max(0, $0)) } ?? -1
    }

    private func take(signal number: Int32) {
        switch number {
        case SIGWINCH: break
        case SIGCONT: renderer.forget()
        case SIGTSTP:
            screen.suspend()
            renderer.forget()
        default: isOver = true
        }
    }

    private func readKeys() {
        var bytes = [UInt8](repeating: 0, count: 65_536)
        let count = read(STDIN_FILENO, &bytes, bytes.count)
        guard count > 0 else {
            if count == 0 || errno != EINTR { isOver = true }
            return
        }
        for key in parser.feed(bytes[..<count]) {
            switch key {
            case .control("z"):
                screen.suspend()
                renderer.forget()
            case .control("l"): renderer.forget()
            default: perform(model.handle(.key(key)))
            }
        }
    }

    private func readNode() {
        do throws(ControlError) {
            try client?.sendPosted()
            for response in try client?.responses() ?? [] {
                if let input = ChatInput(response, &requests) { perform(model.handle(input)) }
            }
        } catch { lose(error) }
    }

    private func lose(_ error: ControlError) {
        client = nil
        retryAt = .now + Self.retryTime
        let unanswered = requests
        requests = [:]
        perform(model.handle(.disconnected(safe(error.message))))
        for case .action(let action) in unanswered.values { fail(action) }
    }

    private func fail(_ action: ChatRequest.Action) {
        let error = ControlError(
            .noNode, "the node stopped without an answer: check whether the request was carried out")
        perform(model.handle(.answer(.action(action), .failure(error))))
    }

    private func perform(_ effects: [ChatEffect]) {
        for effect in effects {
            switch effect {
            case .call(let request, let method, let params):
                guard let client else { continue }
                do throws(ControlError) { requests[try client.post(method, params)] = request } catch {
                    lose(error)
                    if case .action(let action) = request { fail(action) }
                }
            case .upload, .save, .preview, .remember: jobs.start(effect)
            case .bell: screen.write("\u{7}")
            case .quit: isOver = true
            }
        }
    }
}
