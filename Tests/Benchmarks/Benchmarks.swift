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
            if CommandLine.arguments.count == 3, CommandLine.arguments[1] == StoreRun.probeOption {
                return try StoreRun.answerProbe(home: CommandLine.arguments[2])
            }
            if CommandLine.arguments.count == 3, CommandLine.arguments[1] == StoreRun.aloneOption {
                var table = Table()
                try StoreRun(directory: CommandLine.arguments[2]).measure(into: &table)
                table.showGoals()
                return table.show()
            }
            let options = try Options(CommandLine.arguments.dropFirst())
            let directory = try temporaryDirectory(in: options.directory)
            defer { try? FileManager.default.removeItem(atPath: directory) }
            if options.only == .curve {
                return try CostCurve(run: Run(mayfly: options.mayfly, directory: "\(directory)/curve")).measure()
            }
            var table = Table()
            let floor = options.only == nil || options.only == .messages ? try Floor() : nil
            for run in 1...options.runs {
                if isatty(2) == 1 { complain("run \(run) of \(options.runs)") }
                try floor?.measure(in: directory, into: &table)
                if options.only == nil || options.only == .mailbox {
                    let mailbox = MailboxRun(mayfly: options.mayfly, directory: "\(directory)/mailbox\(run)")
                    try mailbox.measure(into: &table)
                }
                guard options.only != .mailbox else { continue }
                let nodes = Run(mayfly: options.mayfly, directory: "\(directory)/\(run)")
                if options.only == nil || options.only == .linked {
                    try LinkedRun(mayfly: options.mayfly, directory: "\(nodes.directory)-linked").measure(into: &table)
                }
                guard options.only != .linked else { continue }
                if options.only == .neighbours {
                    try nodes.measureNeighbours(into: &table)
                    continue
                }
                try nodes.measure(into: &table, messagesOnly: options.only == .messages)
                guard options.only == nil else { continue }
                try StoreRun(directory: directory).measure(into: &table)
                try Links().measure(into: &table)
            }
            if options.only == nil {
                try Run(mayfly: options.mayfly, directory: "\(directory)/most").measureMost(into: &table)
            }
            table.showGoals()
            table.show()
        } catch {
            complain("\(error)")
            exit(1)
        }
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
                switch option {
                case "--only":
                    only = rest.popFirst().flatMap(Part.init)
                    guard only != nil else {
                        throw Failure("--only: expected \(Part.allCases.map(\.rawValue).joined(separator: ", "))")
                    }
                case "--mayfly", "--runs", "--directory":
                    guard let value = rest.popFirst() else { throw Failure("\(option) needs a value") }
                    switch option {
                    case "--mayfly": mayfly = value
                    case "--directory": directory = value
                    default:
                        guard let count = Int(value), (1...1_000).contains(count) else {
                            throw Failure("--runs: expected a number from 1 to 1000, found `\(value)`")
                        }
                        runs = count
                    }
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

func complain(_ text: String) {
    let line = Array("\(text)\n".utf8)
    _ = write(2, line, line.count)
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
