import Foundation
import Testing

/// Checks that the tests named by `Tests/Promises.txt` exist, and that each promise has one.
@Suite("Behaviours") struct BehavioursTests {
    private static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    /// A line of `Tests/Promises.txt`: the test shows the promise with this number.
    struct Promise: Equatable {
        let number: String
        /// Empty where a page has the promise.
        let says: String
        let test: String
        /// The test, or suite, only shows more.
        let isMore: Bool
    }

    static func promises(_ text: String) -> [Promise] {
        var test = ""
        return text.split(separator: "\n").filter { !$0.hasPrefix("#") }.compactMap { line in
            guard line.hasPrefix("  ") else {
                test = String(line)
                return nil
            }
            let number = line.dropFirst(2).prefix { $0 != " " }
            return Promise(
                number: number.filter { $0 != "(" && $0 != ")" }, says: String(line.dropFirst(number.count + 3)),
                test: test, isMore: number.hasPrefix("("))
        }
    }

    struct Script: Hashable {
        let name: String
        /// The test may be skipped or is expected to fail, so it proves nothing.
        let isConditional: Bool
    }

    struct Suite {
        let at: String.Index
        let type: String
        /// The display name; `nil` for an extension.
        let name: String?
        let traits: String
    }

    static func suites(in text: String) -> [Suite] {
        let declared = matches(
            #"@Suite(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))?\s*(?:(?:private|fileprivate|package|final)\s+)*(?:struct|class|actor|enum)\s+(\w+)"#,
            text
        ).map { Suite(at: $0.at, type: $0.groups[1], name: quoted($0.groups[0]) ?? $0.groups[1], traits: $0.groups[0]) }
        let extended = matches(#"(?:^|\n)(?:(?:private|fileprivate)\s+)?extension\s+(\w+)"#, text).map {
            Suite(at: $0.at, type: $0.groups[0], name: nil, traits: "")
        }
        return (declared + extended).sorted { $0.at < $1.at }
    }

    static func scripts(in sources: [String]) -> [Script] {
        let texts = sources.map(withoutComments)
        let suites = texts.map(suites(in:))
        let known = Dictionary(suites.joined().filter { $0.name != nil }.map { ($0.type, $0) }) { first, _ in first }
        return zip(texts, suites).flatMap { scripts(in: $0, $1, known: known) }
    }

    private static func withoutComments(_ source: String) -> String {
        source.split(separator: "\n", omittingEmptySubsequences: false).map { line in
            line.trimmingCharacters(in: .whitespaces).hasPrefix("//") ? "" : String(line)
        }.joined(separator: "\n")
    }

    private static func scripts(in text: String, _ suites: [Suite], known: [String: Suite]) -> [Script] {
        let tests = matches(
            ##"@Test(\((?:[^()"]|"(?:[^"\\]|\\.)*"|#"[^\n]*?"#|\((?:[^()"]|"(?:[^"\\]|\\.)*"|\((?:[^()"]|"(?:[^"\\]|\\.)*"|\([^()]*\))*\))*\))*\))?\s*(?:(?:private|fileprivate|package|static|mutating)\s+)*func\s+(?:`([^`]+)`|(\w+))"##,
            text)
        return tests.enumerated().compactMap { index, test in
            guard let here = suites.last(where: { $0.at < test.at }), let suite = known[here.type] else { return nil }
            let end = index + 1 < tests.count ? tests[index + 1].at : text.endIndex
            let body = text[test.at..<end]
            let traits = test.groups[0] + suite.traits
            let raw = test.groups[1].isEmpty ? test.groups[2] : test.groups[1]
            return Script(
                name: "\(suite.name ?? suite.type)/\(quoted(test.groups[0]) ?? raw)",
                isConditional: [".enabled(", ".disabled("].contains { traits.contains($0) }
                    || ["withKnownIssue", "Test.cancel", "try cancel("].contains { body.contains($0) }
                    || !matches(wayOut, String(body)).isEmpty)
        }
    }

    /// The early return of a test that passes on machines without its requirement.
    private static let wayOut =
        #"\b(?:guard|if)\s[^{}]*(?:\bgete?uid\(\)|\bcan(?:Make|Mount|Be)\w*|\bis(?:There|Root)\b)[^{}]*\{\s*return\s*\}"#

    /// The display name: the first string of a macro's arguments.
    private static func quoted(_ arguments: String) -> String? {
        let inside = arguments.dropFirst().drop { $0.isWhitespace }
        guard inside.first == "\"" else { return nil }
        var name = ""
        var isEscaped = false
        for character in inside.dropFirst() {
            if isEscaped {
                name.append(character)
                isEscaped = false
            } else if character == "\\" {
                isEscaped = true
            } else if character == "\"" {
                return name
            } else {
                name.append(character)
            }
        }
        return nil
    }

    private static func matches(_ pattern: String, _ text: String) -> [(at: String.Index, groups: [String])] {
        guard let expression = try? NSRegularExpression(pattern: pattern) else { return [] }
        return expression.matches(in: text, range: NSRange(text.startIndex..., in: text)).compactMap { match in
            guard let range = Range(match.range, in: text) else { return nil }
            let groups = (1..<match.numberOfRanges).map { number in
                Range(match.range(at: number), in: text).map { String(text[$0]) } ?? ""
            }
            return (range.lowerBound, groups)
        }
    }

