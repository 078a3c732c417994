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
            "wakes pushNotification", "wakes activityRanking", "wakes appLaunch", "rebalances", "event reset",
            "event withdrawn", "event messageState delivered", "closes", "event memberRemoved", "event removed",
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

    /// 29 found the joiner that lost its welcome; 118 and 206 found a defect of the oracle. The workload has changed
    /// since, so these seeds no longer replay those runs; MessagingTests has tests of the defects.
    @Test(arguments: [29, 118, 206] as [UInt64]) func `a seed that once failed breaks no invariant`(seed: UInt64) {
        let report = Simulation.run(Simulation.Options(seed: seed))
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
    private func violations(of bug: PlantedBug, seeds: ClosedRange<UInt64>, hasMailbox: Bool = false) -> [String] {
        for seed in seeds {
            let report = Simulation.run(Simulation.Options(seed: seed, bug: bug, hasMailbox: hasMailbox))
            if !report.violations.isEmpty { return report.violations }
        }
        return []
    }

    @Test func `the simulation detects an acknowledgement before the commit`() {
        let found = violations(of: .acknowledgeBeforeDurable, seeds: 1...10)
        #expect(found.contains { $0.contains("before it was durable") || $0.contains("not durable") })
    }

    @Test func `the simulation detects a message stored without an agreement`() {
        #expect(violations(of: .storeWithoutAgreement, seeds: 1...10).contains { $0.contains("I4") })
    }

    @Test func `the simulation detects a message shown twice`() {
        #expect(violations(of: .showDuplicates, seeds: 1...10).contains { $0.contains("I2") })
    }

    @Test func `the simulation detects a message read after its expiry`() {
        #expect(violations(of: .readAfterExpiry, seeds: 1...10).contains { $0.contains("I3") })
    }

    @Test func `the simulation detects a message kept a minute too long`() {
        #expect(violations(of: .keepTooLong, seeds: 1...10).contains { $0.contains("I3") })
    }

    @Test func `the simulation detects a message destroyed before its expiry`() {
        #expect(violations(of: .reapTooSoon, seeds: 1...20).contains { $0.contains("I1") })
    }

    @Test func `the simulation detects slots mailed before their numbers are durable`() {
        let found = violations(of: .mailBeforeDurable, seeds: 60...200, hasMailbox: true)
        #expect(found.contains { $0.contains("I8") })
    }

    @Test func `the simulation detects trust in a mailbox's claim about a slot's age`() {
        #expect(violations(of: .trustDwell, seeds: 60...300, hasMailbox: true).contains { $0.contains("I3") })
    }

    @Test func `the simulation detects a conversation that returns after its explosion`() {
        #expect(violations(of: .resurrectAfterExplosion, seeds: 1...20).contains { $0.contains("I5") })
    }
}
