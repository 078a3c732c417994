import SimulatedDisk
import StoreCampaigns
import Testing

@Suite struct MailboxForensicTests {
    @Test func `a thief with a mailbox's bodies, the owner's disk and its secret opens only live bodies`() throws {
        let campaign = MailboxCampaign(on: try Verification.makeHome())
        for seed in 1...5 as ClosedRange<UInt64> { try campaign.run(seed: seed, steps: 24, isThorough: seed == 4) }
        #expect(campaign.violations == [])
        // The attacker can read live bodies.
        #expect(campaign.before.tried > 10 && campaign.before.opened == campaign.before.tried)
        let after = try #require(campaign.after[.fresh])
        #expect(after.tried > 10 && after.opened == 0)
        #expect(campaign.dead.tried > 40 && campaign.dead.opened == 0)
    }

    /// On a disk that keeps destroyed pages, or if the slices' keys are stored.
    @Test(arguments: [true, false]) func `canary: the thief opens dead bodies where a key is left`(keepsPages: Bool)
        throws
    {
        let campaign = MailboxCampaign(on: try Verification.makeHome())
        for seed in 1...8 as ClosedRange<UInt64> where campaign.violations.isEmpty {
            try campaign.run(seed: seed, steps: 24, leavesOldBlocks: keepsPages, keepsKeys: !keepsPages)
        }
        #expect(campaign.violations.contains { $0.contains("is dead and opens") })
    }
}
