import FoundationEssentials
import Glibc

/// A file of the home that people may edit is not as it should be.
package struct HomeFileError: Error, Hashable, Sendable, CustomStringConvertible {
    package enum Kind: Hashable, Sendable { case missing, malformed, system }
    package var kind: Kind
    package var path: String
    package var line: Int?
    package var reason: String

    package var description: String { line.map { "\(path), line \($0): \(reason)" } ?? "\(path): \(reason)" }
}

/// Small JSON files in the home: read whole, replaced whole (write, fsync, rename, fsync the directory).
enum HomeFile {
    private static let byteCountLimit = 1 << 20

    static func load<Value: Decodable>(_ type: Value.Type, _ name: String, home: String) throws(HomeFileError) -> Value {
        let path = "\(home)/\(name)"
        let bytes = try read(path)
        do {
            return try JSONDecoder().decode(type, from: Data(bytes))
        } catch let error as DecodingError {
            throw HomeFileError(malformed: error, path: path, bytes: bytes)
        } catch {
            throw HomeFileError(kind: .malformed, path: path, line: nil, reason: "not JSON")
        }
    }

    static func save(_ value: some Encodable, _ name: String, home: String) throws(HomeFileError) {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        guard let data = try? encoder.encode(value) else { preconditionFailure("a value of our own does not encode") }
        try replace("\(home)/\(name)", with: Array(data) + [0x0a], home: home)
    }

    /// The line on which a value of a well-formed file begins. Keys are names and indexes.
    static func line(of path: [FilePathKey], _ name: String, home: String) -> Int? {
        guard let bytes = try? read("\(home)/\(name)") else { return nil }
        var scanner = LocationScanner(bytes: bytes)
        return scanner.line(of: path.map { $0 as any CodingKey }[...])
    }

    private static func read(_ path: String) throws(HomeFileError) -> [UInt8] {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
        guard descriptor >= 0 else { throw HomeFileError(systemCall: "open", path: path) }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = Glibc.read(descriptor, &chunk, chunk.count)
            if count < 0 { throw HomeFileError(systemCall: "read", path: path) }
            if count == 0 { return bytes }
            bytes += chunk[..<count]
            if bytes.count > byteCountLimit {
                throw HomeFileError(kind: .malformed, path: path, line: nil, reason: "larger than \(byteCountLimit) bytes")
            }
        }
    }

    private static func replace(_ path: String, with bytes: [UInt8], home: String) throws(HomeFileError) {
        let temporary = path + ".new"
        let descriptor = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw HomeFileError(systemCall: "open", path: temporary) }
        var written = 0
        while written < bytes.count {
            let count = bytes[written...].withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
            if count < 0 {
                let error = HomeFileError(systemCall: "write", path: temporary)
                close(descriptor)
                unlink(temporary)
                throw error
            }
            written += count
        }
        guard fsync(descriptor) == 0, close(descriptor) == 0, rename(temporary, path) == 0 else {
            throw HomeFileError(systemCall: "replace", path: path)
        }
        let directory = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard directory >= 0 else { throw HomeFileError(systemCall: "open", path: home) }
        defer { close(directory) }
        guard fsync(directory) == 0 else { throw HomeFileError(systemCall: "fsync", path: home) }
    }
}

extension HomeFileError {
    fileprivate init(systemCall: String, path: String) {
        let code = errno
        self.init(
            kind: code == ENOENT ? .missing : .system,
            path: path,
            line: nil,
            reason: "\(systemCall): \(String(cString: strerror(code)))"
        )
    }

    fileprivate init(malformed error: DecodingError, path: String, bytes: [UInt8]) {
        let context: DecodingError.Context
        var reason: String
        switch error {
        case .keyNotFound(let key, let found):
            context = found
            reason = "`\(key.stringValue)` is missing"
        case .typeMismatch(let type, let found), .valueNotFound(let type, let found):
            context = found
            reason = "expected \(Self.words(for: type))"
        case .dataCorrupted(let found):
            context = found
            reason = found.debugDescription
            // The decoder does not say where it stumbled.
            var scanner = LocationScanner(bytes: bytes)
            if found.codingPath.isEmpty, let error = scanner.syntaxError() {
                self.init(
                    kind: .malformed, path: path, line: error.line, reason: "not JSON: expected \(error.expected)"
                )
                return
            }
        @unknown default:
            self.init(kind: .malformed, path: path, line: nil, reason: "\(error)")
            return
        }
        let location = context.codingPath.map { $0.intValue.map { "[\($0)]" } ?? ".\($0.stringValue)" }.joined()
        var scanner = LocationScanner(bytes: bytes)
        let line = scanner.line(of: context.codingPath[...])
        let place = location.isEmpty ? "" : "`\(location.drop { $0 == "." })`: "
        self.init(kind: .malformed, path: path, line: line, reason: place + reason)
    }

