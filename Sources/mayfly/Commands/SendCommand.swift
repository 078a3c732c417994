import ArgumentParser
import Control
import Messaging

struct SendCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "send",
        abstract: "Send a message.",
        discussion: """
            TEXT is `-` for standard input, less one line break at its end. A text that starts with a dash goes after `--`.

            Examples:
              mayfly send room 'hello'
              journalctl -n 20 | mayfly send room -
              mayfly send room 'are you there?' --wait delivered --timeout 30
              mayfly send room 'the log' --file /tmp/log.txt
            """
    )

    enum Wait: String, ExpressibleByArgument, CaseIterable {
        case sent, delivered

        var stage: DeliveryStage {
            switch self {
            case .sent: .sent
            case .delivered: .delivered
            }
        }
    }

    /// Longest text and longest file, in bytes: both travel in one line of the control socket, the file as Base64.
    private static let textByteLimit = Limits.textByteCount
    private static let fileByteLimit = 512 << 10

    @Argument(help: "Name or id.") var conversation: String
    @Argument(help: "The text, or `-`.") var text: String
    @Option(help: "End only when it has come this far.") var wait: Wait?
    @Option(help: ArgumentHelp("How long to wait; the exit code is 4 after that.", valueName: "seconds"))
    var timeout: Interval?
    @Option(help: ArgumentHelp("The message that this one answers.", valueName: "message")) var replyTo: String?
    @Option(help: ArgumentHelp("Attach this file.", valueName: "path")) var file: String?
    @OptionGroup var global: GlobalOptions

    func validate() throws {
        if file == "-", text == "-" { throw ValidationError("only one of TEXT and --file can be standard input") }
    }

    func perform(_ terminal: Terminal) throws {
        let timeout = timeout ?? Interval(milliseconds: 60_000)
        let params = SendMethod.Params(
            conversation: conversation,
            text: try body(),
            wait: wait?.stage,
            timeout: wait == nil ? nil : timeout,
            replyTo: replyTo,
            file: try attachment()
        )
        try call(SendMethod.self, params, timeout: timeout.withGrace, terminal) { sent in
            terminal.fields([
                ("message", short(safe(sent.message))), ("state", sent.state.rawValue),
                ("kept", sent.stored ? "on disk" : "in memory only"),
                ("expires", sent.expiresAt.map { shown($0, now: wallClock()) }),
            ])
        }
    }

    private func body() throws -> String {
        guard text == "-" else { return text }
        var bytes = try InputFile.read("-", byteLimit: Self.textByteLimit + 1)
        if bytes.last == UInt8(ascii: "\n") { bytes.removeLast() }
        guard let text = String(validating: bytes, as: UTF8.self) else {
            throw ControlError(
                .usage,
                "standard input is not UTF-8 text",
                hint: "encode it first, for example with base64"
            )
        }
        return text
    }

    private func attachment() throws -> MessageFile? {
        guard let file else { return nil }
        let bytes = try InputFile.read(file, byteLimit: Self.fileByteLimit)
        let name = file == "-" ? "stdin" : file.split(separator: "/").last.map(String.init) ?? file
        return MessageFile(name: name, data: base64(bytes))
    }
}

/// Base64 (RFC 4648, section 4), padded.
private func base64(_ bytes: [UInt8]) -> String {
    let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
    var text: [UInt8] = []
    text.reserveCapacity((bytes.count + 2) / 3 * 4)
    for start in stride(from: 0, to: bytes.count, by: 3) {
        let group = bytes[start..<min(start + 3, bytes.count)]
        var word = group.reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
        word <<= UInt32(8 * (3 - group.count))
        for digit in 0..<4 {
            let isPadding = digit > group.count
            text.append(isPadding ? UInt8(ascii: "=") : alphabet[Int(word >> UInt32(18 - 6 * digit) & 63)])
        }
    }
    return String(decoding: text, as: UTF8.self)
}
