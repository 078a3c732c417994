// Line numbers for errors in edited files: JSONDecoder reports none.

/// Finds the line of a value in valid JSON.
struct JSONLocationScanner {
    let bytes: [UInt8]
    var index = 0

    init(bytes: [UInt8]) { self.bytes = bytes }

    mutating func line(of path: ArraySlice<any CodingKey>) -> Int? {
        skipSpace()
        let here = 1 + bytes[..<min(index, bytes.count)].reduce(0) { $0 + ($1 == 0x0a ? 1 : 0) }
        guard let key = path.first, index < bytes.count else { return here }
        if let wanted = key.intValue, bytes[index] == UInt8(ascii: "[") {
            index += 1
            for _ in 0..<wanted {
                skipValue()
                skipSpace()
                guard index < bytes.count, bytes[index] == UInt8(ascii: ",") else { return here }
                index += 1
            }
            return line(of: path.dropFirst())
        }
        guard bytes[index] == UInt8(ascii: "{") else { return here }
        index += 1
        while index < bytes.count {
            skipSpace()
            guard let name = string() else { return here }
            skipSpace()
            index += 1  // the colon
            if name == key.stringValue { return line(of: path.dropFirst()) }
            skipValue()
            skipSpace()
            guard index < bytes.count, bytes[index] == UInt8(ascii: ",") else { return here }
            index += 1
        }
        return here
    }

    private mutating func skipSpace() {
        while index < bytes.count, [0x20, 0x09, 0x0a, 0x0d].contains(bytes[index]) { index += 1 }
    }

    private mutating func string() -> String? {
        guard index < bytes.count, bytes[index] == UInt8(ascii: "\"") else { return nil }
        let start = index + 1
        index = start
        while index < bytes.count, bytes[index] != UInt8(ascii: "\"") {
            index += bytes[index] == UInt8(ascii: "\\") ? 2 : 1
        }
        let end = min(index, bytes.count)
        index = end + 1
        return String(decoding: bytes[start..<end], as: UTF8.self)
    }

    private mutating func skipValue() {
        skipSpace()
        var depth = 0
        while index < bytes.count {
            switch bytes[index] {
            case UInt8(ascii: "\""): _ = string()
            case UInt8(ascii: "{"), UInt8(ascii: "["):
                depth += 1
                index += 1
            case UInt8(ascii: "}"), UInt8(ascii: "]"):
                if depth == 0 { return }
                depth -= 1
                index += 1
            case UInt8(ascii: ","):
                if depth == 0 { return }
                index += 1
            default: index += 1
            }
            if depth == 0, index < bytes.count,
                [UInt8(ascii: ","), UInt8(ascii: "}"), UInt8(ascii: "]")].contains(bytes[index])
            {
                return
            }
        }
    }
}

/// Finds the first syntax error of a text (RFC 8259): JSONDecoder reports no position.
struct JSONSyntaxChecker {
    private struct Unexpected: Error { let words: String }
    private static let depthLimit = 64

    private let bytes: [UInt8]
    private var index = 0

    static func firstError(in bytes: [UInt8]) -> (line: Int, words: String) {
        var checker = JSONSyntaxChecker(bytes: bytes)
        var words = "expected JSON"
        do throws(Unexpected) {
            try checker.value(depth: 0)
            checker.skipSpace()
            if checker.index < bytes.count { throw Unexpected(words: "expected the end") }
        } catch { words = error.words }
        let line = 1 + bytes[..<min(checker.index, bytes.count)].count { $0 == 0x0a }
        return (line, words)
    }

    private init(bytes: [UInt8]) { self.bytes = bytes }

    private var next: UInt8? { index < bytes.count ? bytes[index] : nil }

    private mutating func skipSpace() { while let byte = next, [0x20, 0x09, 0x0a, 0x0d].contains(byte) { index += 1 } }

    private mutating func take(_ character: Character, _ words: String) throws(Unexpected) {
        skipSpace()
        guard next == character.asciiValue else { throw Unexpected(words: words) }
        index += 1
    }

    private mutating func value(depth: Int) throws(Unexpected) {
        guard depth < Self.depthLimit else { throw Unexpected(words: "too deep") }
        skipSpace()
        switch next {
        case UInt8(ascii: "{"):
            try list("}", depth: depth) { checker throws(Unexpected) in
                checker.skipSpace()
                try checker.string()
                try checker.take(":", "expected `:`")
            }
        case UInt8(ascii: "["): try list("]", depth: depth) { _ throws(Unexpected) in }
        case UInt8(ascii: "\""): try string()
        default:
            let start = index
            while let byte = next, !" \t\r\n,:]}[{\"".utf8.contains(byte) { index += 1 }
            let word = String(decoding: bytes[start..<index], as: UTF8.self)
            guard ["true", "false", "null"].contains(word) || Self.isNumber(word) else {
                index = start
                throw Unexpected(
                    words: word.isEmpty ? "expected a value" : "expected a value, found `\(word.prefix(20))`")
            }
        }
    }

    /// RFC 8259, section 6.
    private static func isNumber(_ word: String) -> Bool {
        word.wholeMatch(of: /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/) != nil
    }

    private mutating func list(_ end: Character, depth: Int, key: (inout JSONSyntaxChecker) throws(Unexpected) -> Void)
        throws(Unexpected)
    {
        index += 1
        skipSpace()
        if next == end.asciiValue {
            index += 1
            return
        }
        while true {
            try key(&self)
            try value(depth: depth + 1)
            skipSpace()
            if next == end.asciiValue {
                index += 1
                return
            }
            try take(",", "expected `,` or `\(end)`")
        }
    }

    private mutating func string() throws(Unexpected) {
        guard next == UInt8(ascii: "\"") else { throw Unexpected(words: "expected a string in quotes") }
        let start = index
        index += 1
        while let byte = next, byte != UInt8(ascii: "\""), byte >= 0x20 { index += byte == UInt8(ascii: "\\") ? 2 : 1 }
        guard next == UInt8(ascii: "\"") else {
            index = start
            throw Unexpected(words: "a string without its closing quote")
        }
        index += 1
    }
}
