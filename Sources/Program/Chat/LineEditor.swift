/// An input line with a cursor and a history, in memory only.
struct LineEditor {
    private static let historyCount = 200

    private(set) var text: [Character] = []
    private(set) var cursor = 0
    private var history: [(line: String, until: Int64?)] = []
    /// The history entry on display, and the draft it replaced.
    private var shown: (index: Int, draft: [Character])?

    var isEmpty: Bool { text.isEmpty }
    var line: String { String(text) }
    var isCommand: Bool { Self.isCommand(line) }

    /// A slash that begins a text is typed twice.
    static func isCommand(_ line: String) -> Bool { line.hasPrefix("/") && !line.hasPrefix("//") }

    mutating func set(_ line: String) {
        text = Array(line)
        cursor = text.count
    }

    mutating func insert(_ piece: String) {
        text.insert(contentsOf: piece, at: cursor)
        // A combining mark may have joined the previous character.
        let before = String(text[..<cursor]) + piece
        text = Array(String(text))
        cursor = min(text.count, before.count)
    }

    /// Clears the line and adds it to the history.
    /// - Parameter until: expiry of the history entry, in milliseconds since 1970; not later than that of the sent
    ///   message.
    mutating func take(until: Int64? = nil) -> String {
        let line = line
        clear()
        if !line.isEmpty, history.last?.line != line { history.append((line, until)) }
        if history.count > Self.historyCount { history.removeFirst() }
        return line
    }

    mutating func expire(now: Int64) {
        let count = history.count
        history.removeAll { $0.until.map { $0 <= now } ?? false }
        if history.count < count, shown != nil { clear() }
    }

    mutating func forget() {
        clear()
        history = []
    }

    mutating func clear() {
        text = []
        cursor = 0
        shown = nil
    }

    /// - Returns: whether the key edits the line.
    mutating func edit(_ key: Key) -> Bool {
        switch key {
        case .character(let character): insert(String(character))
        case .lineBreak: insert("\n")
        case .backspace where cursor > 0:
            cursor -= 1
            text.remove(at: cursor)
        case .delete where cursor < text.count: text.remove(at: cursor)
        case .backspace, .delete: break
        case .left, .control("b"): cursor = max(0, cursor - 1)
        case .right, .control("f"): cursor = min(text.count, cursor + 1)
        case .home, .control("a"): cursor = 0
        case .end, .control("e"): cursor = text.count
        case .wordLeft, .alt("b"): cursor = wordStart
        case .wordRight, .alt("f"): cursor = wordEnd
        case .control("w"):
            let start = wordStart
            text.removeSubrange(start..<cursor)
            cursor = start
        case .control("u"):
            text.removeFirst(cursor)
            cursor = 0
        case .control("k"): text.removeLast(text.count - cursor)
        case .up: showHistory(-1)
        case .down: showHistory(1)
        default: return false
        }
        return true
    }

    private var wordStart: Int {
        var place = cursor
        while place > 0, text[place - 1].isWhitespace { place -= 1 }
        while place > 0, !text[place - 1].isWhitespace { place -= 1 }
        return place
    }

    private var wordEnd: Int {
        var place = cursor
        while place < text.count, text[place].isWhitespace { place += 1 }
        while place < text.count, !text[place].isWhitespace { place += 1 }
        return place
    }

    private mutating func showHistory(_ step: Int) {
        guard !history.isEmpty else { return }
        let (index, draft) = shown ?? (history.count, text)
        let next = min(history.count, max(0, index + step))
        text = next == history.count ? draft : Array(history[next].line)
        cursor = text.count
        shown = next == history.count ? nil : (next, draft)
    }

    private var completedStart: Int { (text[..<cursor].lastIndex(of: " ") ?? -1) + 1 }

    var word: String { String(text[completedStart..<cursor]) }

    /// Completes the word before the cursor.
    /// - Parameters:
    ///   - candidates: possible completions.
    ///   - isWhole: whether a space follows the only candidate.
    /// - Returns: the matching candidates, when there are several.
    mutating func complete(_ candidates: [String], isWhole: (String) -> Bool = { _ in true }) -> [String] {
        let start = completedStart
        let word = word
        guard !word.isEmpty else { return [] }
        let matches = candidates.filter { $0.lowercased().hasPrefix(word.lowercased()) }
        guard let first = matches.first else { return [] }
        var common = Array(first)
        for match in matches.dropFirst() { common = zip(common, match).prefix { $0 == $1 }.map(\.0) }
        let replacement = matches.count == 1 && isWhole(first) ? common + [" "] : common
        guard replacement.count >= word.count else { return matches }
        text.replaceSubrange(start..<cursor, with: replacement)
        cursor = start + replacement.count
        return matches.count > 1 ? matches : []
    }
}

