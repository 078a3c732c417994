import CLinux
import Control
import Glibc
import Messaging

struct LocalTime: Hashable, Sendable {
    var year: Int
    var month: Int
    var day: Int
    /// 0 is Sunday.
    var weekday: Int
    var hour: Int
    var minute: Int

    /// `08:41`
    var clock: String { "\(hour < 10 ? "0" : "")\(hour):\(minute < 10 ? "0" : "")\(minute)" }

    /// `Monday 23 November`
    var date: String {
        let days = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]
        let months = [
            "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
            "November", "December",
        ]
        return "\(days[weekday % 7]) \(day) \(months[(month + 11) % 12])"
    }

    func isSameDay(_ other: LocalTime) -> Bool { (year, month, day) == (other.year, other.month, other.day) }
}

typealias LocalCalendar = @Sendable (Timestamp) -> LocalTime

enum Words {
    static let unacknowledged = "sent data was not acknowledged: the member is gone, or the path drops large packets"

    static func isEmoji(_ text: String) -> Bool {
        if text == "+1" || text == "-1" { return true }
        // ASCII digits have the emoji property too.
        return text.count == 1 && text.unicodeScalars.contains { $0.properties.isEmoji && !$0.isASCII }
    }

    /// `7 days`, for a lifetime.
    static func lifetime(_ value: Lifetime) -> String {
        switch value {
        case .ephemeral: "memory only"
        case .oneHour: "1 hour"
        case .sixHours: "6 hours"
        case .oneDay: "1 day"
        case .sevenDays: "7 days"
        case .thirtyDays: "30 days"
        }
    }

    /// Remaining time in at most two units: `6d 3h`, `23h 58m`, `58m`, `42s`.
    /// - Parameter blank: stands between a number and its unit.
    static func left(_ milliseconds: Int64, _ blank: String = "") -> String {
        let seconds = max(0, (milliseconds + 999) / 1_000)
        if seconds <= 60 { return "\(seconds)s" }
        let minutes = seconds / 60
        if minutes < 60 { return "\(minutes)m" }
        let hours = minutes / 60
        if hours < 24 { return "\(hours)\(blank)h \(minutes % 60)\(blank)m" }
        return "\(hours / 24)\(blank)d \(hours % 24)\(blank)h"
    }

    /// `01:59:12`, or `6d 3h` for more than a day.
    static func countdown(_ milliseconds: Int64) -> String {
        let seconds = max(0, (milliseconds + 999) / 1_000)
        guard seconds < 86_400 else { return left(milliseconds) }
        func two(_ number: Int64) -> String { "\(number < 10 ? "0" : "")\(number)" }
        return "\(two(seconds / 3_600)):\(two(seconds / 60 % 60)):\(two(seconds % 60))"
    }

    /// `08:43` today, `tomorrow 08:43`, `Friday 27 November 08:43`.
    static func time(_ time: Timestamp, now: Timestamp, _ calendar: LocalCalendar) -> String {
        let local = calendar(time)
        if local.isSameDay(calendar(now)) { return local.clock }
        if local.isSameDay(calendar(Timestamp(milliseconds: now.milliseconds + 86_400_000))) {
            return "tomorrow \(local.clock)"
        }
        return "\(local.date) \(local.clock)"
    }

    static func copies(of member: String) -> String {
        "two copies of \(member)'s home run at once: each copy gets only a part of the messages"
    }

    static func copies(reportedBy member: String) -> String {
        "\(member) reports that two copies of your home run at once: each copy gets only a part of the messages"
    }

    /// A name chosen by a member, cut so that it cannot pass for our own words.
    static func name(_ text: String) -> String { Wrapping.cut(safe(text), width: 16) }

    /// `a, b and c`
    static func list(_ names: [String]) -> String {
        guard names.count > 1, let last = names.last else { return names.first ?? "nobody" }
        return "\(names.dropLast().joined(separator: ", ")) and \(last)"
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

    static func fit(_ text: String, width: Int) -> String {
        let cut = cut(text, width: width)
        return cut + String(repeating: " ", count: max(0, width - CellWidth.of(cut)))
    }
}

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
