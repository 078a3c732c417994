import ArgumentParser
import Control
import Messaging

/// Sends each line of standard input as a message; lines available together go into one request.
struct LinesUpload {
    let command: SendCommand

    /// Texts per request. The bytes of one read, escaped, fit into a line of the socket.
    private static let batchCount = 256

    private struct Line {
        let number: Int
        let content: LineReader.Line
    }

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
            batch.append(Line(number: reader.number, content: content))
        }
        return batch
    }

    /// - Returns: the first failure.
    private func send(_ lines: [Line], _ client: ControlClient, _ terminal: Terminal) throws(ControlError)
        -> ControlError?
    {
        let texts = lines.compactMap { line in if case .text(let text) = line.content { text } else { nil } }
        var outcomes: [TextOutcome] = []
        if !texts.isEmpty {
            let timeout = command.timeout ?? Interval(milliseconds: 60_000)
            let params = SendParams(
                conversation: command.conversation, texts: texts, wait: command.wait?.stage,
                timeout: command.wait == nil ? command.timeout : timeout)
            let answer = try client.call(Methods.send, params, timeout: timeout.withGrace)
            outcomes = try understand(answer, as: SendResult.self).results ?? []
            guard outcomes.count == texts.count else {
                throw ControlError(.failed, "the node's answer has not one result for each text")
            }
        }
        var first: ControlError?
        var rest = outcomes[...]
        for line in lines {
            let outcome: TextOutcome
            switch line.content {
            case .text:
                outcome = rest.removeFirst()
                show(outcome, prefix: "line \(line.number): ", terminal)
            case .refused(let error):
                outcome = TextOutcome(error)
                show(outcome, prefix: "", terminal)
            }
            if first == nil, let error = outcome.error {
                first = ControlError(error.kind, error.message, hint: error.hint, field: error.field)
            }
        }
        return first
    }

    private func show(_ outcome: TextOutcome, prefix: String, _ terminal: Terminal) {
        if terminal.json {
            terminal.result(JSONValue(of: outcome))
        } else if let error = outcome.error {
            terminal.warn("\(prefix)\(safe(error.message))\(error.hint.map { "; \(safe($0))" } ?? "")")
        } else {
            terminal.result("\(short(outcome.message?.description ?? "-"))  \(outcome.state?.rawValue ?? "-")")
        }
    }
}
