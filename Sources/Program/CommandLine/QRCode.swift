/// A QR code for a terminal, two modules per character cell.
enum QRCode {
    static func coloured(_ row: String) -> String { "\u{1b}[30;107m\(row)\u{1b}[0m" }

    /// Rows to show in black on white, with the quiet zone of four modules (ISO/IEC 18004); `nil` when `text` does not
    /// fit.
    static func rows(for text: String) -> [String]? {
        guard let matrix = QRMatrix(Array(text.utf8)) else { return nil }
        let modules = 0..<matrix.size
        func isDark(_ row: Int, _ column: Int) -> Bool {
            modules.contains(row) && modules.contains(column) && matrix[column, row]
        }
        return stride(from: -4, to: matrix.size + 4, by: 2).map { row in
            var line = ""
            for column in -4..<matrix.size + 4 {
                switch (isDark(row, column), isDark(row + 1, column)) {
                case (true, true): line += "█"
                case (true, false): line += "▀"
                case (false, true): line += "▄"
                case (false, false): line += " "
                }
            }
            return line
        }
    }
}
