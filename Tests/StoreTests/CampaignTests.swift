import Glibc
import SimulatedDisk
import Store
import StoreCampaigns
import Testing

@Suite struct CampaignTests {
    @Test func `a power cut at any call of any operation breaks no promise`() throws {
        let disk = try Verification.makeHome()
        let campaign = CrashCampaign(limit: 3, thoroughness: 4, seed: 1)
        let history = History(on: disk, seed: 1)
        try campaign.run(history, on: disk, named: "every operation", FaultCampaign.everyOperation)
        history.close()
        #expect(campaign.violations == [])
        #expect(campaign.names.count > 300)
        // Messages and states reach the disk with the commit.
        for operation in [
            Operation.commit, .destroyInbox, .lightFuse, .shortWait, .lock, .addTombstone, .changePassphrase,
        ] { #expect(campaign.byOperation[operation, default: 0] > 0, "\(operation)") }
    }

    @Test func `a power cut during an erasure with undurable versions brings back no version`() throws {
        for seed in 1...2 as ClosedRange<UInt64> {
            let disk = try Verification.makeHome()
            let campaign = CrashCampaign(limit: 200, thoroughness: 64, seed: seed)
            let history = History(on: disk, seed: seed)
            let updates: [Operation] = [.update, .update, .commit, .update]
            try campaign.run(history, on: disk, named: "seed \(seed)", [.createInbox, .put] + updates + [.erase])
            history.close()
            #expect(campaign.violations == [])
        }
    }

    @Test func `a power cut after a twice refused erasure brings back no version of the message`() throws {
        var refusedCount = 0
        for (seed, call) in (1...3).flatMap({ seed in (0..<40).map { (UInt64(seed), $0) } }) {
            let disk = try Verification.makeHome()
            let history = History(on: disk, seed: seed)
            history.isHarmed = true
            try history.open()
            for operation in [Operation.createInbox, .put, .commit, .longWait, .update, .commit, .longWait] {
                try history.step(operation)
            }
            let first = disk.operations + call
            disk.with { $0.fault = .init(at: first, code: EIO, isLasting: true, isForOneCall: true) }
            for operation in [Operation.erase, .shortWait, .shortWait] { try history.step(operation) }
            if disk.with({ $0.struckCall }) == "fsync" {
                refusedCount += history.refusals > 0 ? 1 : 0
                let outcomes = Outcomes(of: disk)
                for choice in outcomes.choices(limit: 64, seed: seed) {
                    try Verification(history.promise, outcomes.disk(choice), wasHarmed: true).run(isThorough: false)
                }
            }
            disk.with { $0.fault = nil }
            history.close()
        }
        #expect(refusedCount > 0)
    }

    @Test func `a power cut at any call of a home's creation leaves a home, or none`() throws {
        var states = 0
        let disk = SimulatedDisk()
        nonisolated(unsafe) var violations: [String] = []
        disk.observe { snapshot in
            let outcomes = Outcomes(of: snapshot)
            for choice in outcomes.choices(limit: 6, seed: 7) {
                states += 1
                let copy = outcomes.disk(choice)
                do {
                    do { try Verification.makeHome(on: copy) } catch StoreError.alreadyInitialised {}
                    try Verification(Promise(), copy).run(isThorough: states % 8 == 0)
                } catch { violations.append("\(choice): \(error)") }
            }
        }
        try Verification.makeHome(on: disk)
        #expect(violations == [])
        #expect(states > 30)
    }

    @Test func `a failed call causes no false acknowledgement and no false destruction, and later calls work`() throws {
        let campaign = FaultCampaign(on: try Verification.makeHome(), seed: 1, steps: FaultCampaign.everyOperation)
        let count = try campaign.callCount()
        #expect(count > 400)
        // Every third call with one errno and one kind of fault; `make crash` tries all combinations.
        for (index, call) in stride(from: 1, through: count, by: 3).enumerated() {
            let lasting = FaultCampaign.Lasting.allCases[index % 3]
            campaign.run(failing: call, with: FaultCampaign.codes[index % FaultCampaign.codes.count], lasting)
        }
        #expect(campaign.violations == [])
        #expect(campaign.refusals > 20)
    }

    @Test func `data shown after a kill at any call or a refused barrier survives a power cut`() throws {
        let campaign = KillCampaign(on: try Verification.makeHome(), seed: 1, steps: FaultCampaign.everyOperation)
        let count = try campaign.callCount()
        for (index, call) in stride(from: 1, through: count, by: 3).enumerated() {
            campaign.run(at: call, KillCampaign.End.allCases[index % KillCampaign.End.allCases.count])
        }
        #expect(campaign.violations == [])
        #expect(campaign.runs > 150)
    }

    @Test func `canary: the campaign catches a start that serves cached data lost in a power cut`() throws {
        #expect(try KillCampaign.canary(on: try Verification.makeHome()) != nil)
    }

    @Test func `a thief with the disk, the key and every record ever written reads only live records`() throws {
        let campaign = ForensicCampaign(on: try Verification.makeHome())
        // These histories have every operation, a fired fuse, and messages and notes that expire.
        for seed in [1, 6, 17] as [UInt64] { try campaign.run(seed: seed, steps: 40, isThorough: seed == 1) }
        #expect(campaign.violations == [])
        #expect(campaign.deadTried > 20 && campaign.liveRead > 3 && campaign.formerTried > 3)
        #expect(campaign.expiredCount > 0 && campaign.lockedWaits > 0)
    }

    @Test func `canary: the thief reads dead records on a disk that keeps overwritten blocks`() throws {
        let campaign = ForensicCampaign(on: try Verification.makeHome())
        try campaign.run(seed: 1, steps: 60, leavesOldBlocks: true)
        #expect(!campaign.violations.isEmpty)
    }

    @Test func `canary: the thief reads a journal that outlives its erasure`() throws {
        let campaign = ForensicCampaign(on: try Verification.makeHome())
        for seed in 1...20 as ClosedRange<UInt64> where campaign.violations.isEmpty {
            try campaign.run(seed: seed, steps: 60, outlivesErasure: true)
        }
        #expect(campaign.violations.contains { $0.contains("readable on the disk, and dead") })
    }

    @Test(
        arguments: [
            { $0.liesAboutBarriers = true },
            // A commit is acknowledged before the journal's barrier.
            { $0.skipsBarriersOf = "journal" },
        ] as [@Sendable (inout SimulatedDisk.State) -> Void])
    func `canary: the campaign catches a disk that reports a barrier too early`(
        mistake: @Sendable (inout SimulatedDisk.State) -> Void
    ) throws { #expect(try CrashCampaign.canary(on: try Verification.makeHome(), mistake) != nil) }
}
