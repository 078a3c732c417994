import FoundationEssentials

/// The lines of the values in a JSON text (RFC 8259), and its first syntax error: JSONDecoder reports no position.
struct JSONIndex {
    struct Failure: Error {
        let line: Int
        let words: String
    }

    private static let depthLimit = 64

    private var lines: [[FilePathKey]: Int] = [:]
    /// The paths of the objects' members, in order.
    private var members: [[FilePathKey]] = []
    private let bytes: [UInt8]
    private var index = 0
    private var line = 1

    init(_ bytes: [UInt8]) throws(Failure) {
        self.bytes = bytes
        // A byte order mark, which JSONDecoder ignores.
        if bytes.starts(with: [0xef, 0xbb, 0xbf]) { index = 3 }
        try value([])
        skipSpace()
        if index < bytes.count { throw failure("expected the end") }
    }

    /// The line of the value at `path`, or of its innermost existing part.
    func line(of path: [FilePathKey]) -> Int? {
        (0...path.count).reversed().lazy.compactMap { lines[Array(path.prefix($0))] }.first
    }

    /// The first member with an unknown name.
    /// - Parameter known: the names in each object, by its path, with `*` for the index in a list.
    func stranger(_ known: [String: [String]]) -> (path: [FilePathKey], known: [String])? {
        for member in members {
            let object = member.dropLast().map { $0.intValue == nil ? $0.stringValue : "*" }.joined(separator: ".")
            guard let names = known[object], let name = member.last?.stringValue, !names.contains(name) else {
                continue
            }
            return (member, names)
        }
        return nil
    }

    private func failure(_ words: String) -> Failure { Failure(line: line, words: words) }

    private var next: UInt8? { index < bytes.count ? bytes[index] : nil }

    private mutating func skipSpace() {
        while let byte = next, [0x20, 0x09, 0x0a, 0x0d].contains(byte) {
            if byte == 0x0a { line += 1 }
            index += 1
        }
    }

    private mutating func take(_ character: Character, _ words: String) throws(Failure) {
        skipSpace()
        guard next == character.asciiValue else { throw failure(words) }
        index += 1
    }

    private mutating func value(_ path: [FilePathKey]) throws(Failure) {
        guard path.count < Self.depthLimit else { throw failure("too deep") }
        skipSpace()
        if lines[path] == nil { lines[path] = line }
        switch next {
        case UInt8(ascii: "{"): try list("}", path)
        case UInt8(ascii: "["): try list("]", path)
        case UInt8(ascii: "\""): _ = try string()
        default:
            let start = index
            while let byte = next, !" \t\r\n,:]}[{\"".utf8.contains(byte) { index += 1 }
            let word = String(decoding: bytes[start..<index], as: UTF8.self)
            guard ["true", "false", "null"].contains(word) || Self.isNumber(word) else {
                throw failure(word.isEmpty ? "expected a value" : "expected a value, found `\(word.prefix(20))`")
            }
        }
    }

    /// RFC 8259, section 6.
    private static func isNumber(_ word: String) -> Bool {
        word.wholeMatch(of: /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/) != nil
    }

    private mutating func list(_ end: Character, _ path: [FilePathKey]) throws(Failure) {
        index += 1
        skipSpace()
        var count = 0
        while next != end.asciiValue {
            if count > 0 { try take(",", "expected `,` or `\(end)`") }
            var key = FilePathKey(intValue: count)
            if end == "}" {
                skipSpace()
                key = FilePathKey(stringValue: try string())
                members.append(path + [key])
                try take(":", "expected `:`")
            }
            try value(path + [key])
            skipSpace()
            count += 1
        }
        index += 1
    }

    private mutating func string() throws(Failure) -> String {
        guard next == UInt8(ascii: "\"") else { throw failure("expected a string in quotes") }
        let start = index
        index += 1
        while let byte = next, byte != UInt8(ascii: "\""), byte >= 0x20 { index += byte == UInt8(ascii: "\\") ? 2 : 1 }
        guard next == UInt8(ascii: "\"") else { throw failure("a string without its closing quote") }
        index += 1
        let token = bytes[start..<index]
        let isEscaped = token.contains(UInt8(ascii: "\\"))
        let decoded = isEscaped ? try? JSONDecoder().decode(String.self, from: Data(token)) : nil
        return decoded ?? String(decoding: token.dropFirst().dropLast(), as: UTF8.self)
    }
}

/// A name in an object of a file, or an index in a list.
struct FilePathKey: Hashable {
    let stringValue: String
    let intValue: Int?
}

extension FilePathKey: CodingKey, ExpressibleByStringLiteral {
    init(stringValue: String) { self.init(stringValue: stringValue, intValue: nil) }

    init(intValue: Int) { self.init(stringValue: String(intValue), intValue: intValue) }

    init(_ key: any CodingKey) {
        self = key.intValue.map { FilePathKey(intValue: $0) } ?? FilePathKey(stringValue: key.stringValue)
    }

    init(stringLiteral value: String) { self.init(stringValue: value) }
}
