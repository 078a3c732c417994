import CLinux
import Glibc

/// Columns of a text by wcwidth(3), which terminals and tmux follow.
enum CellWidth {
    /// A UTF-8 locale, independent of the user's.
    nonisolated(unsafe) private static let utf8 = newlocale(1 << LC_CTYPE, "C.UTF-8", nil)

    /// - Returns: 0 to 2 for common characters; the sum of the scalars for long combining sequences.
    static func of(_ character: Character) -> Int {
        if let ascii = character.asciiValue { return (0x20..<0x7F).contains(ascii) ? 1 : 0 }
        let scalars = character.unicodeScalars
        // An emoji of several scalars, a flag, or a character with emoji presentation (UTS #51).
        if scalars.allSatisfy(\.belongsToEmoji),
            scalars.contains(where: { $0.properties.isEmojiPresentation || $0.value == 0xFE0F })
        {
            return 2
        }
        return scalars.reduce(0) { $0 + of($1) }
    }

    static func of(_ text: some StringProtocol) -> Int { text.reduce(0) { $0 + of($1) } }

    private static func of(_ scalar: Unicode.Scalar) -> Int {
        guard let utf8 else { return scalar.properties.generalCategory.isMark ? 0 : 1 }
        let before = uselocale(utf8)
        defer { uselocale(before) }
        // An unknown scalar takes one column, as in most terminals.
        let width = scalar_width(scalar.value)
        return width < 0 ? 1 : Int(width)
    }
}

extension Unicode.Scalar {
    /// An emoji, a joiner or a selector.
    fileprivate var belongsToEmoji: Bool { properties.isEmoji || value == 0x200D || value == 0xFE0F }
}

extension Unicode.GeneralCategory { fileprivate var isMark: Bool { self == .nonspacingMark || self == .enclosingMark } }
