import ArgumentParser
import Control
import DequeModule
import Dispatch
import Glibc
import Messaging
import Synchronization

struct FileUpload {
    private static let piecesInFlight = 4

    let path: String
    let command: SendCommand

    private var name: String { path == "-" ? "stdin" : path.split(separator: "/").last.map(String.init) ?? path }

    func perform(_ terminal: Terminal) throws {
        let progress = Progress(isShown: isatty(STDERR_FILENO) == 1 && !terminal.json)
        let value = try upload(text: try command.body(), progress)
        if terminal.json { return terminal.result(value) }
        SendCommand.show(try understand(value, as: SentMessage.self), terminal)
    }

    func upload(text: String?, _ progress: Progress) throws -> JSONValue {
        do { return try uploadOnce(text, progress) } catch let error as ControlError {
            let isOfFile = error.message.hasPrefix("the file is ")
            let message = isOfFile ? name + error.message.dropFirst("the file".count) : error.message
            throw ControlError(error.kind, message, hint: error.hint, field: error.field, code: error.code).about(
                command.conversation)
        }
    }

    private func uploadOnce(_ text: String?, _ progress: Progress) throws -> JSONValue {
        // Without --timeout, the writer of a pipe has unlimited time.
        let deadline = command.timeout.map { ContinuousClock.now + $0.duration }
        let descriptor = try InputFile.open(path)
        defer { if path != "-" { close(descriptor) } }
        let status = try status(descriptor)
        if status.st_mode & S_IFMT == S_IFDIR {
            throw ControlError(
                .usage, "\(path) is a directory", hint: "send an archive of it: tar -cz DIR | … --file -")
        }
        let isRegular = status.st_mode & S_IFMT == S_IFREG
        // A file of /proc has size 0.
        let byteCount: Int64? = isRegular && status.st_size > 0 ? Int64(status.st_size) : nil
        let client = try command.connect()
        defer { progress.end() }
        let begin = AttachmentBeginParams(
            conversation: command.conversation, name: name, byteCount: byteCount, text: text, replyTo: command.replyTo)
        let upload = try client.result(AttachmentMethods.begin, begin).upload
        let total = try send(descriptor, upload, of: byteCount, client, progress, until: deadline)
        if isRegular, Self.change(status) != Self.change(try self.status(descriptor)) { throw changed }
        let timeout = deadline.map { Interval(from: .now, to: $0) } ?? Self.patience(byteCount: total)
        let commit = AttachmentCommitParams(
            upload: upload, wait: command.wait, timeout: command.wait == nil && deadline == nil ? nil : timeout)
        if command.wait == .delivered { follow(upload, progress) }
        return try client.call(AttachmentMethods.commit, commit, timeout: timeout.withGrace)
    }

    private static func patience(byteCount: Int64) -> Interval {
        Interval(milliseconds: 60_000 + byteCount / (1 << 20) * 1_000)
    }

    private func send(
        _ descriptor: Int32, _ upload: String, of byteCount: Int64?, _ client: ControlClient, _ progress: Progress,
        until end: ContinuousClock.Instant?
    ) throws -> Int64 {
        var total: Int64 = 0
        var pending: Deque<ControlClient.PendingCall> = []
        while true {
            let piece = try piece(descriptor, until: end)
            let deadline = end ?? .now + .seconds(120)
            while let first = pending.first, piece.isEmpty || pending.count >= Self.piecesInFlight {
                _ = try client.answer(to: first, until: deadline)
                pending.removeFirst()
            }
            if piece.isEmpty { return total }
            total += Int64(piece.count)
            // Ends the upload of a growing log.
            if let byteCount, total > byteCount { throw changed }
            let params = UploadParams(upload: upload)
            pending.append(try client.send(AttachmentMethods.append, params, body: piece, until: deadline))
            if let byteCount, byteCount > 0 {
                progress.show("reading \(min(100, total * 100 / byteCount)) %")
            } else {
                progress.show("reading \(sizeText(total))")
            }
        }
    }

    /// A full piece; less at the end of the file.
    private func piece(_ descriptor: Int32, until end: ContinuousClock.Instant?) throws -> [UInt8] {
        var bytes: [UInt8] = []
        while bytes.count < ControlLimits.bodyByteCount {
            let left = ControlLimits.bodyByteCount - bytes.count
            let more = try InputFile.read(descriptor, of: path, atMost: left, until: end)
            if more.isEmpty { break }
            if bytes.isEmpty { bytes = more } else { bytes += more }
        }
        return bytes
    }

