import Chat
import Control
import DequeModule
import Dispatch
import Glibc
import Synchronization

/// Hands a file to the node, piece by piece, and shows how far it has come.
struct FileUpload {
    /// Pieces that the node has and has not said to be kept.
    private static let piecesInFlight = 4

    let path: String
    let command: SendCommand

    func perform(_ terminal: Terminal) throws {
        let value = try upload(Progress(isShown: isatty(STDERR_FILENO) == 1 && !terminal.json))
        if terminal.json {
            terminal.result(value)
        } else {
            SendCommand.show(try understand(value, as: SentMessage.self), terminal)
        }
    }

    /// - Returns: what the node answers: the message.
    func upload(_ progress: Progress) throws -> JSONValue {
        let descriptor = path == "-" ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw failure(errno) }
        defer { if path != "-" { close(descriptor) } }
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw failure(errno) }
        if status.st_mode & S_IFMT == S_IFDIR {
            throw ControlError(
                .usage,
                "\(path) is a directory",
                hint: "send an archive of it: tar -cz DIR | … --file -"
            )
        }
        let isRegular = status.st_mode & S_IFMT == S_IFREG
        let byteCount: Int64? = isRegular ? Int64(status.st_size) : nil
        let name = path == "-" ? "stdin" : path.split(separator: "/").last.map(String.init) ?? path
        let client = try command.connect()
        let begin = AttachmentBeginMethod.Params(
            conversation: command.conversation,
            name: name,
            byteCount: byteCount,
            text: try command.body(),
            replyTo: command.replyTo
        )
        let upload = try understand(
            try client.call(AttachmentBeginMethod.self, begin),
            as: AttachmentBeginMethod.Result.self
        ).upload
        let total = try send(descriptor, upload, of: byteCount, client, progress)
        let timeout = command.timeout ?? Self.patience(byteCount: total)
        let commit = AttachmentCommitMethod.Params(
            upload: upload,
            wait: command.wait?.stage,
            timeout: command.wait == nil ? nil : timeout
        )
        if command.wait == .delivered { follow(upload, progress) }
        let value: JSONValue
        do {
            value = try client.call(AttachmentCommitMethod.self, commit, timeout: timeout.withGrace)
        } catch {
            progress.end()
            throw error
        }
        progress.end()
        return value
    }

    /// A minute, and a second more for each MiB.
    private static func patience(byteCount: Int64) -> Interval {
        Interval(milliseconds: 60_000 + byteCount / (1 << 20) * 1_000)
    }

    /// - Returns: how many bytes there were.
    private func send(
        _ descriptor: Int32,
        _ upload: String,
        of byteCount: Int64?,
        _ client: ControlClient,
        _ progress: Progress
    ) throws -> Int64 {
        var total: Int64 = 0
        var pending: Deque<ControlClient.PendingCall> = []
        while true {
            let piece = try piece(descriptor)
            let deadline = ContinuousClock.now + .seconds(120)
            while let first = pending.first, piece.isEmpty || pending.count >= Self.piecesInFlight {
                _ = try client.answer(to: first, until: deadline)
                pending.removeFirst()
            }
            if piece.isEmpty { return total }
            total += Int64(piece.count)
            let params = AttachmentAppendMethod.Params(upload: upload)
            pending.append(try client.send(AttachmentAppendMethod.self, params, body: piece, until: deadline))
            if let byteCount, byteCount > 0 {
                progress.show("reading \(min(100, total * 100 / byteCount)) %")
            } else {
                progress.show("reading \(Words.size(total))")
            }
        }
    }

    /// As much as a piece holds; less at the end of the file.
    private func piece(_ descriptor: Int32) throws -> [UInt8] {
        var code: Int32 = 0
        let bytes = [UInt8](unsafeUninitializedCapacity: AttachmentMethods.pieceByteCount) { buffer, filled in
            while filled < buffer.count {
                let count = read(descriptor, buffer.baseAddress! + filled, buffer.count - filled)
                if count == 0 { return }
                if count > 0 {
                    filled += count
                } else if errno != EINTR {
                    code = errno
                    return
                }
            }
        }
        guard code == 0 else { throw failure(code) }
        return bytes
    }

    private func failure(_ code: Int32) -> ControlError {
        ControlError(.failed, "cannot read \(path): \(String(cString: strerror(code)).lowercased())")
    }

    /// Shows how far the members have come, on a connection of its own. Ends with the program.
    private func follow(_ message: String, _ progress: Progress) {
        guard progress.isShown, let home = try? command.global.resolvedHome() else { return }
        let conversation = command.conversation
        DispatchQueue.global().async {
            let params = SubscribeMethod.Params(
                conversation: conversation,
                since: nil,
                events: [.attachmentProgress]
            )
            guard let client = try? ControlClient(home: home),
                (try? client.call(SubscribeMethod.self, params)) != nil
            else { return }
            let shown = (try? client.call(ConversationShowMethod.self, .init(conversation: conversation)))
                .flatMap { try? $0.decoded(as: Conversation.self) }
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

/// One line on the terminal that is written over.
final class Progress: Sendable {
    let isShown: Bool
    private let width = Mutex<Int?>(0)

    init(isShown: Bool) { self.isShown = isShown }

    func show(_ text: String) {
        guard isShown else { return }
        width.withLock { width in
            guard let before = width else { return }
            Terminal.ask("\r" + text + String(repeating: " ", count: max(0, before - text.count)))
            width = text.count
        }
    }

    /// Clears the line; nothing is shown any more.
    func end() {
        guard isShown else { return }
        width.withLock { width in
            if let before = width, before > 0 { Terminal.ask("\r" + String(repeating: " ", count: before) + "\r") }
            width = nil
        }
    }
}
