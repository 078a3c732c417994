enum Key: Hashable, Sendable {
    case character(Character)
    /// With Alt, or after Escape.
    case alt(Character)
    /// With Ctrl; lower case.
    case control(Character)
    case enter
    /// Alt-Enter.
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

    init() {}

    /// True after a lone Escape. Without further bytes it is the key, not the start of a sequence.
    var isWaiting: Bool {
        switch state {
        case .escape: true
        case .ground, .sequence, .paste: false
        }
    }

    mutating func feed(_ bytes: some Sequence<UInt8>) -> [Key] {
        var keys: [Key] = []
        for byte in bytes { if let key = feed(byte) { keys.append(key) } }
        return keys
    }

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