    private static func allScripts() throws -> [Script] {
        let tests = root.appending(path: "Tests")
        let files =
            FileManager.default.enumerator(at: tests, includingPropertiesForKeys: nil)?.compactMap { $0 as? URL }.filter
        { $0.pathExtension == "swift" } ?? []
        let targets = Dictionary(grouping: files) { $0.deletingLastPathComponent().path() }
        return try targets.values.flatMap { files in
            scripts(in: try files.map { try String(contentsOf: $0, encoding: .utf8) })
        }
    }

    private static func text(_ path: String) throws -> String {
        try String(contentsOf: root.appending(path: path), encoding: .utf8)
    }

    private static func promises() throws -> [Promise] { promises(try text("Tests/Promises.txt")) }

    /// The numbers of the promises of a page, each at the beginning of a line behind `mark`.
    private static func numbers(_ page: String, _ mark: String) throws -> [String] {
        try text("Sources/Messaging/Messaging.docc/\(page).md").split(separator: "\n").filter { $0.hasPrefix(mark) }.map
        { String($0.dropFirst(2).prefix { $0 != " " && $0 != ":" }) }
    }

    /// By the name without backquotes. Among tests of one name, one that can be skipped counts.
    private static func scriptsByName() throws -> [String: Script] {
        Dictionary(try allScripts().map { ($0.name.filter { $0 != "`" }, $0) }) { $0.isConditional ? $0 : $1 }
    }

    /// Numbers that a test shows which is never skipped; the path of a script stands for its checks.
    private static func shown(_ promises: [Promise]) throws -> Set<String> {
        let scripts = try scriptsByName()
        return Set(promises.filter { !$0.isMore && scripts[$0.test]?.isConditional == false }.map(\.number))
    }

    @Test func `each test of the list exists`() throws {
        let scripts = try Self.scriptsByName()
        #expect(scripts.count > 300, "the sources of the tests are read")
        let suites = Set(scripts.keys.map { $0.prefix { $0 != "/" } })
        for promise in try Self.promises() {
            if promise.test.hasPrefix("Tests/"), let colon = promise.test.range(of: ": ") {
                let text = try Self.text(String(promise.test[..<colon.lowerBound]))
                #expect(text.contains(promise.test[colon.upperBound...]), "no check `\(promise.test)`")
            } else {
                let isSuite = promise.isMore && suites.contains(promise.test[...])
                #expect(scripts[promise.test] != nil || isSuite, "\(promise.number): no test `\(promise.test)`")
            }
        }
    }

    @Test func `each number of the list is a promise of a page, or is worded in the list`() throws {
        let promises = try Self.promises()
        let pages = try Self.numbers("Expectations", "| E-") + Self.numbers("ThreatModel", "- T-")
        let known = Set(pages + promises.filter { !$0.says.isEmpty }.map(\.number))
        #expect(promises.filter { !known.contains($0.number) } == [])
        // A wording belongs to the documents that have no page here.
        #expect(promises.filter { !$0.says.isEmpty && ["E", "T"].contains($0.number.prefix(1)) } == [])
    }

    @Test func `each expectation has a test that is always run`() throws {
        let numbers = try Self.numbers("Expectations", "| E-")
        #expect(numbers == (1...48).map { "E-\($0)" })
        #expect(try Self.shown(Self.promises()).isSuperset(of: numbers))
    }

    @Test func `each promise of the threat model has a test, and none of them is skipped`() throws {
        let promises = try Self.promises().filter { $0.number.hasPrefix("T-") }
        let numbers = try Self.numbers("ThreatModel", "- T-")
        #expect(numbers.count >= 50 && numbers == numbers.indices.map { "T-\($0 + 1)" }, "numbered in order")
        checkAlwaysRun(promises, numbers, try Self.shown(promises))
    }

    @Test func `each behaviour of the reference documents has a test, and none of them is skipped`() throws {
        let promises = try Self.promises().filter { $0.number.hasPrefix("00") }
        let shown = try Self.shown(promises)
        #expect(promises.allSatisfy { !$0.says.isEmpty })
        #expect(Set(promises.map { $0.number.prefix(3) }).count == 5)
        for (document, least) in [("000", 50), ("001", 30), ("002", 45), ("003", 30), ("004", 60)] {
            let count = promises.count { $0.number.hasPrefix(document + "-") }
            #expect(count >= least, "\(document) has \(count) behaviours")
            let named = promises.filter { $0.number.hasPrefix(document) }
            checkAlwaysRun(named, (1...count).map { "\(document)-\($0)" }, shown)
        }
    }

    /// Each number has one test, which cannot be skipped.
    private func checkAlwaysRun(_ promises: [Promise], _ numbers: [String], _ shown: Set<String>) {
        let named = promises.filter { !$0.isMore }.map(\.number)
        #expect(named.sorted() == numbers.sorted(), "each number once")
        #expect(Set(numbers).subtracting(shown).sorted() == [], "these can be skipped")
    }
}
