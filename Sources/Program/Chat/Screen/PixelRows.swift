/// Converts the output of a drawing program to rows. It keeps colour sequences (ECMA-48, SGR) and drops other control
/// sequences and invisible characters.
enum PixelRows {
    private struct Pen {
        var fore: UInt8?
        var back: UInt8?
        var isReversed = false

        var tone: Tone { .pixels(fore: fore, back: back, isReversed: isReversed) }

        /// Applies the parameters of one sequence; unknown ones have no effect.
        mutating func apply(_ parameters: [Int]) {
            var rest = parameters[...]
            while let first = rest.popFirst() {
                switch first {
                case 0: self = Pen()
                case 7: isReversed = true
                case 27: isReversed = false
                case 39: fore = nil
                case 49: back = nil
                case 30...37: fore = UInt8(first - 30)
                case 40...47: back = UInt8(first - 40)
                case 90...97: fore = UInt8(first - 82)
                case 100...107: back = UInt8(first - 92)
                case 38, 48:
                    guard rest.popFirst() == 5, let number = rest.popFirst().flatMap({ UInt8(exactly: $0) }) else {
                        return
                    }
                    if first == 38 { fore = number } else { back = number }
                default: break
                }
            }
        }
    }

    /// - Parameter size: larger images are cut.
    static func rows(of bytes: [UInt8], size: Picture.Size) -> [Row] {
        var pen = Pen()
        var rows: [Row] = []
        for line in String(decoding: bytes, as: UTF8.self).split(separator: "\n", omittingEmptySubsequences: true) {
            guard rows.count < size.rows else { break }
            var spans: [Span] = []
            var text = ""
            func flush() {
                if !text.isEmpty { spans.append(Span(ShownText.line(text), pen.tone)) }
                text = ""
            }
            var scalars = line.unicodeScalars[...]
            while let scalar = scalars.popFirst() {
                guard scalar == "\u{1B}" else {
                    text.unicodeScalars.append(scalar)
                    continue
                }
                flush()
                guard scalars.first == "[" else { continue }
                scalars.removeFirst()
                let body = scalars.prefix { (0x20...0x3F).contains($0.value) }
                scalars.removeFirst(body.count)
                guard scalars.popFirst() == "m" else { continue }
                pen.apply(
                    String(body).split(separator: ";", omittingEmptySubsequences: false).map {
                        $0.isEmpty ? 0 : Int($0) ?? -1
                    })
            }
            flush()
            rows.append(Row(spans: spans).cut(to: size.columns))
        }
        return rows
    }
}
