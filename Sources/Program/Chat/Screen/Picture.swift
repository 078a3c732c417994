/// What a piece of text means; the colours are the renderer's.
enum Tone: Hashable, Sendable {
    case plain
    case dim
    case strong
    /// The name of a member: the same colour for the same name.
    case name(Int)
    /// Kept on the disk; in memory alone; about to be destroyed.
    case kept, memory, exploding
    case warning
    /// The first line, and the last.
    case bar
    case card
    case selected
    /// Black on white, whatever the colours of the terminal are.
    case code
    /// Colours of an image, of the 256 of a terminal; `nil` is the terminal's own.
    case pixels(fore: UInt8?, back: UInt8?, isReversed: Bool)
}

/// Text of one tone.
struct Span: Hashable, Sendable {
    let text: String
    let tone: Tone

    init(_ text: String, _ tone: Tone = .plain) {
        self.text = text
        self.tone = tone
    }
}

/// A line of the screen.
struct Row: Hashable, Sendable {
    var spans: [Span]
    /// What stands at the right end of the line, whatever the terminal makes of the text before it.
    var right: Span?

    init(_ spans: Span..., right: Span? = nil) {
        self.spans = spans
        self.right = right
    }

    init(spans: [Span], right: Span? = nil) {
        self.spans = spans
        self.right = right
    }

    /// Columns of all but ``right``.
    var width: Int { spans.reduce(0) { $0 + CellWidth.of($1.text) } }

    /// The same, cut to a screen.
    func cut(to columns: Int) -> Row {
        let right = right.flatMap { CellWidth.of($0.text) < columns / 2 ? $0 : nil }
        var left = columns - (right.map { CellWidth.of($0.text) + 1 } ?? 0)
        guard width > left || right != self.right else { return self }
        var spans: [Span] = []
        for span in self.spans {
            let text = Wrapping.cut(span.text, width: left)
            spans.append(Span(text, span.tone))
            left -= CellWidth.of(text)
            if text != span.text { break }
        }
        return Row(spans: spans, right: right)
    }

    /// As it is seen, without colours.
    func text(width: Int) -> String {
        let left = spans.map(\.text).joined()
        guard let right else { return left }
        return left + String(repeating: " ", count: max(0, width - self.width - CellWidth.of(right.text))) + right.text
    }
}

/// A whole screen.
struct Picture: Hashable, Sendable {
    struct Size: Hashable, Sendable {
        var columns: Int
        var rows: Int

        init(columns: Int, rows: Int) {
            self.columns = columns
            self.rows = rows
        }
    }

    let size: Size
    /// As many as the screen has.
    let rows: [Row]
    let cursor: (row: Int, column: Int)

    init(size: Size, rows: [Row], cursor: (row: Int, column: Int)) {
        self.size = size
        self.rows = rows
        self.cursor = cursor
    }

    /// As it is seen, without colours and without blanks at the ends of lines.
    var text: String {
        rows.map { row in
            let line = row.text(width: size.columns)
            return String(line.reversed().drop { $0 == " " }.reversed())
        }.joined(separator: "\n")
    }

    static func == (one: Picture, other: Picture) -> Bool {
        one.size == other.size && one.rows == other.rows && one.cursor == other.cursor
    }

    func hash(into hasher: inout Hasher) {
        hasher.combine(size)
        hasher.combine(rows)
    }
}
