import Glibc
import SimulatedDisk
import StoreCampaigns

/// `campaign crash --seconds 60 --seed 1`: runs for the given time and prints figures; exit code 1 for a broken
/// promise.
@main struct Campaign {
    private var options: [String: Int] = [:]
    private let start = Self.now

    private var seconds: Int { options["--seconds"] ?? 60 }
    private var seed: UInt64 { UInt64(options["--seed"] ?? 1) }
    private var isOver: Bool { Self.now - start > Double(seconds) }

    private static var now: Double {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }

    static func main() throws {
        var words = CommandLine.arguments.dropFirst()
        let kind = words.popFirst() ?? ""
        var campaign = Campaign()
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

    private func finish(_ violations: [String]) -> Never {
        for violation in violations { print("VIOLATION \(violation)") }
        print(violations.isEmpty ? "no promise was broken" : "\(violations.count) promises were broken")
        exit(violations.isEmpty ? 0 : 1)
    }

    private func forensic() throws {
        let home = try Verification.makeHome()
        let canary = ForensicCampaign(on: home)
        try canary.run(seed: seed, steps: 60, leavesOldBlocks: true)
        guard !canary.violations.isEmpty else { finish(["the thief does not see what a rename leaves"]) }
        print("canary: \(canary.violations[0])")
        let journal = ForensicCampaign(on: home)
        for number in 0..<20 as Range<UInt64> where journal.violations.isEmpty {
            try journal.run(seed: seed &+ number, steps: 60, outlivesErasure: true)
        }
        guard !journal.violations.isEmpty else {
            finish(["the thief does not see a journal that outlives its erasure"])
        }
        print("canary: \(journal.violations[0])")
        let campaign = ForensicCampaign(on: home)
        while !isOver, campaign.violations.isEmpty {
            let number = seed &+ UInt64(campaign.histories)
            try campaign.run(seed: number, steps: 40, isThorough: campaign.histories % 500 == 0)
        }
        print(
            "\(campaign.histories) histories, \(campaign.deadTried) dead payloads sought,"
                + " \(campaign.liveRead) live ones read, \(campaign.placesTried) places tried for a key page,"
                + " \(campaign.formerTried) passphrases and key files of before, \(Int(Self.now - start)) s")
        finish(campaign.violations)
    }

    /// A mailbox's bodies with the owner's disk, and the mailbox's own disk.
    private func mailbox() throws {
        let home = try Verification.makeHome()
        let canaries: [(String, (MailboxCampaign, UInt64) throws -> Void)] = [
            ("what a rename leaves", { try $0.run(seed: $1, steps: 24, leavesOldBlocks: true) }),
            ("keys of slices that are stored", { try $0.run(seed: $1, steps: 24, keepsKeys: true) }),
        ]
        for (name, run) in canaries {
            let canary = MailboxCampaign(on: home)
            for number in 0..<20 as Range<UInt64> where canary.violations.isEmpty { try run(canary, seed &+ number) }
            guard !canary.violations.isEmpty else { finish(["the thief does not see \(name)"]) }
            print("canary, \(name): \(canary.violations[0])")
        }
        let boxCanary = BoxCampaign(on: home)
        for number in 0..<20 as Range<UInt64> where boxCanary.violations.isEmpty {
            try boxCanary.run(seed: seed &+ number, steps: 24, outlivesErasure: true)
        }
        guard !boxCanary.violations.isEmpty else { finish(["the thief does not see what the journal keeps"]) }
        print("canary, the mailbox's journal: \(boxCanary.violations[0])")
        let (owner, boxes) = (MailboxCampaign(on: home), BoxCampaign(on: home))
        let most = options["--histories"] ?? .max
        while !isOver, owner.histories < most, owner.violations.isEmpty, boxes.violations.isEmpty {
            let number = seed &+ UInt64(owner.histories)
            try owner.run(seed: number, steps: 24, isThorough: owner.histories % 500 == 0)
            if owner.histories.isMultiple(of: 4) { try boxes.run(seed: number, steps: 24) }
        }
        print(
            "owner: \(owner.histories) histories, \(owner.keyCount) keys tried;"
                + " before: \(owner.before.opened) of \(owner.before.tried) open;"
                + " inbox or bucket destroyed: \(owner.dead.opened) of \(owner.dead.tried);"
                + " one slice after their time:")
        for kind in MailHistory.Kind.allCases {
            guard let figures = owner.after[kind] else { continue }
            print("  \(kind): \(figures.opened) of \(figures.tried)")
        }
        print(
            "mailbox: \(boxes.histories) histories, \(boxes.goneTried) bodies that are gone sought on the disk,"
                + " \(boxes.withoutKeysTried) without a key in all that was written, \(boxes.liveRead) read,"
                + " \(Int(Self.now - start)) s")
        finish(owner.violations + boxes.violations)
    }

    private func faults() throws {
        let home = try Verification.makeHome()
        guard let canary = try FaultCampaign.canary(on: home) else {
            finish(["the campaign does not see that a failed commit counts as done"])
        }
        print("canary: \(canary)")
        var violations: [String] = []
        var (runs, refusals, histories) = (0, 0, 0)
        var struck: [String: Int] = [:]
        repeat {
            let steps: [Operation?] = histories == 0 ? FaultCampaign.everyOperation : .init(repeating: nil, count: 40)
            let campaign = FaultCampaign(on: home, seed: seed &+ UInt64(histories), steps: steps)
            let count = try campaign.callCount()
            print("history \(histories): \(count) calls")
            for call in stride(from: options["--call"] ?? 1, through: count, by: options["--step"] ?? 1)
            where !isOver || histories == 0 {
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
        print("\(histories) histories, \(runs) runs, \(refusals) refusals, \(Int(Self.now - start)) s")
        for (call, count) in struck.sorted(by: { $0.key < $1.key }) { print("  \(call): \(count)") }
        finish(violations)
    }

    private func kill() throws {
        let home = try Verification.makeHome()
        guard let canary = try KillCampaign.canary(on: home) else {
            finish(["the campaign does not see that a start trusts the cache"])
        }
        print("canary: \(canary)")
        var violations: [String] = []
        var (runs, histories) = (0, options["--history"] ?? 0)
        repeat {
            let steps: [Operation?] = histories == 0 ? FaultCampaign.everyOperation : .init(repeating: nil, count: 40)
            let campaign = KillCampaign(on: home, seed: seed &+ UInt64(histories), steps: steps)
            let count = try campaign.callCount()
            for call in stride(from: options["--call"] ?? 1, through: count, by: options["--step"] ?? 1)
            where !isOver || histories == 0 { for end in KillCampaign.End.allCases { campaign.run(at: call, end) } }
            violations += campaign.violations
            runs += campaign.runs
            histories += 1
        } while !isOver && violations.isEmpty
        print("\(histories) histories, \(runs) kills, \(Int(Self.now - start)) s")
        finish(violations)
    }

    private func crash() throws {
        let home = try Verification.makeHome()
        guard let canary = try CrashCampaign.canary(on: home) else {
            finish(["the campaign does not see that a disk lies about its barriers"])
        }
        guard let journal = try CrashCampaign.journalCanary(on: home) else {
            finish(["the campaign does not see that a commit is acknowledged before the journal's barrier"])
        }
        print("canary: \(journal)")
        print("canary: \(canary)")
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
                + " \(campaign.names.count) distinct, \(Int(Self.now - start)) s")
        for operation in Operation.allCases { print("  \(operation): \(campaign.byOperation[operation, default: 0])") }
        finish(campaign.violations)
    }
}
