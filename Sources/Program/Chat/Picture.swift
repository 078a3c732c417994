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

    func text(width: Int) -> String {
        let left = spans.map(\.text).joined()
        guard let right else { return left }
        return left + String(repeating: " ", count: max(0, width - self.width - CellWidth.of(right.text))) + right.text
    }
}

struct Picture: Equatable, Sendable {
    struct Size: Hashable, Sendable {
        var columns: Int
        var rows: Int
    }

    let size: Size
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
}

/// Renders pictures as ECMA-48 output. It sends only changed lines.
struct Renderer {
    /// False with `NO_COLOR` (no-color.org): tones become bold, dim and reverse.
    private let hasColours: Bool
    private var shown: Picture?

    init(hasColours: Bool) { self.hasColours = hasColours }

    /// Alternate screen and bracketed paste. Line wrap is off, so that a character wider than expected stays in its
    /// line.
    static let begin = "\u{1B}[?1049h\u{1B}[?2004h\u{1B}[?7l\u{1B}[2J"
    /// Clears the alternate screen before leaving it, because some terminals keep it.
    static let end = "\u{1B}[0m\u{1B}[2J\u{1B}[?7h\u{1B}[?2004l\u{1B}[?25h\u{1B}[?1049l"

    /// Forces a full redraw, because the screen may have been overwritten.
    mutating func forget() { shown = nil }

    mutating func update(_ picture: Picture) -> String {
        guard picture != shown else { return "" }
        // Synchronised output, where supported, avoids tearing.
        var bytes = "\u{1B}[?2026h\u{1B}[?25l"
        let isNew = shown?.size != picture.size
        if isNew { bytes += "\u{1B}[0m\u{1B}[2J" }
        for (index, row) in picture.rows.enumerated() where isNew || shown?.rows[index] != row {
            bytes += "\u{1B}[\(index + 1);1H\u{1B}[0m\u{1B}[2K"
            if row.spans.first?.tone == .bar {
                bytes += code(.bar) + String(repeating: " ", count: picture.size.columns) + "\r"
            }
            for span in row.spans { bytes += code(span.tone) + span.text + "\u{1B}[0m" }
            if let right = row.right {
                let column = max(1, picture.size.columns - CellWidth.of(right.text) + 1)
                // A left-to-right mark keeps digits beside right-to-left text in place (UAX #9).
                let mark = row.spans.contains(where: \.text.isRightToLeft) ? "\u{200E}" : ""
                bytes += "\u{1B}[\(column)G\(code(right.tone))\(mark)\(right.text)\u{1B}[0m"
            }
        }
        bytes += "\u{1B}[\(picture.cursor.row + 1);\(picture.cursor.column + 1)H\u{1B}[?25h\u{1B}[?2026l"
        shown = picture
        return bytes
    }

    private func code(_ tone: Tone) -> String {
        switch tone {
        case .plain: "\u{1B}[0m"
        case .dim: "\u{1B}[2m"
        case .strong: "\u{1B}[1m"
        case .bar, .selected: "\u{1B}[7m"
        case .code: "\u{1B}[30;107m"
        case .name where !hasColours: "\u{1B}[0m"
        case .pixels(_, _, let isReversed) where !hasColours: isReversed ? "\u{1B}[7m" : "\u{1B}[0m"
        case _ where !hasColours: "\u{1B}[1m"
        // Colours readable on black and on white: neither yellow nor pale ones.
        case .name(let number): "\u{1B}[1;\([31, 32, 34, 35, 36][number % 5])m"
        case .kept: "\u{1B}[30;42m"
        case .memory: "\u{1B}[30;46m"
        case .exploding: "\u{1B}[1;37;41m"
        case .warning: "\u{1B}[1;31m"
        case .card: "\u{1B}[1;36m"
        case .pixels(let fore, let back, let isReversed):
            "\u{1B}[0\(isReversed ? ";7" : "")\(fore.map { ";38;5;\($0)" } ?? "")\(back.map { ";48;5;\($0)" } ?? "")m"
        }
    }
}

extension String {
    /// Has letters of Hebrew, Arabic, Syriac, Thaana, N'Ko or their presentation forms.
    fileprivate var isRightToLeft: Bool {
        unicodeScalars.contains {
            (0x0590...0x08FF).contains($0.value) || (0xFB1D...0xFDFF).contains($0.value)
                || (0xFE70...0xFEFF).contains($0.value) || (0x10800...0x10FFF).contains($0.value)
                || (0x1E800...0x1EFFF).contains($0.value)
        }
    }
}
