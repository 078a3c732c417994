import Adversary
import FoundationEssentials
import Glibc

/// `make bench`: the node's speed, beside the machine's own in the same run.
///
///     benchmarks --mayfly PATH [--runs 3] [--directory DIR] [--only messages|mailbox|neighbours|linked|curve]
///     benchmarks --store DIR      the store alone, once
@main enum Benchmarks {
    static func main() {
        do {
            let arguments = CommandLine.arguments.dropFirst()
            if arguments.count == 2, arguments.first == StoreRun.probeOption {
                return try StoreRun.answerProbe(home: arguments[2])
            }
            let table = Table()
            if arguments.count == 2, arguments.first == StoreRun.aloneOption {
                try StoreRun(directory: arguments[2], table: table).measure()
            } else {
                let options = try Options(arguments)
                let directory = try temporaryDirectory(in: options.directory)
                defer { try? FileManager.default.removeItem(atPath: directory) }
                let site = Site(mayfly: options.mayfly, directory: directory, table: table)
                if options.only == .curve { return try site.within("curve") { try CostCurve(site: $0).measure() } }
                try measure(options, site)
            }
            table.showGoals()
            table.show()
        } catch {
            complain("\(error)")
            exit(1)
        }
    }

    private static func measure(_ options: Options, _ site: Site) throws {
        let isWhole = options.only == nil
        func makes(_ part: Part) -> Bool { isWhole || options.only == part }
        let floor = makes(.messages) ? try Floor() : nil
        for run in 1...options.runs {
            if isatty(2) == 1 { complain("run \(run) of \(options.runs)") }
            try floor?.measure(in: site.directory, into: site.table)
            if makes(.mailbox) { try site.within("mailbox") { try MailboxRun(site: $0).measure() } }
            if makes(.linked) { try site.within("linked") { try LinkedRun(site: $0).measure() } }
            if makes(.messages) { try site.within("messages") { try Run(site: $0).measure(waits: isWhole) } }
            if isWhole { try site.within("inboxes") { try InboxesRun(site: $0).measure() } }
            if makes(.neighbours) { try site.within("neighbours") { try InboxesRun(site: $0).measureNeighbours() } }
            guard isWhole else { continue }
            try StoreRun(directory: site.directory, table: site.table).measure()
            try Links().measure(into: site.table)
        }
        if isWhole { try site.within("most") { try Run(site: $0).measureMost() } }
    }

    enum Part: String, CaseIterable {
        case messages
        case mailbox
        /// Messages and `status` beside 10,000 unused conversations.
        case neighbours
        /// 1,000 and 2,000 linked conversations: idle, and at a start.
        case linked
        case curve
    }

    struct Options {
        var mayfly = ".build/release/mayfly"
        var runs = 3
        var only: Part?
        /// A directory on the measured file system.
        var directory = getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp"

        init(_ arguments: ArraySlice<String>) throws(Failure) {
            var rest = arguments
            while let option = rest.popFirst() {
                guard let value = rest.popFirst() else { throw Failure("\(option) needs a value") }
                switch option {
                case "--only":
                    only = Part(rawValue: value)
                    guard only != nil else {
                        throw Failure("--only: expected \(Part.allCases.map(\.rawValue).joined(separator: ", "))")
                    }
                case "--mayfly": mayfly = value
                case "--directory": directory = value
                case "--runs":
                    guard let count = Int(value), (1...1_000).contains(count) else {
                        throw Failure("--runs: expected a number from 1 to 1000, found `\(value)`")
                    }
                    runs = count
                default: throw Failure("unknown option \(option)")
                }
            }
            guard access(mayfly, X_OK) == 0 else {
                throw Failure("there is no program \(mayfly): `make build` makes it")
            }
        }
    }

    private static func temporaryDirectory(in parent: String) throws(Failure) -> String {
        var template = Array("\(parent)/mayfly-bench-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw .system("mkdtemp in \(parent)") }
        return String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}

/// Where nodes live during a measurement, and where its figures go.
struct Site {
    let mayfly: String
    let directory: String
    let table: Table

    /// Measures in a directory of its own.
    func within(_ name: String, _ body: (Site) throws -> Void) throws {
        let inner = Site(mayfly: mayfly, directory: "\(directory)/\(name)", table: table)
        try FileManager.default.createDirectory(atPath: inner.directory, withIntermediateDirectories: false)
        defer { try? FileManager.default.removeItem(atPath: inner.directory) }
        try body(inner)
    }

    func node(_ name: String, isNew: Bool = true, first: [String] = [], _ arguments: [String] = []) throws
        -> NodeProcess
    { try NodeProcess(mayfly: mayfly, home: "\(directory)/\(name)", isNew: isNew, first: first, arguments: arguments) }
}

func complain(_ text: String) {
    let line = Array("\(text)\n".utf8)
    _ = write(2, line, line.count)
}

/// A program beside this one.
func sibling(_ name: String) -> String {
    let own = CommandLine.arguments[0].split(separator: "/", omittingEmptySubsequences: false).dropLast()
    return (own + [name[...]]).joined(separator: "/")
}

func microseconds(_ body: () throws -> Void) rethrows -> Double {
    let start = ContinuousClock.now
    try body()
    return (ContinuousClock.now - start) / .microseconds(1)
}

extension [Double] {
    var median: Double {
        let ordered = sorted()
        return (ordered[(count - 1) / 2] + ordered[count / 2]) / 2
    }
}
