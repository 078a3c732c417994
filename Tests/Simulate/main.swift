import Simulation

/// `simulate --seeds N --seconds S [--seed K] [--bug NAME] [--explosive] [--verbose]`
var seeds: UInt64 = 100
var seconds: Int64 = 120
var first: UInt64 = 1
var bug: PlantedBug?
var verbose = false
var isExplosive = false
var arguments = CommandLine.arguments.dropFirst().makeIterator()
while let argument = arguments.next() {
    switch argument {
    case "--seeds": seeds = arguments.next().flatMap { UInt64($0) } ?? seeds
    case "--seconds": seconds = arguments.next().flatMap { Int64($0) } ?? seconds
    case "--seed":
        first = arguments.next().flatMap { UInt64($0) } ?? first
        seeds = 1
    case "--first": first = arguments.next().flatMap { UInt64($0) } ?? first
    case "--bug": bug = arguments.next().flatMap { PlantedBug(rawValue: $0) }
    case "--explosive": isExplosive = true
    case "--verbose": verbose = true
    default:
        fatalError(
            "usage: simulate --seeds N --seconds S [--seed K] [--first K] [--bug NAME] [--explosive] [--verbose]"
        )
    }
}

let clock = ContinuousClock()
let start = clock.now
var events = 0
var failures: [UInt64] = []
var counts: [String: Int] = [:]
for seed in first..<first + seeds {
    let simulation = Simulation(Simulation.Options(seed: seed, seconds: seconds, bug: bug, isExplosive: isExplosive))
    simulation.verbose = verbose
    let report = simulation.run()
    events += report.events
    for (name, count) in report.counts { counts[name, default: 0] += count }
    if !report.violations.isEmpty { failures.append(seed) }
    if seeds == 1 || !report.violations.isEmpty {
        print("seed \(seed): \(report.nodeCount) nodes, \(report.events) events, trace \(report.traceHash)")
        for violation in report.violations.prefix(5) { print("  \(violation)") }
    }
}
let elapsed = clock.now - start
let spent = Double(elapsed.components.seconds) + Double(elapsed.components.attoseconds) / 1e18
print(
    "\(seeds) seeds, \(events) events, \(spent) s, \(Int(Double(events) / spent)) events/s, \(failures.count) with violations"
)
for name in counts.keys.sorted() { print("  \(name): \(counts[name]!)") }
if !failures.isEmpty { print("failing seeds: \(failures.prefix(50))") }
