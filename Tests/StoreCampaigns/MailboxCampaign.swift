import SimulatedDisk

/// Random histories of an owner, attacked with every body its mailbox ever received, the owner's raw disk and its
/// secrets. Dead contents must be unreadable and live ones readable, or the attacker is blind.
package final class MailboxCampaign {
    package struct Figures {
        package private(set) var tried = 0
        package private(set) var opened = 0

        mutating func count(_ isOpen: Bool) {
            tried += 1
            if isOpen { opened += 1 }
        }
    }

    package private(set) var histories = 0
    /// Contents of live inboxes before their bucket's page is due: all must open.
    package private(set) var before = Figures()
    /// Contents one slice after their expiry: no fresh one may open, others only while their bucket exists.
    package private(set) var after: [MailHistory.Kind: Figures] = [:]
    /// Contents whose inbox or bucket was destroyed: none may open.
    package private(set) var dead = Figures()
    package private(set) var keyCount = 0
    package private(set) var violations: [String] = []
    private let base: SimulatedDisk
    /// Page files of a fresh home: noise that the attack skips.
    private let noise: [[UInt8]]

    package init(on base: SimulatedDisk) {
        self.base = base
        noise = base.files().filter { $0.key.hasSuffix(".slots") }.map(\.value)
    }

    /// - Parameters:
    ///   - leavesOldBlocks: Plants a bug the attacker must find: overwritten blocks are kept.
    ///   - keepsKeys: Plants another bug: slice keys are stored.
    ///   - isThorough: Tries every page at every place of a page file, every slice width, and every key on every body.
    package func run(
        seed: UInt64, steps: Int, leavesOldBlocks: Bool = false, keepsKeys: Bool = false, isThorough: Bool = false
    ) throws {
        let disk = base.copy()
        disk.with {
            $0.keepsHistory = true
            $0.keepsOldBlocks = leavesOldBlocks
        }
        let mail = MailHistory(on: disk, seed: seed)
        mail.keepsKeys = keepsKeys
        try mail.history.open()
        for part in 0..<3 {
            if part < 2 { for _ in 0..<(steps / 2) { try mail.step() } }
            // Passes the end of all contents; those that are due must be gone then.
            try mail.history.pass(part == 2 ? 60 * 24 * 3_600_000 : 1)
            try visit(mail, seed, isThorough)
        }
        mail.history.close()
        histories += 1
        for violation in mail.violations { report(seed, violation) }
    }

    private func visit(_ mail: MailHistory, _ seed: UInt64, _ isThorough: Bool) throws {
        guard let disk = mail.history.disk as? SimulatedDisk, let secret = mail.history.promise.secrets.last else {
            throw Violation("the keystore is gone")
        }
        var thief = try Thief(of: disk, passphrase: secret)
        if !isThorough { thief.known = noise }
        thief.search(image: disk.image(), written: disk.with { $0.history }, slotCount: isThorough ? 128 : 0)
        let (opened, keyCount) = thief.open(mail.mailed.map(\.body), isThorough: isThorough)
        self.keyCount += keyCount
        let now = mail.history.lastReap
        for (index, one) in mail.mailed.enumerated() {
            let isOpen = opened[index] != nil
            if isOpen, opened[index] != one.frame { report(seed, "\(mail.text(one)) opens as something else") }
            if mail.isDead(one) {
                dead.count(isOpen)
                if isOpen { report(seed, "\(mail.text(one)) is dead and opens") }
            }
            if one.deadline <= now {
                after[one.kind, default: Figures()].count(isOpen)
                if isOpen, one.kind == .fresh { report(seed, "\(mail.text(one)) opens one slice after its time") }
            }
            if mail.isAlive(one) {
                before.count(isOpen)
                if !isOpen { report(seed, "\(mail.text(one)) is alive and does not open") }
            }
        }
    }

    private func report(_ seed: UInt64, _ what: String) {
        if violations.count < 10 { violations.append("seed \(seed): \(what)") }
    }
}
