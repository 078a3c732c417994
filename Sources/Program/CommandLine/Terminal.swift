import CLinux
import Control
import Glibc
import Messaging

/// Output rules: results on standard output, text for people on standard error.
///
/// With `--json` standard output carries only objects, one per line. A failure is one line too,
/// `{"error":{"kind","message","hint"}}`, and the exit code gives its kind.
struct Terminal {
    let json: Bool
    /// The value of `--home`, for suggested commands.
    var home: String?

    /// Prints a result line. A closed reader ends the program quietly; another write error is a failure.
    /// - Parameter code: exit code for this result; it holds even if the line cannot be written.
    func result(_ line: String, exitCode code: Int32 = 0) {
        guard let failure = DescriptorOutput.write((line + "\n").utf8, to: STDOUT_FILENO) else { return }
        if failure != EPIPE {
            warn("cannot write to standard output: \(String(cString: strerror(failure)).lowercased())")
        }
        exit(code == 0 && failure != EPIPE ? FailureKind.failed.exitCode : code)
    }

    func result(_ value: JSONValue, exitCode code: Int32 = 0) { result(value.text, exitCode: code) }

    /// Clears the screen with its scroll-back.
    static let blank = "\u{1B}[H\u{1B}[2J\u{1B}[3J"

    /// A note for people; omitted with `--json`.
    func note(_ line: String) { if !json { Self.tell(naming(home: home, in: line) + "\n") } }

    /// A warning for people, also with `--json`.
    func warn(_ line: String) { Self.tell("mayfly: \(line)\n") }

    /// Prompts the user, even with `--json`; the answer follows on the same line.
    static func ask(_ question: String) { tell(question) }

    /// Asks the user to type `name` before a destructive command.
    /// - Throws: `failed` when the user typed something else.
    static func confirm(_ warning: String, byTyping name: String) throws(ControlError) {
        ask("\(warning)\nType \(name) to go on: ")
        guard readLine() == name else { throw ControlError(.failed, "nothing was destroyed: that is not the name") }
    }

    static func canAsk(_ terminal: Terminal) -> Bool {
        !terminal.json && isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1
    }

    /// Asks a yes/no question on a terminal; Enter is yes.
    /// - Returns: false without a terminal, and with `--json`.
    static func asksYes(_ question: String, _ terminal: Terminal) -> Bool {
        guard canAsk(terminal) else { return false }
        ask("\(question) [Y/n] ")
        return readLine().map { ["", "y", "yes"].contains($0.lowercased()) } ?? false
    }

    /// Best effort: a closed standard error is not a failure of the command.
    private static func tell(_ text: String) { _ = DescriptorOutput.write(text.utf8, to: STDERR_FILENO) }

