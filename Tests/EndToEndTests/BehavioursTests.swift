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
        let found = matches(#"^\(\s*"((?:[^"\\]|\\.)*)""#, arguments).first?.groups[0]
        return found?.replacing(/\\(.)/) { String($0.1) }
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

    @Test func `each promise has a test that is never skipped, and only an expectation has several`() throws {
        let promises = try Self.promises()
        let pages = try Self.numbers("Expectations", "| E-") + Self.numbers("ThreatModel", "- T-")
        let scripts = try Self.scriptsByName()
        for (family, least) in [("E", 48), ("T", 50), ("000", 50), ("001", 30), ("002", 45), ("003", 30), ("004", 60)] {
            let listed = promises.filter { $0.number.hasPrefix(family + "-") && !$0.isMore }
            let count = ["E", "T"].contains(family) ? pages.count { $0.hasPrefix(family) } : listed.count
            #expect(count >= least, "\(family) has \(count) promises")
            let numbers = (1...count).map { "\(family)-\($0)" }
            #expect(pages.filter { $0.hasPrefix(family) } == (["E", "T"].contains(family) ? numbers : []), "in order")
            if family != "E" { #expect(listed.map(\.number).sorted() == numbers.sorted(), "each number once") }
            // The path of a script stands for its checks.
            let shown = listed.filter { scripts[$0.test]?.isConditional == false }.map(\.number)
            #expect(Set(numbers).subtracting(shown).sorted() == [], "these can be skipped")
        }
    }
}
