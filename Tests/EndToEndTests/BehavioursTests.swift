import Foundation
import Testing

/// Checks that the tests named by the pages exist.
@Suite("Behaviours") struct BehavioursTests {
    private static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    struct Row {
        let number: String
        let behaviour: String
        /// `Suite/test`; empty when the row names none.
        let script: String
    }

    /// A row of the page may have several numbers, with as many behaviours between its dots.
    static func rows(_ page: String, numbered prefix: String = "00") -> [Row] {
        page.split(separator: "\n").flatMap { line -> [Row] in
            guard line.hasPrefix("| \(prefix)") else { return [] }
            let cells = line.dropFirst().split(separator: "|", omittingEmptySubsequences: false).map {
                $0.trimmingCharacters(in: .whitespaces)
            }
            let numbers = cells[0].components(separatedBy: ", ")
            guard cells.count >= 3 else { return numbers.map { Row(number: $0, behaviour: "", script: "") } }
            let said = numbers.count == 1 ? [cells[1]] : cells[1].components(separatedBy: " · ")
            let script = cells[2].drop { $0 == "`" }
            let end = script.lastIndex { $0 != "`" }.map { script.index(after: $0) } ?? script.startIndex
            return numbers.enumerated().map { index, number in
                Row(
                    number: number, behaviour: said.count == numbers.count ? said[index] : "",
                    script: String(script[..<end]))
            }
        }
    }

    struct Script: Hashable {
        let name: String
        /// The test may be skipped or is expected to fail, so it proves nothing.
        let isConditional: Bool
    }

    /// A suite, or an extension of one.
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

    private static func page(_ name: String) throws -> String {
        try String(contentsOf: root.appending(path: "Sources/Messaging/Messaging.docc/\(name).md"), encoding: .utf8)
    }

    /// The name as a page writes it. DocC reads a code span with backquotes inside as a symbol link, so pages omit
    /// them.
    private static func plain(_ name: String) -> String { name.filter { $0 != "`" } }

    /// Each row names a script that is always run.
    private func check(_ rows: [Row]) throws {
        let scripts = Dictionary(try Self.allScripts().map { (Self.plain($0.name), $0) }) { first, second in
            first.isConditional ? first : second
        }
        #expect(scripts.count > 300, "the sources of the tests are read")
        var missing: [String: [String]] = [:]
        for row in rows {
            let script = Self.plain(row.script)
            if scripts[script] == nil { missing[script, default: []].append(row.number) }
            #expect(scripts[script]?.isConditional != true, "\(row.number): `\(script)` can be skipped")
            #expect(!row.behaviour.isEmpty, "\(row.number) says nothing")
        }
        for name in missing.keys.sorted() {
            Issue.record("no such script: `\(name)`, of \(missing[name]?.joined(separator: ", ") ?? "")")
        }
    }

    /// Tests of the rows of `Expectations.md`, and checks of scripts, each with the script's path.
    static func expectations(_ page: String) -> [(number: String, tests: [(path: String, name: String)])] {
        page.split(separator: "\n").filter { $0.hasPrefix("| E-") }.map { line in
            let cells = line.components(separatedBy: " | ")
            let tests = matches(#"`(?:(Tests/[\w./-]+): )?([^`]+)`"#, cells.last ?? "").map {
                ($0.groups[0], $0.groups[1])
            }
            return (String(cells[0].dropFirst(2)), tests)
        }
    }

    @Test("each expectation names tests that exist") func expectations() throws {
        let rows = Self.expectations(try Self.page("Expectations"))
        #expect(rows.map(\.number) == (1...48).map { "E-\($0)" })
        let scripts = Dictionary(try Self.allScripts().map { (Self.plain($0.name), $0) }) { first, _ in first }
        for row in rows {
            var isAlwaysRun = false
            for (path, name) in row.tests {
                if path.isEmpty {
                    #expect(scripts[name] != nil, "\(row.number): no test `\(name)`")
                    if scripts[name]?.isConditional == false { isAlwaysRun = true }
                } else {
                    let text = try String(contentsOf: Self.root.appending(path: path), encoding: .utf8)
                    #expect(text.contains(name), "\(row.number): `\(name)` is not in \(path)")
                }
            }
            #expect(isAlwaysRun, "\(row.number): no test of it is always run")
        }
    }