    static func size(of descriptor: Int32) -> Picture.Size {
        var size = winsize()
        guard ioctl(descriptor, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0, size.ws_row > 0 else {
            return Picture.Size(columns: 80, rows: 24)
        }
        return Picture.Size(columns: Int(size.ws_col), rows: Int(size.ws_row))
    }

    /// Prints an aligned table of sanitized cells; nothing without rows. On a narrow terminal it drops empty columns,
    /// then prints each row as separate lines.
    func table(_ head: [String], _ rows: [[String]], exitCode code: Int32 = 0) {
        guard !rows.isEmpty else { return }
        var all = [head] + rows.map { $0.map(safe) }
        func widths() -> [Int] { all[0].indices.map { column in all.map { CellWidth.of($0[column]) }.max() ?? 0 } }
        let width = isatty(STDOUT_FILENO) == 1 ? Self.size(of: STDOUT_FILENO).columns : .max
        func isTooWide() -> Bool { widths().reduce(2 * (all[0].count - 1), +) > width }
        if isTooWide() {
            let filled = head.indices.filter { column in rows.contains { $0[column] != "-" } }
            all = all.map { row in filled.map { row[$0] } }
        }
        if isTooWide() {
            for (index, row) in all.dropFirst().enumerated() {
                if index > 0 { result("", exitCode: code) }
                fields(zip(all[0], row).map { ($0.lowercased(), $1) }, exitCode: code)
            }
            return
        }
        let widths = widths()
        for row in all {
            let padded = zip(row, widths).dropLast().map { Self.padded($0, to: $1) }.joined()
            result(padded + (row.last ?? ""), exitCode: code)
        }
    }

    private static func padded(_ cell: String, to width: Int) -> String {
        cell + String(repeating: " ", count: width - CellWidth.of(cell) + 2)
    }

    /// Prints aligned, sanitized `name  value` lines, without absent values.
    func fields(_ fields: [(String, String?)], exitCode code: Int32 = 0) {
        let present = fields.compactMap { name, value in value.map { (safe(name), safe($0)) } }
        let widest = present.map { CellWidth.of($0.0) }.max() ?? 0
        for (name, value) in present { result(Self.padded(name, to: widest) + value, exitCode: code) }
    }

    func report(_ error: ControlError) {
        if json {
            result(["error": JSONValue(of: error)], exitCode: error.kind.exitCode)
        } else {
            warn("\(safe(error.message))\(error.hint.map { "; \(safe($0))" } ?? "")")
        }
    }
}

/// `12.3 ms`; `-` for none.
func milliseconds(_ value: Double?) -> String {
    guard let value, value.isFinite, value < 1e9 else { return "-" }
    let tenths = Int((value * 10).rounded())
    return "\(tenths / 10).\(abs(tenths % 10)) ms"
}

/// The first 12 digits of an id, or the first group of a UUID.
func short(_ id: String) -> String { id.prefix(12).split(separator: "-").first.map(String.init) ?? id }

/// A pipe(2): the end to read from, and the end to write to.
func pipeEnds() throws(ControlError) -> [Int32] {
    var ends: [Int32] = [-1, -1]
    guard process_pipe(&ends) == 0 else { throw ControlError(.failed, "cannot make a pipe") }
    return ends
}

func wallClock() -> Timestamp {
    var now = timespec()
    clock_gettime(CLOCK_REALTIME, &now)
    return Timestamp(milliseconds: Int64(now.tv_sec) * 1000 + Int64(now.tv_nsec) / 1_000_000)
}

/// At a terminal times are local, otherwise UTC.
let outputIsTerminal = isatty(STDOUT_FILENO) == 1

/// `2026-11-21T06:53:53Z (in 1 h 30 m)`, on a terminal `2026-11-21 07:53:53 (in 1 h 30 m)` in local time; `-` for none.
func shown(_ timestamp: Timestamp?, now: Timestamp = wallClock()) -> String {
    guard let timestamp else { return "-" }
    let distance = timestamp.milliseconds - now.milliseconds
    let whole = Timestamp(milliseconds: timestamp.milliseconds / 1000 * 1000)
    let time = outputIsTerminal ? localText(of: whole) : whole.exactISO8601
    if abs(distance) < 1000 { return "\(time) (now)" }
    // Rounded up, so that 90 minutes are still those at the next moment.
    let seconds = (abs(distance) + 999) / 1000
    let length =
        switch seconds {
        case 0..<90: "\(seconds) s"
        case 90..<3570: "\((seconds + 30) / 60) min"
        default: Words.left(max(3600, seconds) * 1000, " ")
        }
    return "\(time) (\(distance < 0 ? "\(length) ago" : "in \(length)"))"
}

/// The input format: `6h`, `90m`, `45s`.
func length(_ interval: Interval) -> String {
    let seconds = interval.milliseconds / 1_000
    for (unit, letter) in [(86_400, "d"), (3_600, "h"), (60, "m")] where seconds % Int64(unit) == 0 {
        return "\(seconds / Int64(unit))\(letter)"
    }
    return "\(seconds)s"
}

private func localText(of time: Timestamp) -> String {
    var parts = localParts(of: time)
    var text = [CChar](repeating: 0, count: 64)
    let count = strftime(&text, text.count, "%Y-%m-%d %H:%M:%S", &parts)
    return String(decoding: text[..<count].map(UInt8.init(bitPattern:)), as: UTF8.self)
}

private func localParts(of time: Timestamp) -> tm {
    var seconds = time_t(time.milliseconds / 1_000)
    var parts = tm()
    localtime_r(&seconds, &parts)
    return parts
}

func localTime(of time: Timestamp) -> LocalTime {
    let parts = localParts(of: time)
    return LocalTime(
        year: Int(parts.tm_year) + 1_900, month: Int(parts.tm_mon) + 1, day: Int(parts.tm_mday),
        weekday: Int(parts.tm_wday), hour: Int(parts.tm_hour), minute: Int(parts.tm_min))
}

/// Sanitizes untrusted text for a terminal.
enum ShownText {
    /// Scalars shown per character. More combining marks would overlap the neighbouring lines.
    private static let scalarCount = 8

    /// The lines of a text, without control characters and bidirectional controls, tabs as spaces.
    static func lines(_ text: String) -> [String] {
        var result: [String] = []
        var line = ""
        // Filtered first: scalars that a control separated become one character.
        let kept = String(String.UnicodeScalarView(text.unicodeScalars.filter { !$0.changesDirection }))
        for character in kept {
            if character.isNewline {
                result.append(line)
                line = ""
            } else {
                line.append(contentsOf: harmless(character))
            }
        }
        result.append(line)
        return result
    }

    private static func harmless(_ character: Character) -> String {
        if character == "\t" { return "    " }
        let scalars = character.unicodeScalars.prefix(scalarCount).map { scalar -> Unicode.Scalar in
            scalar.properties.generalCategory == .control ? "?" : scalar
        }
        return String(String.UnicodeScalarView(scalars))
    }
}

func safe(_ text: String) -> String { ShownText.lines(text).joined(separator: " ") }