    private static func words(for type: Any.Type) -> String {
        if type == String.self { return "a string" }
        if type == Bool.self { return "true or false" }
        if type == Int.self || type == Int64.self || type == Double.self { return "a number" }
        return "\(type)".hasPrefix("Array") ? "a list" : "an object"
    }
}

/// A name or an index on the way to a value.
struct FilePathKey: CodingKey, ExpressibleByStringLiteral, ExpressibleByIntegerLiteral {
    let stringValue: String
    let intValue: Int?

    init(stringValue: String) {
        self.stringValue = stringValue
        intValue = nil
    }

    init(intValue: Int) {
        stringValue = String(intValue)
        self.intValue = intValue
    }

    init(stringLiteral value: String) { self.init(stringValue: value) }
    init(integerLiteral value: Int) { self.init(intValue: value) }
}

/// Walks through JSON to find where a value stands, or where it stops being JSON.
private struct LocationScanner {
    let bytes: [UInt8]
    var index = 0

    init(bytes: [UInt8]) { self.bytes = bytes }

    private var lineNumber: Int {
        1 + bytes[..<min(index, bytes.count)].reduce(0) { $0 + ($1 == UInt8(ascii: "\n") ? 1 : 0) }
    }

    // MARK: Syntax

    private struct SyntaxError: Error { var expected: String }
    private static let depthLimit = 64

    /// Where the text stops being JSON (RFC 8259), and what was expected there. For people who edit: numbers and escapes
    /// are not looked at closely.
    mutating func syntaxError() -> (line: Int, expected: String)? {
        do throws(SyntaxError) {
            try checkValue(depth: 0)
            skipSpace()
            if index < bytes.count { throw SyntaxError(expected: "the end of the file") }
            return nil
        } catch {
            return (lineNumber, error.expected)
        }
    }

    private mutating func take(_ character: Unicode.Scalar) -> Bool {
        skipSpace()
        guard index < bytes.count, bytes[index] == UInt8(ascii: character) else { return false }
        index += 1
        return true
    }

    private mutating func checkValue(depth: Int) throws(SyntaxError) {
        guard depth < Self.depthLimit else { throw SyntaxError(expected: "fewer levels of lists and objects") }
        if take("{") {
            if take("}") { return }
            repeat {
                try checkString("a name in quotes")
                guard take(":") else { throw SyntaxError(expected: "`:` after a name") }
                try checkValue(depth: depth + 1)
            } while take(",")
            guard take("}") else { throw SyntaxError(expected: "`,` or `}`") }
        } else if take("[") {
            if take("]") { return }
            repeat { try checkValue(depth: depth + 1) } while take(",")
            guard take("]") else { throw SyntaxError(expected: "`,` or `]`") }
        } else if index < bytes.count, bytes[index] == UInt8(ascii: "\"") {
            try checkString("a text in quotes")
        } else {
            let word = bytes[index...].prefix { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "+"),
                    UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "E"):
                    true
                default: false
                }
            }
            let text = String(decoding: word, as: UTF8.self)
            guard ["true", "false", "null"].contains(text) || Double(text) != nil else {
                throw SyntaxError(expected: "a value")
            }
            index += word.count
        }
    }

    private mutating func checkString(_ expected: String) throws(SyntaxError) {
        skipSpace()
        let start = index
        guard string() != nil else { throw SyntaxError(expected: expected) }
        guard index <= bytes.count, bytes[index - 1] == UInt8(ascii: "\""), index > start + 1,
            !bytes[start..<index].contains(UInt8(ascii: "\n"))
        else {
            index = start
            throw SyntaxError(expected: "a closing quote")
        }
    }

    // MARK: Places

    /// The line on which the value at `path` begins; that of the innermost part of the path that is there.
    mutating func line(of path: ArraySlice<any CodingKey>) -> Int? {
        skipSpace()
        let here = lineNumber
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
            if depth == 0, index < bytes.count, [UInt8(ascii: ","), UInt8(ascii: "}"), UInt8(ascii: "]")].contains(bytes[index]) {
                return
            }
        }
    }
}