enum Key: Hashable, Sendable {
    case character(Character)
    /// With Alt, or after Escape.
    case alt(Character)
    /// With Ctrl; lower case.
    case control(Character)
    case enter
    case lineBreak
    case tab
    case backspace
    case delete
    case escape
    case up, down, left, right
    case home, end
    case pageUp, pageDown
    case wordLeft, wordRight
    /// Alt or Ctrl with an arrow: previous or next message.
    case selectUp, selectDown
    case paste(String)
}

/// Parses terminal input: UTF-8, ECMA-48 control sequences as xterm sends them, bracketed paste.
struct KeyParser {
    /// Longest paste in bytes; the rest is dropped. It is longer than a message may be.
    static let pasteByteCount = 1 << 20

    private enum State {
        case ground
        case escape
        /// Bytes after ESC; the first is `[` or `O`.
        case sequence([UInt8])
        case paste([UInt8])
    }

    private var state = State.ground
    /// Bytes of an incomplete UTF-8 character.
    private var partial: [UInt8] = []

    /// True after a lone Escape. Without further bytes it is the key, not the start of a sequence.
    var isWaiting: Bool { if case .escape = state { true } else { false } }

    mutating func feed(_ bytes: some Sequence<UInt8>) -> [Key] { bytes.compactMap { feed($0) } }

    /// Call it when no byte follows within the Escape timeout.
    mutating func timePassed() -> Key? {
        guard isWaiting else { return nil }
        state = .ground
        return .escape
    }

    private mutating func feed(_ byte: UInt8) -> Key? {
        switch state {
        case .ground: return ground(byte)
        case .escape:
            if byte == UInt8(ascii: "[") || byte == UInt8(ascii: "O") {
                state = .sequence([byte])
                return nil
            }
            state = byte == 0x1B ? .escape : .ground
            if byte == 0x1B { return .escape }
            return alt(byte)
        case .sequence(var bytes):
            bytes.append(byte)
            // The first byte is `[` or `O`; parameters, then one final byte.
            guard (0x40...0x7E).contains(byte) else {
                // Keyboard sequences are shorter and contain no control characters.
                state = bytes.count > 32 || byte < 0x20 ? .ground : .sequence(bytes)
                return nil
            }
            state = .ground
            if bytes == Array("[200~".utf8) { state = .paste([]) }
            return Self.key(of: String(decoding: bytes, as: UTF8.self))
        case .paste(var bytes):
            state = .ground
            let end = Array("\u{1B}[201~".utf8)
            bytes.append(byte)
            // Keeps the last bytes, which may begin the end marker.
            if bytes.count > Self.pasteByteCount { bytes.remove(at: bytes.count - end.count - 1) }
            if bytes.suffix(end.count).elementsEqual(end) {
                return .paste(String(decoding: bytes.dropLast(end.count), as: UTF8.self))
            }
            state = .paste(bytes)
            return nil
        }
    }

    private mutating func ground(_ byte: UInt8) -> Key? {
        if byte >= 0x80 || !partial.isEmpty { return character(byte).map { .character($0) } }
        switch byte {
        case 0x1B:
            state = .escape
            return nil
        case 0x0D, 0x0A: return .enter
        case 0x09: return .tab
        case 0x7F, 0x08: return .backspace
        case 0x01...0x1A: return .control(Character(Unicode.Scalar(byte + 0x60)))
        case 0..<0x20: return nil
        default: return .character(Character(Unicode.Scalar(byte)))
        }
    }

    private mutating func alt(_ byte: UInt8) -> Key? {
        switch byte {
        case 0x0D, 0x0A: return .lineBreak
        case 0x20..<0x7F: return .alt(Character(Unicode.Scalar(byte)))
        default: return ground(byte)
        }
    }

    /// Collects a multi-byte character; drops invalid UTF-8.
    private mutating func character(_ byte: UInt8) -> Character? {
        if byte < 0x80 || byte >= 0xC0 { partial = [] }
        partial.append(byte)
        let wanted =
            switch partial[0] {
            case 0xC2...0xDF: 2
            case 0xE0...0xEF: 3
            case 0xF0...0xF4: 4
            default: 1
            }
        guard partial.count >= wanted else { return nil }
        defer { partial = [] }
        return String(validating: partial, as: UTF8.self)?.first
    }

    private static func key(of sequence: String) -> Key? {
        switch sequence {
        case "[A", "OA": .up
        case "[B", "OB": .down
        case "[C", "OC": .right
        case "[D", "OD": .left
        case "[H", "OH", "[1~", "[7~": .home
        case "[F", "OF", "[4~", "[8~": .end
        case "[3~": .delete
        case "[5~": .pageUp
        case "[6~": .pageDown
        case "[1;3A", "[1;5A", "[1;2A": .selectUp
        case "[1;3B", "[1;5B", "[1;2B": .selectDown
        case "[1;3C", "[1;5C": .wordRight
        case "[1;3D", "[1;5D": .wordLeft
        default: nil
        }
    }
}
