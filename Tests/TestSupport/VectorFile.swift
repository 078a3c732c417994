import Cryptography
import Foundation

/// A test vector of the specification: a paragraph of a file in `Tests/Vectors`, whose first line is `vector: NAME`.
///
/// Each other line is `field: value`. A long value continues on lines indented by two spaces. Byte strings are
/// hexadecimal. `Tests/Vectors/vectors.py` writes the files.
package struct Vector {
    /// An error in a file, or a field that a test does not find.
    package struct Failure: Error, CustomStringConvertible {
        package let description: String
        package init(description: String) { self.description = description }
    }

    package let name: String
    /// In the order of the file; a name may repeat.
    package let fields: [(name: String, value: String)]

    /// The first value of this name, unparsed.
    package func text(_ field: String) throws -> String {
        guard let found = fields.first(where: { $0.name == field }) else {
            throw Failure(description: "the vector \(name) has no field \(field)")
        }
        return found.value
    }

    package func texts(_ field: String) -> [String] { fields.filter { $0.name == field }.map(\.value) }

    package func bytes(_ field: String) throws -> [UInt8] {
        guard let bytes = Hex.decode(try text(field)) else {
            throw Failure(description: "\(name), \(field): not hexadecimal")
        }
        return bytes
    }

    package func number(_ field: String) throws -> Int64 {
        guard let number = Int64(try text(field)) else { throw Failure(description: "\(name), \(field): not a number") }
        return number
    }
}

/// The examples of one page of the specification: `Tests/Vectors/NAME.txt`.
package struct VectorFile {
    package let vectors: [Vector]

    package init(_ name: String) throws {
        vectors = try Specification.text("Tests/Vectors/\(name).txt").components(separatedBy: "\n\n").map { paragraph in
            var fields: [(name: String, value: String)] = []
            for line in paragraph.split(separator: "\n") {
                if line.hasPrefix("  "), let last = fields.indices.last {
                    fields[last].value += line.dropFirst(2)
                } else if let colon = line.firstIndex(of: ":") {
                    let value = line[line.index(after: colon)...].drop { $0 == " " }
                    fields.append((String(line[..<colon]), String(value)))
                }
            }
            return Vector(name: fields.first?.value ?? "", fields: Array(fields.dropFirst()))
        }
    }

    package subscript(_ name: String) -> Vector {
        get throws {
            guard let vector = vectors.first(where: { $0.name == name }) else {
                throw Vector.Failure(description: "the file has no vector \(name)")
            }
            return vector
        }
    }

    /// Vectors whose names begin with `prefix`; the prefix is removed.
    package func vectors(_ prefix: String) -> [(name: String, vector: Vector)] {
        vectors.filter { $0.name.hasPrefix(prefix) }.map { (String($0.name.dropFirst(prefix.count)), $0) }
    }
}

/// The pages of the specification.
package enum Specification {
    /// A page of the module Messaging.
    package static func page(_ name: String) throws -> String {
        try text("Sources/Messaging/Messaging.docc/\(name).md")
    }

    fileprivate static func text(_ path: String) throws -> String {
        let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        return try String(contentsOf: root.appending(path: path), encoding: .utf8)
    }
}

/// The given bytes, then zeros, as random numbers.
package struct ReplayedRandomness: RandomNumberGenerator {
    private var bytes: ArraySlice<UInt8>

    package init(_ bytes: [UInt8] = []) { self.bytes = bytes[...] }

    package mutating func next() -> UInt64 {
        let next = bytes.prefix(8)
        bytes = bytes.dropFirst(8)
        return next.reversed().reduce(0) { $0 << 8 | UInt64($1) }
    }
}
