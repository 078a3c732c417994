/// Semantic style of a text; the renderer chooses colours.
enum Tone: Hashable, Sendable {
    case plain
    case dim
    case strong
    /// A member's name; the number selects the colour.
    case name(Int)
    /// On disk; in memory only; about to be destroyed.
    case kept, memory, exploding
    case warning
    /// The first and the last line.
    case bar
    case card
    case selected
    /// Black on white, whatever the terminal's colours are.
    case code
    /// Palette colours of an image (256 colours); `nil` is the terminal's default.
    case pixels(fore: UInt8?, back: UInt8?, isReversed: Bool)
}

struct Span: Hashable, Sendable {
    let text: String
    let tone: Tone

    init(_ text: String, _ tone: Tone = .plain) {
        self.text = text
        self.tone = tone
    }
}

struct Row: Hashable, Sendable {
    var spans: [Span]
    /// Placed at the right edge, even if the terminal measures the text before it differently.
    var right: Span?

    init(_ spans: Span..., right: Span? = nil) {
        self.spans = spans
        self.right = right
    }

    init(spans: [Span], right: Span? = nil) {
        self.spans = spans
        self.right = right
    }

    /// Columns without ``right``.
    var width: Int { spans.reduce(0) { $0 + CellWidth.of($1.text) } }

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

    /// Plain text.
    func text(width: Int) -> String {
        let left = spans.map(\.text).joined()
        guard let right else { return left }
        return left + String(repeating: " ", count: max(0, width - self.width - CellWidth.of(right.text))) + right.text
    }
}

struct Picture: Hashable, Sendable {
    struct Size: Hashable, Sendable {
        var columns: Int
        var rows: Int
    }

    let size: Size
    /// As many as the screen has.
    let rows: [Row]
    let cursor: (row: Int, column: Int)

    /// Plain text without trailing spaces.
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