    @Test("every promise of the threat model names a script that exists") func threats() throws {
        let rows = Self.rows(try Self.page("ThreatModel"), numbered: "T-")
        try check(rows)
        #expect(rows.count >= 50 && rows.map(\.number) == rows.indices.map { "T-\($0 + 1)" }, "numbered in order")
    }

    @Test("every row names a script that exists and is not skipped") func table() throws {
        let rows = Self.rows(try Self.page("Expectations"))
        try check(rows)
        for (document, least) in [("000", 50), ("001", 30), ("002", 45), ("003", 30), ("004", 60)] {
            let numbers = rows.map(\.number).filter { $0.hasPrefix(document + "-") }
            #expect(numbers.count >= least, "\(document) has \(numbers.count) rows")
            let expected = numbers.indices.map { "\(document)-\($0 + 1)" }
            #expect(numbers.sorted() == expected.sorted(), "\(document) has each number once")
        }
        #expect(Set(rows.map { $0.number.prefix(3) }).count == 5)
    }

    @Test("the parser finds names of every form and conditions, and skips text that is not a test") func reading() {
        let source = #"""
            @Suite("A suite, (so) named") struct First {
                @Test("one") func a() {}
                // @Test("commented out") func no() {}
                @Test(
                    "two: a \"quoted\" word, and (brackets)",
                    .enabled(if: Program.canMount, "needs (root)")
                )
                func b() throws {}
                @Test(arguments: [1, 2]) func `three is raw`(value: Int) {}
                @Test("four", arguments: [("x", [1]), ("y)", [2])])
                func d(_ text: String, _ list: [Int]) {}
                @Test func five() { withKnownIssue { } }
                @Test func ten() throws {
                    guard geteuid() != 0 else { return }
                }
                @Test func eleven() throws {
                    if !Program.canMakeExt4, isSlow { return }
                }
                @Test func twelve() throws {
                    guard geteuid() == 0 else { throw Failure() }
                    guard list.isEmpty else { return }
                }
            }
            @Suite(.timeLimit(.minutes(1))) struct Second {
                @Test func `six`() {}
                @Test(.disabled("later")) func seven() {}
            }
            @Suite(.disabled()) private struct Third { @Test("eight") func h() {} }
            """#
        let found = Self.scripts(in: [source, #"extension First { @Test("nine") func n() {} }"#])
        #expect(
            found == [
                Script(name: "A suite, (so) named/one", isConditional: false),
                Script(name: "A suite, (so) named/two: a \"quoted\" word, and (brackets)", isConditional: true),
                Script(name: "A suite, (so) named/three is raw", isConditional: false),
                Script(name: "A suite, (so) named/four", isConditional: false),
                Script(name: "A suite, (so) named/five", isConditional: true),
                Script(name: "A suite, (so) named/ten", isConditional: true),
                Script(name: "A suite, (so) named/eleven", isConditional: true),
                Script(name: "A suite, (so) named/twelve", isConditional: false),
                Script(name: "Second/six", isConditional: false), Script(name: "Second/seven", isConditional: true),
                Script(name: "Third/eight", isConditional: true),
                Script(name: "A suite, (so) named/nine", isConditional: false),
            ])
        let rows = Self.rows(
            "| # | x | y |\n|---|---|---|\n| 001-1 | it | `A/b` |\n| 001-2 | ``A/c `d` `` |\n| 001-3 | it | ``A/c `d` e`` |"
        )
        #expect(rows.map(\.script) == ["A/b", "", "A/c `d` e"])
        let shared = Self.rows("| 001-4, 001-5 | it · is | `A/f` |")
        #expect(shared.map { $0.number + $0.behaviour + $0.script } == ["001-4itA/f", "001-5isA/f"])
    }
}
