import Cryptography
import Foundation
import FuzzTargets
import Messaging
import TestSupport
import Testing

/// The examples of the page Frames, from `Tests/Vectors/vectors.py`.
@Suite("Frames") struct FrameVectors {
    @Test func `the codec writes every example of the page, and reads it as the same frame`() throws {
        let examples = try VectorFile("Frames")
        var specified = try SpecifiedFrames()
        var frames = Dictionary(uniqueKeysWithValues: try specified.all())
        for (name, vector) in examples.vectors("frame: ") {
            let frame = frames.removeValue(forKey: name)
            guard let frame else {
                Issue.record("no frame for \(name)")
                continue
            }
            #expect(Hex.encode(FrameCodec.encode(frame)) == (try vector.text("bytes")), "\(name)")
            #expect(try FrameCodec.decode(vector.bytes("bytes")) == frame, "\(name)")
        }
        #expect(frames.keys.sorted() == [])
    }

    @Test func `the page has every message and field of mayfly.proto`() throws {
        let tests = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        let proto = try String(contentsOf: tests.appending(path: "FuzzTargets/mayfly.proto"), encoding: .utf8)
        let declared = Self.declared(proto)
        let specified = Self.specified(try Specification.page("Frames"))
        #expect(declared.count > 100)
        #expect(declared.subtracting(specified).sorted() == [])
        #expect(specified.subtracting(declared).sorted() == [])
    }

    /// `MESSAGE NUMBER NAME TYPE` of each field that a proto file declares.
    private static func declared(_ proto: String) -> Set<String> {
        var found: Set<String> = []
        // Open blocks; a oneof has no name.
        var path: [String] = []
        var inner: [String: String] = [:]
        for line in proto.split(separator: "\n") {
            let code = line.firstRange(of: "//").map { line[..<$0.lowerBound] } ?? line
            let words = code.split { $0 == " " || $0 == ";" }.map(String.init)
            let message = path.last { !$0.isEmpty }
            if words.last == "{" {
                let name = words[0] == "message" ? words[1] : ""
                if !name.isEmpty, let message { inner[name] = message + "." + name }
                path.append(inner[name] ?? name)
            } else if words == ["}"] {
                path.removeLast()
            } else if let equals = words.firstIndex(of: "="), let message {
                let type = words[..<(equals - 1)].map { inner[$0] ?? $0 }.joined(separator: " ")
                found.insert("\(message) \(words[equals + 1]) \(words[equals - 1]) \(type)")
            }
        }
        return found
    }

    /// The same from the page's tables, each under the name of its message.
    private static func specified(_ page: String) -> Set<String> {
        var found: Set<String> = []
        var message: String?
        for line in page.split(separator: "\n") {
            if line.hasPrefix("#") { message = line.hasPrefix("### ") ? String(line.dropFirst(4)) : nil }
            let cells = line.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
            guard let message, line.hasPrefix("| "), cells.count >= 2 else { continue }
            let words = cells[0].split(separator: " ")
            guard words.count == 2, Int(words[0]) != nil, words[1].hasPrefix("`"), words[1].hasSuffix("`") else {
                continue
            }
            found.insert("\(message) \(words[0]) \(words[1].dropFirst().dropLast()) \(cells[1])")
        }
        return found
    }
}
