import Control

/// Text from elsewhere as a terminal may be given it.
enum ShownText {
    /// Scalars of one character that are shown: a base with more marks than this would run into the lines around it.
    private static let scalarCount = 8

    /// The lines of a text: no control character, nothing that changes the direction of writing, tabs as blanks.
    static func lines(_ text: String) -> [String] {
        var result: [String] = []
        var line = ""
        // First: what they would hold apart is one character without them.
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

    /// The same on one line.
    static func line(_ text: String) -> String { lines(text).joined(separator: " ") }

    private static func harmless(_ character: Character) -> String {
        if character == "\t" { return "    " }
        var scalars = String.UnicodeScalarView()
        for scalar in character.unicodeScalars.prefix(scalarCount) {
            switch scalar.value {
            case 0..<0x20, 0x7F..<0xA0: scalars.append("?")
            default: scalars.append(scalar)
            }
        }
        return String(scalars)
    }
}

/// Lines cut to the width of a screen.
enum Wrapping {
    /// The pieces of a line that fit, broken at blanks where there are any; at least one piece.
    static func wrap(_ line: String, width: Int) -> [String] {
        guard width > 0 else { return [""] }
        var rows: [String] = []
        var row: [Character] = []
        var columns = 0
        /// Behind the last blank of the row, and the columns up to it.
        var breakPlace: (index: Int, columns: Int)?
        for character in line {
            let size = CellWidth.of(character)
            if character == " ", columns + size > width {
                rows.append(String(row))
                (row, columns, breakPlace) = ([], 0, nil)
                continue
            }
            // What is left behind a break may still have no room for a wide character.
            while columns + size > width, !row.isEmpty {
                let place = breakPlace
                rows.append(String(place.map { row[..<($0.index - 1)] } ?? row[...]))
                row.removeFirst(place?.index ?? row.count)
                columns -= place?.columns ?? columns
                breakPlace = nil
            }
            // A character that is wider than the screen is left out.
            guard size <= width else { continue }
            row.append(character)
            columns += size
            if character == " " { breakPlace = (row.count, columns) }
        }
        rows.append(String(row))
        return rows
    }

    /// The beginning of a text, with an ellipsis if it is longer than `width` columns.
    static func cut(_ text: String, width: Int) -> String {
        guard CellWidth.of(text) > width else { return text }
        guard width > 0 else { return "" }
        var result = ""
        var columns = 0
        for character in text {
            let size = CellWidth.of(character)
            guard columns + size < width else { break }
            result.append(character)
            columns += size
        }
        return result + "…"
    }

    /// A text filled up with blanks, or cut, to exactly `width` columns.
    static func fit(_ text: String, width: Int) -> String {
        let cut = cut(text, width: width)
        return cut + String(repeating: " ", count: max(0, width - CellWidth.of(cut)))
    }
}
