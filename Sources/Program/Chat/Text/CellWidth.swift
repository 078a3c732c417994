import CLinux
import Glibc

/// How many columns of a terminal a text takes, as wcwidth(3) says, which is what terminals and tmux follow.
enum CellWidth {
    /// The locale whose table is used: that of UTF-8, whatever the user's is.
    nonisolated(unsafe) private static let utf8 = newlocale(1 << LC_CTYPE, "C.UTF-8", nil)

    /// - Returns: 0 to 2 for what people write; as much as its parts for a character of many parts.
    static func of(_ character: Character) -> Int {
        if let ascii = character.asciiValue { return (0x20..<0x7F).contains(ascii) ? 1 : 0 }
        let scalars = character.unicodeScalars
        // An emoji of several scalars, a flag, or a sign that is to be shown as an emoji (UTS #51).
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
        // A scalar that the table does not know takes a column, as in most terminals.
        let width = scalar_width(scalar.value)
        return width < 0 ? 1 : Int(width)
    }
}

extension Unicode.Scalar {
    /// An emoji, a joiner or a selector.
    fileprivate var belongsToEmoji: Bool { properties.isEmoji || value == 0x200D || value == 0xFE0F }
}

extension Unicode.GeneralCategory { fileprivate var isMark: Bool { self == .nonspacingMark || self == .enclosingMark } }
