import Glibc
import SimulatedDisk
import StoreCampaigns

/// `campaign crash --seconds 60 --seed 1`: runs for the given time and prints figures; exit code 1 for a broken
/// promise.
@main struct Campaign {
    private var options: [String: Int] = [:]
    private let start = Self.now
    private let home: SimulatedDisk

    private var seed: UInt64 { UInt64(options["--seed"] ?? 1) }
    private var isOver: Bool { Self.now - start > Double(options["--seconds"] ?? 60) }
    private var time: String { "\(Int(Self.now - start)) s" }

    private static var now: Double {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }

    static func main() throws {
        var words = CommandLine.arguments.dropFirst()
        let kind = words.popFirst() ?? ""
        var campaign = Campaign(home: try Verification.makeHome())
        while let word = words.popFirst() { campaign.options[word] = words.popFirst().flatMap { Int($0) } }
        switch kind {
        case "crash": try campaign.crash()
        case "forensic": try campaign.forensic()
        case "faults": try campaign.faults()
        case "kill": try campaign.kill()
        case "mailbox": try campaign.mailbox()
        default:
            print("campaign crash|kill|faults|forensic|mailbox [--seconds N] [--seed N]")
            exit(2)
        }
    }

    private init(home: SimulatedDisk) { self.home = home }

    private func finish(_ violations: [String]) -> Never {
        for violation in violations { print("VIOLATION \(violation)") }
        print(violations.isEmpty ? "no promise was broken" : "\(violations.count) promises were broken")
        exit(violations.isEmpty ? 0 : 1)
    }

    /// Ends the program unless a planted mistake is found.
    private func canary(_ mistake: String, _ found: String?) {
        guard let found else { finish(["the campaign does not see \(mistake)"]) }
        print("canary, \(mistake): \(found)")
    }

    /// The first violation in the histories of twenty seeds.
    private func first(_ run: (UInt64) throws -> [String]) rethrows -> String? {
        for number in 0..<20 as Range<UInt64> { if let found = try run(seed &+ number).first { return found } }
        return nil
    }

    /// Every operation, then random ones.
    private func steps(_ history: Int) -> [Operation?] {
        history == 0 ? FaultCampaign.everyOperation : .init(repeating: nil, count: 40)
    }

    private func calls(_ count: Int) -> StrideThrough<Int> {
        stride(from: options["--call"] ?? 1, through: count, by: options["--step"] ?? 1)
    }

    private func forensic() throws {
        let campaign = ForensicCampaign(on: home)
        let blocks = ForensicCampaign(on: home)
        try blocks.run(seed: seed, steps: 60, leavesOldBlocks: true)
        canary("what a rename leaves", blocks.violations.first)
        let journal = try first { seed in
            let campaign = ForensicCampaign(on: home)
            try campaign.run(seed: seed, steps: 60, outlivesErasure: true)
            return campaign.violations
        }
        canary("a journal that outlives its erasure", journal)
        while !isOver, campaign.violations.isEmpty {
            let number = seed &+ UInt64(campaign.histories)
            try campaign.run(seed: number, steps: 40, isThorough: campaign.histories % 500 == 0)
        }
        print(
            "\(campaign.histories) histories, \(campaign.deadTried) dead payloads sought,"
                + " \(campaign.liveRead) live ones read, \(campaign.placesTried) places tried for a key page,"
                + " \(campaign.formerTried) passphrases and key files of before, \(time)")
        finish(campaign.violations)
    }

