import ArgumentParser
import Control
import Dispatch
import FoundationEssentials
import Glibc
import Messaging
import NodeRuntime
import Synchronization

/// File transfers beside the chat, each with its own thread and connection.
final class FileJobs: Sendable {
    private let home: String
    private let ends: [Int32]
    private let outcomes = Mutex<[ChatInput]>([])

    /// Readable when a job has ended.
    var descriptor: Int32 { ends[0] }

    init(home: String) throws(ControlError) {
        self.home = home
        ends = try pipeEnds()
    }

    /// Starts a transfer; other effects start nothing.
    func start(_ effect: ChatEffect) {
        switch effect {
        case .upload(let conversation, let path, let text, let replyTo):
            run { [home] in
                let path = Self.expanded(path)
                // Reading a pipe, a device or a terminal may never end.
                if SaveCommand.isStream(path) { throw ControlError(.usage, "\(path) is not a file") }
                let reply = replyTo.map { ["--reply-to", $0] } ?? []
                let command = try SendCommand.parse([conversation, "--file", path, "--home", home] + reply)
                _ = try FileUpload(path: path, command: command).upload(text: text, Progress(isShown: false))
                return .said("\(safe(path)) was uploaded to the node")
            }
        case .save(let conversation, let message, let path):
            run { [home] in
                let output = path.map { ["--output", Self.expanded($0)] } ?? []
                let command = try SaveCommand.parse([conversation, message, "--home", home] + output)
                let saved: SaveCommand.Saved
                do { saved = try command.save() } catch let error as ControlError
                    where error.hint?.contains("--force") ?? false
                { throw ControlError(.failed, error.message, hint: "/save OTHER-NAME") }
                return .said("saved \(safe(saved.path)), \(sizeText(saved.byteCount))")
            }
        case .preview(let conversation, let message, let title, let size):
            run { [home] in
                let command = try SaveCommand.parse([conversation, message, "--home", home])
                let bytes = try command.bytes(byteLimit: ImagePreview.byteLimit)
                let rows = try ImagePreview.rows(of: bytes, size: size)
                return .image(room: conversation, message: message, title: title, rows: rows)
            }
        case .remember(let name):
            run { [home] in
                guard PeersFile.isName(name) else {
                    return .said(
                        "used in this chat only: a saved name has 1 to 64 letters a to z, digits, `.`, `_` or `-`")
                }
                try OwnName.set(name, home: home)
                return .said("\(name) is your name from now on; /profile changes it in one conversation")
            }
        case .call, .bell, .quit: break
        }
    }

    /// Paths with this prefix that an input line can hold: without blanks and control characters. A directory ends with
    /// a slash.
    static func paths(_ beginning: String) -> [String] {
        let split = beginning.lastIndex(of: "/").map { beginning.index(after: $0) } ?? beginning.startIndex
        let (directory, name) = (String(beginning[..<split]), beginning[split...])
        let place = directory.isEmpty ? "." : expanded(directory)
        let files = (try? FileManager.default.contentsOfDirectory(atPath: place)) ?? []
        let fitting = files.filter { file in
            file.hasPrefix(name) && (name.hasPrefix(".") || !file.hasPrefix("."))
                && !file.contains(where: \.isWhitespace) && safe(file) == file
        }
        return fitting.sorted().map { file in
            var isDirectory = false
            _ = FileManager.default.fileExists(atPath: "\(place)/\(file)", isDirectory: &isDirectory)
            return directory + file + (isDirectory ? "/" : "")
        }
    }

    private func run(_ job: @escaping @Sendable () throws -> ChatInput) {
        DispatchQueue.global().async { [self] in
            let outcome: ChatInput
            do { outcome = try job() } catch {
                outcome = .failed(error as? ControlError ?? ControlError(.failed, SendCommand.message(for: error)))
            }
            outcomes.withLock { $0.append(outcome) }
            var byte: UInt8 = 1
            _ = write(ends[1], &byte, 1)
        }
    }

    func take() -> [ChatInput] {
        var bytes = [UInt8](repeating: 0, count: 64)
        _ = read(ends[0], &bytes, bytes.count)
        return outcomes.withLock { outcomes in
            defer { outcomes = [] }
            return outcomes
        }
    }

    /// Expands `~/x` as a shell does, and protects a leading dash.
    private static func expanded(_ path: String) -> String {
        if path.hasPrefix("-") { return "./\(path)" }
        guard path == "~" || path.hasPrefix("~/"), let home = getenv("HOME") else { return path }
        return String(cString: home) + path.dropFirst()
    }
}
