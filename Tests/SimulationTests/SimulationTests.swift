import Simulation
import Testing

@Suite struct Campaign {
    @Test func `60 seeds break no invariant, reach every event, and nearly all heal within a minute`() {
        var events = 0
        var counts: [String: Int] = [:]
        for seed in 1...60 as ClosedRange<UInt64> {
            let report = Simulation.run(Simulation.Options(seed: seed, hasMailbox: false))
            events += report.events
            counts.merge(report.counts, uniquingKeysWith: +)
            #expect(report.violations.isEmpty, "seed \(seed): \(report.violations.prefix(3))")
        }
        #expect(events > 30_000)
        // In campaigns 26,404 of 26,522 healed: the timeout of a silently lost link takes up to 45 s.
        #expect(counts["healed within 60 s", default: 0] >= 57)
        for name in [
            "accepted", "crashes", "locks", "partitions", "one-way partitions", "clock steps", "clocks set back",
            "explosions", "event deletionReceipt", "held until unlocked", "sleeps", "wakes userInteraction",
            "wakes pushNotification", "wakes activityRanking", "wakes appLaunch", "rebalances", "event lifetimeReset",
            "event lifetimeWithdrawn", "event messageState delivered", "closes", "event memberRemoved", "event removed",
            "event profileChanged", "event conversationUpdated", "moves",
        ] { #expect(counts[name, default: 0] > 0, "\(name) never happened") }
    }

    @Test func `with few of many conversations awake all messages arrive, mostly within a minute`() {
        var counts: [String: Int] = [:]
        for seed in 1...15 as ClosedRange<UInt64> {
            let options = Simulation.Options(seed: seed, seconds: 60, hasMailbox: false, isCrowded: true)
            let report = Simulation.run(options)
            #expect(report.violations.isEmpty, "seed \(seed): \(report.violations.prefix(3))")
            counts.merge(report.counts, uniquingKeysWith: +)
        }
        #expect(counts["proposed", default: 0] > 7 && counts["wakes activityRanking", default: 0] > 150)
        // All of 40 runs were quiet within 60 s.
        #expect(counts["quiet within 60 s", default: 0] >= 14)
    }

    /// 29 found the joiner that lost its welcome; 118 and 206 found a defect of the oracle. The seeds from 71769 on found
    /// a reset whose sender slept before it read the answer. The causes of 500712 and 604439 are not known. The protocol
    /// has changed since, so these seeds no longer replay those runs.
    @Test(arguments: [
        (29, 120), (118, 120), (206, 120), (71_769, 120), (122_030, 150), (122_697, 150), (501_073, 120),
        (601_709, 120), (760_194, 120), (760_674, 120), (500_712, 120), (604_439, 120),
    ]) func `a seed that once failed breaks no invariant`(seed: Int, seconds: Int64) {
        let report = Simulation.run(Simulation.Options(seed: UInt64(seed), seconds: seconds))
        #expect(report.violations.isEmpty, "\(report.violations.prefix(3))")
    }

    @Test func `equal seeds give equal runs, and different seeds different ones`() {
        let first = Simulation.run(Simulation.Options(seed: 7))
        let again = Simulation.run(Simulation.Options(seed: 7))
        let other = Simulation.run(Simulation.Options(seed: 8))
        #expect(first.traceHash == again.traceHash)
        #expect(first.events == again.events)
        #expect(first.traceHash != other.traceHash)
    }

    @Test func `no member holds a conversation after its explosion, scheduled or immediate`() {
        var missing: Set = [
            "schedules", "burnt fuses", "event explosionScheduled", "event explosionReminder", "reports",
            "asks answered", "late joiners answered", "event deletionReceipt",
        ]
        for seed in 1...60 as ClosedRange<UInt64> where seed <= 40 || !missing.isEmpty {
            let report = Simulation.run(Simulation.Options(seed: seed, isExplosive: true, hasMailbox: false))
            #expect(report.violations.isEmpty, "seed \(seed): \(report.violations.prefix(3))")
            missing.subtract(report.counts.filter { $0.value > 0 }.keys)
        }
        #expect(missing.isEmpty, "\(missing.sorted()) never happened")
    }

    @Test func `runs with a mailbox, honest or not, break no invariant and reach every mailbox event`() {
        var missing: Set = [
            "slots put", "slots taken", "slots lost by the mailbox", "slots offered again", "slots of a doubtful age",
            "answers of a mailbox lost", "orders refused", "mailbox failures", "contents by box",
            "acknowledgements by box", "parted texts", "parted explosions", "explosions by box", "receipts by box",
            "event messageState mailed", "boxes dropped",
        ]
        // Some events are rare, and each change of the core moves them to other seeds.
        for seed in 210...330 as ClosedRange<UInt64> where seed <= 230 || !missing.isEmpty {
            let options = Simulation.Options(seed: seed, isExplosive: seed.isMultiple(of: 4), hasMailbox: true)
            let report = Simulation.run(options)
            #expect(report.violations.isEmpty, "seed \(seed): \(report.violations.prefix(3))")
            missing.subtract(report.counts.filter { $0.value > 0 }.keys)
        }
        #expect(missing.isEmpty, "\(missing.sorted()) never happened")
    }
}

@Suite struct PlantedMistakes {
    /// Each mistake, and a part of the violation that it causes.
    @Test(
        arguments: [
            (.acknowledgeBeforeDurable, "durable", 1...10), (.storeWithoutAgreement, "I4", 1...10),
            (.showDuplicates, "I2", 1...10), (.readAfterExpiry, "I3", 1...10), (.keepTooLong, "I3", 1...10),
            (.reapTooSoon, "I1", 1...20), (.mailBeforeDurable, "I8", 60...200), (.trustDwell, "I3", 60...300),
            (.resurrectAfterExplosion, "I5", 1...20),
        ] as [(PlantedBug, String, ClosedRange<UInt64>)]) func `the simulation detects a planted mistake`(
            _ bug: PlantedBug, _ invariant: String, _ seeds: ClosedRange<UInt64>
        )
    {
        let hasMailbox = bug == .mailBeforeDurable || bug == .trustDwell
        let found = seeds.lazy.map { seed in
            Simulation.run(Simulation.Options(seed: seed, bug: bug, hasMailbox: hasMailbox)).violations
        }.first { !$0.isEmpty }
        #expect(found?.contains { $0.contains(invariant) } == true)
    }
}
