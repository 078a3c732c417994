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
    private var isBlank = true
    private var isSilent = false
    /// First failed request of the input; it determines the exit code of a pipe.
    private var failure: ControlError?

    init(home: String, room: String?, takesCommands: Bool) throws(ControlError) {
        self.takesCommands = takesCommands
        jobs = try FileJobs(home: home)
        client = try ControlClient(home: home)
        model = ChatModel(
            room: room, now: wallClock(), calendar: { localTime(of: $0) },
            asksName: isatty(STDIN_FILENO) == 1 && OwnName.isMissing(home: home))
        model.process = client.process
        model.isPlain = true
    }

    /// Runs until the input has ended and all answers are in, or the node disconnects.
    func run() throws(ControlError) {
        signal(SIGPIPE, SIG_IGN)
        try perform(model.begin())
        while !isOver, !input.hasEnded || !requests.isEmpty || jobCount > 0 {
            model.now = wallClock()
            try perform(model.handle(.tick))
            for line in newLines() {
                guard DescriptorOutput.write("\(line)\n".utf8, to: STDOUT_FILENO) == nil else { return }
            }
            try perform(model.follow())
            try wait()
        }
        for line in newLines() { _ = DescriptorOutput.write("\(line)\n".utf8, to: STDOUT_FILENO) }
        // At a terminal the user has already seen the notice.
        if isatty(STDIN_FILENO) == 0, let failure { throw failure }
    }

    /// At a lock the screen is cleared first, as in the full-screen chat.
    private func newLines() -> [String] {
        let lines = transcript.update(&model) + (model.isSilent && !isSilent ? ["* \(model.silence)"] : [])
        isSilent = model.isSilent
        defer { if model.isLocked || !lines.isEmpty { isBlank = model.isLocked } }
        return (model.isLocked && !isBlank && outputIsTerminal ? [Terminal.blank] : []) + lines
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
        guard poll(&polled, nfds_t(polled.count), try timeLeft()) > 0 else { return }
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

    /// Milliseconds until the node counts as hanging, and until a pipe gives up; -1 for never.
    private func timeLeft() throws(ControlError) -> Int32 {
        guard let since = model.unansweredSince, !model.isSilent || isatty(STDIN_FILENO) == 0 else { return -1 }
        let silence = wallClock() - since
        if model.isSilent, silence >= Self.patience { throw client.doesNotAnswer }
        return Int32(clamping: max(0, (model.isSilent ? Self.patience : ChatModel.answerTime) - silence))
    }

    private static let patience: Int64 = 10_000

    private func takeLine() throws(ControlError) -> Bool {
        switch input.next() {
        case nil: return false
        case .refused(let error):
            failure = failure ?? error
            _ = model.handle(.failed(error))
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
            if case .answer(.action, .failure(let error)) = input {
                failure = failure ?? error.about(model.room?.handle)
            }
            try perform(model.handle(input))
        }
    }

    private func perform(_ effects: [ChatEffect]) throws(ControlError) {
        for effect in effects {
            switch effect {
            case .call(let request, let method, let params): requests[try client.post(method, params)] = request
            case .upload, .save, .remember:
                jobCount += 1
                jobs.start(effect)
            case .bell, .preview: break
            case .quit: isOver = true
            }
        }
    }
}