    private func status(_ descriptor: Int32) throws -> stat {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw InputFile.failure(path, errno) }
        return status
    }

    /// A write by another process changes one of these.
    private static func change(_ status: stat) -> [Int] {
        [Int(status.st_size), status.st_mtim.tv_sec, status.st_mtim.tv_nsec]
    }

    private var changed: ControlError {
        ControlError(
            .failed, "\(path) changed while it was read; nothing was sent",
            hint: "send a copy of it, or its present content: `head -c N FILE | mayfly send C --file -`")
    }

    /// Shows the delivery progress over its own connection. Ends with the program.
    private func follow(_ message: String, _ progress: Progress) {
        guard progress.isShown, let home = try? command.global.resolvedHome() else { return }
        let conversation = command.conversation
        DispatchQueue.global().async {
            let params = SubscribeParams(conversation: conversation, since: nil, events: [.attachmentProgress])
            guard let client = try? ControlClient(home: home), (try? client.call(EventMethods.subscribe, params)) != nil
            else { return }
            let shown = try? client.result(ConversationMethods.show, .init(conversation: conversation))
            while case .event(let event)? = try? client.nextEvent(until: nil) {
                guard event["message"]?.stringValue == message, let percent = event["percent"]?.integerValue else {
                    continue
                }
                let id = event["member"]?.stringValue ?? "-"
                let member = shown?.members.first { $0.member == id }
                progress.show("sending to \(safe(member?.profile ?? member?.peer ?? id)) \(percent) %")
            }
        }
    }
}

final class Progress: Sendable {
    let isShown: Bool
    private let hasEnded = Mutex(false)
    /// ECMA-48, EL.
    private static let restCleared = "\u{1B}[K"

    init(isShown: Bool) { self.isShown = isShown }

    /// Shows a text, cut to one row, because only one row can be overwritten.
    func show(_ text: String) {
        guard isShown else { return }
        let row = Wrapping.cut(text, width: Terminal.size(of: STDERR_FILENO).columns - 1)
        hasEnded.withLock { if !$0 { Terminal.ask("\r\(row)\(Self.restCleared)") } }
    }

    func end() {
        guard isShown else { return }
        hasEnded.withLock { hasEnded in
            if !hasEnded { Terminal.ask("\r\(Self.restCleared)") }
            hasEnded = true
        }
    }
}

/// Sends each line of standard input as a message; lines available together go into one request.
struct LinesUpload {
    let command: SendCommand

    /// Texts per request. The bytes of one read, escaped, fit into a line of the socket.
    private static let batchCount = 256

    private typealias Line = (number: Int, content: LineReader.Line)

    func perform(_ terminal: Terminal) throws {
        let client = try command.connect()
        var reader = LineReader()
        var firstFailure: ControlError?
        while !reader.hasEnded {
            try reader.read()
            while case let batch = Self.batch(&reader), !batch.isEmpty {
                let failure = try send(batch, client, terminal)
                firstFailure = firstFailure ?? failure
            }
        }
        if let firstFailure { throw ExitCode(firstFailure.kind.exitCode) }
    }

    private static func batch(_ reader: inout LineReader) -> [Line] {
        var batch: [Line] = []
        while batch.count < batchCount, let content = reader.next() {
            if case .text("") = content { continue }
            batch.append((reader.number, content))
        }
        return batch
    }

    private func send(_ lines: [Line], _ client: ControlClient, _ terminal: Terminal) throws(ControlError)
        -> ControlError?
    {
        let texts = lines.compactMap { line in if case .text(let text) = line.content { text } else { nil } }
        var outcomes: [TextOutcome] = []
        if !texts.isEmpty {
            let timeout = command.timeout ?? Interval(milliseconds: 60_000)
            let params = SendParams(
                conversation: command.conversation, texts: texts, wait: command.wait,
                timeout: command.wait == nil ? command.timeout : timeout)
            outcomes = try client.result(MessageMethods.send, params, timeout: timeout.withGrace).results ?? []
            guard outcomes.count == texts.count else {
                throw ControlError(.failed, "the node's answer has not one result for each text")
            }
        }
        var first: ControlError?
        var rest = outcomes[...]
        for line in lines {
            let (outcome, prefix) =
                switch line.content {
                case .text: (rest.removeFirst(), "line \(line.number): ")
                case .refused(let error): (TextOutcome(error), "")
                }
            show(outcome, prefix: prefix, terminal)
            first = first ?? outcome.error
        }
        return first
    }

    private func show(_ outcome: TextOutcome, prefix: String, _ terminal: Terminal) {
        if terminal.json {
            terminal.result(JSONValue(of: outcome))
        } else if let error = outcome.error?.about(command.conversation).naming(home: terminal.home) {
            terminal.warn("\(prefix)\(safe(error.message))\(error.hint.map { "; \(safe($0))" } ?? "")")
        } else {
            terminal.result("\(short(outcome.message?.description ?? "-"))  \(outcome.state?.rawValue ?? "-")")
        }
    }
}
