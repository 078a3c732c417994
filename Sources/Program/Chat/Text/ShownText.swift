import Control

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

enum Wrapping {
    /// Wraps a line, at spaces where possible; returns at least one piece.
    static func wrap(_ line: String, width: Int) -> [String] {
        guard width > 0 else { return [""] }
        var rows: [String] = []
        var row: [Character] = []
        var columns = 0
        /// Index behind the last space of the row, and its column.
        var breakPlace: (index: Int, columns: Int)?
        for character in line {
            let size = CellWidth.of(character)
            if character == " ", columns + size > width {
                rows.append(String(row))
                (row, columns, breakPlace) = ([], 0, nil)
                continue
            }
            // After a break the rest may still lack room for a wide character.
            while columns + size > width, !row.isEmpty {
                let place = breakPlace
                rows.append(String(place.map { row[..<($0.index - 1)] } ?? row[...]))
                row.removeFirst(place?.index ?? row.count)
                columns -= place?.columns ?? columns
                breakPlace = nil
            }
            // Drops a character wider than the screen.
            guard size <= width else { continue }
            row.append(character)
            columns += size
            if character == " " { breakPlace = (row.count, columns) }
        }
        rows.append(String(row))
        return rows
    }

    /// Cuts a text to `width` columns, with an ellipsis.
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

    /// Pads or cuts a text to exactly `width` columns.
    static func fit(_ text: String, width: Int) -> String {
        let cut = cut(text, width: width)
        return cut + String(repeating: " ", count: max(0, width - CellWidth.of(cut)))
    }
}
