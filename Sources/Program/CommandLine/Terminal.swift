import Control
import Glibc

/// The rules of output, in one place: results on standard output, everything for people on standard error.
///
/// With `--json` standard output carries one object a line and nothing else; a failure is one line too,
/// `{"error":{"kind","message","hint"}}`, and the exit code tells its kind.
struct Terminal {
    let json: Bool
    /// As it was named with `--home`, for the commands that a person is told.
    var home: String?

    /// Prints a result line. A reader that has gone ends the program quietly; what cannot be written otherwise is a
    /// failure.
    /// - Parameter code: the exit code of what the line says; it stays when the line cannot be written.
    func result(_ line: String, exitCode code: Int32 = 0) {
        guard let failure = DescriptorOutput.write((line + "\n").utf8, to: STDOUT_FILENO) else { return }
        if failure != EPIPE {
            warn("cannot write to standard output: \(String(cString: strerror(failure)).lowercased())")
        }
        exit(code == 0 && failure != EPIPE ? FailureKind.failed.exitCode : code)
    }

    /// Prints a result as JSON.
    func result(_ value: JSONValue, exitCode code: Int32 = 0) { result(value.text, exitCode: code) }

    /// Tells a person something that is not the result.
    func note(_ line: String) { if !json { Self.tell(naming(home: home, in: line) + "\n") } }

    /// Tells a person something even when a script listens.
    func warn(_ line: String) { Self.tell("mayfly: \(line)\n") }

    /// Asks a person, even with `--json`; the answer follows on the same line.
    static func ask(_ question: String) { tell(question) }

    /// Asks a person to type `name` before something is destroyed.
    /// - Throws: `failed` when something else was typed.
    static func confirm(_ warning: String, byTyping name: String) throws(ControlError) {
        ask("\(warning)\nType \(name) to go on: ")
        guard readLine() == name else { throw ControlError(.failed, "nothing was destroyed: that is not the name") }
    }

    /// Asks a person on a terminal; Enter is yes.
    /// - Returns: false without a terminal, and with `--json`.
    static func asksYes(_ question: String, _ terminal: Terminal) -> Bool {
        guard !terminal.json, isatty(STDIN_FILENO) == 1, isatty(STDERR_FILENO) == 1 else { return false }
        ask("\(question) [Y/n] ")
        return readLine().map { ["", "y", "yes"].contains($0.lowercased()) } ?? false
    }

    /// What a person is told is not what was asked for: that nobody can be told is no failure.
    private static func tell(_ text: String) { _ = DescriptorOutput.write(text.utf8, to: STDERR_FILENO) }

    /// Columns and rows of a terminal; 80 and 24 when it does not say.
    static func size(of descriptor: Int32) -> Picture.Size {
        var size = winsize()
        guard ioctl(descriptor, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0, size.ws_row > 0 else {
            return Picture.Size(columns: 80, rows: 24)
        }
        return Picture.Size(columns: Int(size.ws_col), rows: Int(size.ws_row))
    }

    /// Prints an aligned table; nothing when there are no rows. On a terminal that is too narrow, columns without a value
    /// are left out, and then each row is printed as lines of their own.
    func table(_ head: [String], _ rows: [[String]], exitCode code: Int32 = 0) {
        guard !rows.isEmpty else { return }
        var all = [head] + rows
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
            var line = ""
            for (column, cell) in row.enumerated() {
                line += cell
                if column < row.count - 1 {
                    line += String(repeating: " ", count: widths[column] - CellWidth.of(cell) + 2)
                }
            }
            result(line, exitCode: code)
        }
    }

    /// Prints `name  value` lines, aligned; absent values are left out.
    func fields(_ fields: [(String, String?)], exitCode code: Int32 = 0) {
        let present = fields.compactMap { name, value in value.map { (name, $0) } }
        let widest = present.map { CellWidth.of($0.0) }.max() ?? 0
        for (name, value) in present {
            result(name + String(repeating: " ", count: widest - CellWidth.of(name) + 2) + value, exitCode: code)
        }
    }

    /// Reports a failure. The exit code is the caller's.
    func report(_ error: ControlError) {
        if json {
            result(error.reportValue, exitCode: error.kind.exitCode)
        } else {
            warn("\(safe(error.message))\(error.hint.map { "; \(safe($0))" } ?? "")")
        }
    }
}

/// Text from elsewhere, made harmless for a terminal: control characters become `?`, line breaks a space, and what
/// changes the direction of writing is left out.
func safe(_ text: String) -> String {
    var scalars = String.UnicodeScalarView()
    for scalar in text.unicodeScalars {
        switch scalar.value {
        case 0x09, 0x0A, 0x0D, 0x2028, 0x2029: scalars.append(" ")
        case 0..<0x20, 0x7F..<0xA0: scalars.append("?")
        default: if !scalar.changesDirection { scalars.append(scalar) }
        }
    }
    return String(scalars)
}

/// `12.3 ms`; `-` for none.
func milliseconds(_ value: Double?) -> String {
    guard let value, value.isFinite, value < 1e9 else { return "-" }
    let tenths = Int((value * 10).rounded())
    return "\(tenths / 10).\(abs(tenths % 10)) ms"
}

/// `udp 192.0.2.7`, as a link is shown in one word of a table.
func shown(_ link: Link) -> String { "\(safe(link.transport)) \(safe(link.address))" }

/// The first characters of an id, enough to type.
func short(_ id: String) -> String { String(id.prefix(12)) }