    /// A mailbox's bodies with the owner's disk.
    private func mailbox() throws {
        for (mistake, leavesOldBlocks) in [("what a rename leaves", true), ("keys of slices that are stored", false)] {
            let found = try first { seed in
                let campaign = MailboxCampaign(on: home)
                try campaign.run(seed: seed, steps: 24, leavesOldBlocks: leavesOldBlocks, keepsKeys: !leavesOldBlocks)
                return campaign.violations
            }
            canary(mistake, found)
        }
        let campaign = MailboxCampaign(on: home)
        let most = options["--histories"] ?? .max
        while !isOver, campaign.histories < most, campaign.violations.isEmpty {
            let number = seed &+ UInt64(campaign.histories)
            try campaign.run(seed: number, steps: 24, isThorough: campaign.histories % 500 == 0)
        }
        print(
            "\(campaign.histories) histories, \(campaign.keyCount) keys tried;"
                + " before: \(campaign.before.opened) of \(campaign.before.tried) open;"
                + " inbox or bucket destroyed: \(campaign.dead.opened) of \(campaign.dead.tried);"
                + " one slice after their time:")
        for kind in MailHistory.Kind.allCases {
            guard let figures = campaign.after[kind] else { continue }
            print("  \(kind): \(figures.opened) of \(figures.tried)")
        }
        print(time)
        finish(campaign.violations)
    }

    private func faults() throws {
        canary("that a failed commit counts as done", try FaultCampaign.canary(on: home))
        var violations: [String] = []
        var (runs, refusals, histories) = (0, 0, 0)
        var struck: [String: Int] = [:]
        repeat {
            let campaign = FaultCampaign(on: home, seed: seed &+ UInt64(histories), steps: steps(histories))
            let count = try campaign.callCount()
            print("history \(histories): \(count) calls")
            for call in calls(count) where !isOver || histories == 0 {
                for code in FaultCampaign.codes {
                    for lasting in FaultCampaign.Lasting.allCases { campaign.run(failing: call, with: code, lasting) }
                }
                if campaign.violations.count > 8 { break }
            }
            violations += campaign.violations
            runs += campaign.runs
            refusals += campaign.refusals
            struck.merge(campaign.struck, uniquingKeysWith: +)
            histories += 1
        } while !isOver && violations.isEmpty
        print("\(histories) histories, \(runs) runs, \(refusals) refusals, \(time)")
        for (call, count) in struck.sorted(by: { $0.key < $1.key }) { print("  \(call): \(count)") }
        finish(violations)
    }

    private func kill() throws {
        canary("that a start trusts the cache", try KillCampaign.canary(on: home))
        var violations: [String] = []
        var (runs, histories) = (0, options["--history"] ?? 0)
        repeat {
            let campaign = KillCampaign(on: home, seed: seed &+ UInt64(histories), steps: steps(histories))
            for call in calls(try campaign.callCount()) where !isOver || histories == 0 {
                for end in KillCampaign.End.allCases { campaign.run(at: call, end) }
            }
            violations += campaign.violations
            runs += campaign.runs
            histories += 1
        } while !isOver && violations.isEmpty
        print("\(histories) histories, \(runs) kills, \(time)")
        finish(violations)
    }

    private func crash() throws {
        canary(
            "that a disk lies about its barriers", try CrashCampaign.canary(on: home) { $0.liesAboutBarriers = true })
        canary(
            "that a commit is acknowledged before the journal's barrier",
            try CrashCampaign.canary(on: home) { $0.skipsBarriersOf = "journal" })
        let campaign = CrashCampaign(limit: options["--limit"] ?? 256, thoroughness: 4, seed: seed)
        var histories = 0
        while !isOver, campaign.violations.count < 8 {
            let disk = home.copy()
            let number = seed &+ UInt64(histories)
            let history = History(on: disk, seed: number)
            try campaign.run(history, on: disk, named: "seed \(number)", .init(repeating: nil, count: 30))
            history.close()
            histories += 1
        }
        print(
            "\(histories) histories, \(campaign.moments) moments, \(campaign.statesChecked) states checked,"
                + " \(campaign.names.count) distinct, \(time)")
        for operation in Operation.allCases { print("  \(operation): \(campaign.byOperation[operation, default: 0])") }
        finish(campaign.violations)
    }
}
