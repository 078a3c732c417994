import ArgumentParser
import Control
import Glibc
import Messaging

/// Sends each line of standard input as a message, all lines that are there already in one request.
struct LinesUpload {
    let command: SendCommand

    /// Texts of a request, and their bytes: escaped they still fit into a line of the socket.
    private static let batchCount = 256
    private static let batchByteCount = 128 << 10

    private enum Line {
        case text(String)
        case refused(ControlError)
    }

    func perform(_ terminal: Terminal) throws {
        let client = try command.connect()
        var buffer: [UInt8] = []
        var number = 0
        var firstFailure: ControlError?
        var hasEnded = false
        while !hasEnded {
            let bytes = try read()
            hasEnded = bytes.isEmpty
            buffer += bytes
            for batch in takeLines(&buffer, atEnd: hasEnded) {
                let failure = try send(batch, &number, client, terminal)
                firstFailure = firstFailure ?? failure
            }
        }
        if let firstFailure { throw ExitCode(firstFailure.kind.exitCode) }
    }

    private func read() throws(ControlError) -> [UInt8] {
        while true {
            var count = 0
            let bytes = [UInt8](unsafeUninitializedCapacity: 65_536) { buffer, initializedCount in
                count = Glibc.read(STDIN_FILENO, buffer.baseAddress, buffer.count)
                initializedCount = max(0, count)
            }
            if count >= 0 { return bytes }
            guard errno == EINTR else {
                throw ControlError(
                    .failed,
                    "cannot read standard input: \(String(cString: strerror(errno)).lowercased())"
                )
            }
        }
    }

    /// Takes the whole lines out of `buffer`.
    private func takeLines(_ buffer: inout [UInt8], atEnd: Bool) -> [[Line]] {
        var batches: [[Line]] = []
        var batch: [Line] = []
        var byteCount = 0
        var start = 0
        func add(_ bytes: ArraySlice<UInt8>) {
            let bytes = bytes.last == UInt8(ascii: "\r") ? bytes.dropLast() : bytes
            guard !bytes.isEmpty else { return }
            if batch.count == Self.batchCount || byteCount + bytes.count > Self.batchByteCount, !batch.isEmpty {
                batches.append(batch)
                batch = []
                byteCount = 0
            }
            byteCount += bytes.count
            batch.append(Self.line(bytes))
        }
        while let newline = buffer[start...].firstIndex(of: UInt8(ascii: "\n")) {
            add(buffer[start..<newline])
            start = newline + 1
        }
        buffer.removeFirst(start)
        // Of a line beyond the limit no more is kept than shows that it is.
        if buffer.count > Limits.textByteCount + 2 { buffer.removeLast(buffer.count - Limits.textByteCount - 2) }
        if atEnd {
            add(buffer[...])
            buffer = []
        }
        if !batch.isEmpty { batches.append(batch) }
        return batches
    }

    private static func line(_ bytes: ArraySlice<UInt8>) -> Line {
        guard bytes.count <= Limits.textByteCount else {
            return .refused(
                ControlError(
                    .usage,
                    "the line is longer than \(Limits.textByteCount) bytes",
                    hint: "send it in parts"
                )
            )
        }
        guard let text = String(validating: bytes, as: UTF8.self) else {
            return .refused(
                ControlError(.usage, "the line is not UTF-8 text", hint: "encode it first, for example with base64")
            )
        }
        return .text(text)
    }

    /// - Returns: the first failure.
    private func send(
        _ lines: [Line],
        _ number: inout Int,
        _ client: ControlClient,
        _ terminal: Terminal
    ) throws(ControlError) -> ControlError? {
        let texts = lines.compactMap { line in if case .text(let text) = line { text } else { nil } }
        var outcomes: [TextOutcome] = []
        if !texts.isEmpty {
            let timeout = command.timeout ?? Interval(milliseconds: 60_000)
            let params = SendMethod.Params(
                conversation: command.conversation,
                texts: texts,
                wait: command.wait?.stage,
                timeout: command.wait == nil ? command.timeout : timeout
            )
            let answer = try client.call(SendMethod.self, params, timeout: timeout.withGrace)
            outcomes = try understand(answer, as: SendMethod.Result.self).results ?? []
            guard outcomes.count == texts.count else {
                throw ControlError(.failed, "the node's answer has not one result for each text")
            }
        }
        var first: ControlError?
        var rest = outcomes[...]
        for line in lines {
            number += 1
            let outcome: TextOutcome
            switch line {
            case .text: outcome = rest.removeFirst()
            case .refused(let error): outcome = TextOutcome(error)
            }
            show(outcome, number, terminal)
            if first == nil, let error = outcome.error {
                first = ControlError(error.kind, error.message, hint: error.hint, field: error.field)
            }
        }
        return first
    }

    private func show(_ outcome: TextOutcome, _ number: Int, _ terminal: Terminal) {
        if terminal.json {
            terminal.result(JSONValue(of: outcome))
        } else if let error = outcome.error {
            terminal.warn("line \(number): \(safe(error.message))\(error.hint.map { "; \(safe($0))" } ?? "")")
        } else {
            terminal.result("\(short(outcome.message?.description ?? "-"))  \(outcome.state?.rawValue ?? "-")")
        }
    }
}
