import Foundation
import NodeSimulation
import Simulation

struct Campaign {
    enum Part: String { case core, node }

    static let usage = """
        usage: simulate [--part core|node] [--seeds N] [--seconds S] [--first K | --seed K] [--stride N]
                        [--bug NAME] [--explosive] [--machines N] [--relayed]
                        [--mailbox] [--hostile-mailbox] [--limit SECONDS] [--verbose]
        """

    var part = Part.core
    var seeds: UInt64 = 100
    /// Simulated seconds per run; by default the part's own.
    var seconds: Int64?
    var first: UInt64 = 1
    /// Step between seeds, so that several processes share a campaign.
    var stride: UInt64 = 1
    var bug: String?
    var isVerbose = false
    var isExplosive = false
    var machines: Int?
    var isRelayed = false
    var hasMailbox = false
    var isMailboxHostile = false
    /// No new seed begins after this many seconds.
    var limit: Double = .infinity

    init(_ arguments: some Sequence<String>) {
        var arguments = arguments.makeIterator()
        func value<Value: LosslessStringConvertible>(_ type: Value.Type) -> Value {
            guard let text = arguments.next(), let value = Value(text) else { Self.fail() }
            return value
        }
        while let argument = arguments.next() {
            switch argument {
            case "--part":
                guard let part = Part(rawValue: value(String.self)) else { Self.fail() }
                self.part = part
            case "--seeds": seeds = value(UInt64.self)
            case "--seconds": seconds = value(Int64.self)
            case "--seed":
                first = value(UInt64.self)
                seeds = 1
            case "--first": first = value(UInt64.self)
            case "--stride": stride = max(1, value(UInt64.self))
            case "--bug": bug = value(String.self)
            case "--machines": machines = value(Int.self)
            case "--limit": limit = value(Double.self)
            case "--explosive": isExplosive = true
            case "--relayed": isRelayed = true
            case "--mailbox": hasMailbox = true
            case "--hostile-mailbox": (hasMailbox, isMailboxHostile) = (true, true)
            case "--verbose": isVerbose = true
            default: Self.fail()
            }
        }
    }

    static func fail() -> Never {
        FileHandle.standardError.write(Data((usage + "\n").utf8))
        exit(2)
    }

    func run(_ seed: UInt64) -> Report {
        let log: ((String) -> Void)? = isVerbose ? { print($0) } : nil
        switch part {
        case .core:
            let options = Simulation.Options(
                seed: seed, seconds: seconds ?? 120, bug: planted(), isExplosive: isExplosive,
                hasMailbox: hasMailbox ? true : nil)
            return Simulation.run(options, log: log)
        case .node:
            let options = NodeSimulation.Options(
                seed: seed, seconds: seconds ?? 60, mistake: planted(), machines: machines,
                hasRendezvous: isRelayed ? true : nil, hasMailbox: hasMailbox ? true : nil,
                isMailboxHostile: isMailboxHostile ? true : nil)
            return NodeSimulation.run(options, log: log)
        }
    }

    private func planted<Bug: RawRepresentable<String>>() -> Bug? {
        bug.map { name in
            guard let bug = Bug(rawValue: name) else { Self.fail() }
            return bug
        }
    }

    func replay(_ seed: UInt64) -> String {
        var words = ["simulate", "--part", part.rawValue, "--seed", "\(seed)"]
        if let seconds { words += ["--seconds", "\(seconds)"] }
        if let bug { words += ["--bug", bug] }
        if let machines { words += ["--machines", "\(machines)"] }
        if isExplosive { words.append("--explosive") }
        if isRelayed { words.append("--relayed") }
        if hasMailbox { words.append(isMailboxHostile ? "--hostile-mailbox" : "--mailbox") }
        return words.joined(separator: " ") + " --verbose"
    }

    /// A harness that misses a planted mistake would miss everything else.
    private var seesPlantedMistake: Bool {
        let seeds: ClosedRange<UInt64> = 1...20
        switch part {
        case .core:
            return seeds.contains { seed in
                let options = Simulation.Options(seed: seed, bug: .storeWithoutAgreement)
                return Simulation.run(options).violations.contains { $0.contains("I4") }
            }
        case .node:
            return seeds.contains { seed in
                let options = NodeSimulation.Options(seed: seed, seconds: 20, mistake: .shownTwice, machines: 3)
                return NodeSimulation.run(options).violations.contains { $0.contains("I2") }
            }
        }
    }

    func run() -> Bool {
        if bug == nil {
            guard seesPlantedMistake else {
                print("\(part): a planted mistake was not seen: the harness is blind")
                return false
            }
            print("\(part): a planted mistake was seen")
        }
        let clock = ContinuousClock()
        let start = clock.now
        func spent() -> Double { (clock.now - start) / .seconds(1) }
        var events = 0
        var done = 0
        var failures: [UInt64] = []
        var counts: [String: Int] = [:]
        for index in 0..<seeds where spent() < limit {
            let seed = first + index * stride
            let outcome = run(seed)
            done += 1
            events += outcome.events
            counts.merge(outcome.counts, uniquingKeysWith: +)
            if !outcome.violations.isEmpty { failures.append(seed) }
            if seeds == 1 || !outcome.violations.isEmpty {
                print("seed \(seed): \(outcome.nodeCount) nodes, \(outcome.events) events, trace \(outcome.traceHash)")
                for violation in outcome.violations.prefix(5) { print("  \(violation)") }
                if !outcome.violations.isEmpty { print("  again: \(replay(seed))") }
                fflush(nil)
            }
        }
        let time = spent()
        let rate = Int(Double(events) / max(time, 0.001))
        for name in counts.keys.sorted() { print("  \(name): \(counts[name] ?? 0)") }
        print(
            "\(part): \(done) seeds, \(events) events, \(Int(time)) s, \(rate) events/s, "
                + "\(failures.count) with violations")
        if !failures.isEmpty { print("failing seeds: \(failures.prefix(50))") }
        return failures.isEmpty
    }
}

exit(Campaign(CommandLine.arguments.dropFirst()).run() ? 0 : 1)
