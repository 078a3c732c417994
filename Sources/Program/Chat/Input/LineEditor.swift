/// An input line with a cursor and a history, in memory only.
struct LineEditor {
    private static let historyCount = 200

    private(set) var text: [Character] = []
    private(set) var cursor = 0
    private var history: [(line: String, until: Int64?)] = []
    /// The history entry on display, and the draft it replaced.
    private var shown: (index: Int, draft: [Character])?

    init() {}

    var isEmpty: Bool { text.isEmpty }
    var line: String { String(text) }

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

    /// Start of the word before the cursor.
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
        for match in matches.dropFirst() {
            let characters = Array(match)
            var count = 0
            while count < min(common.count, characters.count), common[count] == characters[count] { count += 1 }
            common = Array(common.prefix(count))
        }
        let replacement = matches.count == 1 && isWhole(first) ? common + [" "] : common
        guard replacement.count >= word.count else { return matches }
        text.replaceSubrange(start..<cursor, with: replacement)
        cursor = start + replacement.count
        return matches.count > 1 ? matches : []
    }
}
