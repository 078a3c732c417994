import Cryptography
import Messaging
import NodeRuntime
import SimulatedDisk
import Simulation
import Store

extension MailboxScenario {
    /// The creator explodes the conversation while a member is away, and is off when that member returns ten days
    /// later. The mailbox may be down for the first week.
    func explode() {
        let creator = members[0]
        let absent = members[members.count - 1]
        down(absent)
        up(hub)
        up(creator)
        run(3)
        guard isMailable(creator) else { return world.count("explosions without a box") }
        let isLate = isHonest && world.chance(40)
        if isLate { down(hub) }
        creator.ask { [self] node in
            world.oracle.ended.insert(conversation!)
            _ = try? node.explode(text, .now, isTraceless: false)
        }
        run(60)
        if isLate {
            // The notices wait on the creator's disk. The creator is off meanwhile, and on when the mailbox returns.
            sleep(7 * .day)
            up(hub)
            run(120)
            world.count("explosions with the mailbox down for a week")
        }
        down(creator)
        for member in members where member.isUp { down(member) }
        // A member whose keys are destroyed does not answer knocks.
        sleep((isLate ? 3 : 10) * .day)
        world.count("explosions with a member away")
        up(absent)
        let isGone = wait(isHonest ? 300 : 60) { !world.list(absent).contains { $0.id == conversation } }
        if isHonest, !isGone {
            let standing = absent.ask { $0.mailboxStanding }
            world.note("standing: \(String(describing: standing))")
            return fail("machine \(absent.index) still has what exploded ten days ago")
        }
        guard isGone else { return }
        world.count("explosions through a mailbox")
        run(30)
        down(absent)
        up(creator)
        let isConfirmed = wait(isHonest ? 20 * 60 : 30) {
            let tombstone = creator.ask { [text] in try? $0.explosion(text) }
            return tombstone.map { !$0.confirmed.isEmpty } ?? false
        }
        if isConfirmed { return world.count("explosions confirmed through a mailbox") }
        if isHonest { fail("machine \(creator.index) finds no receipt in the box") }
    }

    /// After the end of all slice contents, disk and key file must not suffice to derive the slice keys.
    func checkKeys() {
        guard world.violations.isEmpty, let owner = world.pick(members) else { return }
        up(owner)
        run(2)
        guard let now = owner.lastSeenNow, let key = one(owner)?.key.publicKey else { return }
        let schedule = SliceSchedule(terms)
        guard let tier = Tier.allCases.first(where: { $0.lifetime == schedule.tier.milliseconds }) else { return }
        let last = schedule.slice(at: now)
        let first = last > 4 ? last - 4 : 0
        if keys(of: owner, key, first...last, schedule, tier) > 0 { world.count("keys of slices that are there") }
        let past = schedule.keyEnd(of: last) - now + tier.bucketWidth + 20 * .second
        sleep(past + owner.lostTime)
        up(owner)
        run(30)
        guard owner.isUp, let late = owner.lastSeenNow, schedule.keyEnd(of: last) + tier.bucketWidth < late else {
            return
        }
        world.count("keys of slices looked for")
        let left = keys(of: owner, key, first...last, schedule, tier)
        if left > 0 { fail("\(left) keys of slices of machine \(owner.index) can still be made") }
    }

    private func keys(
        of owner: Machine, _ key: PublicKey, _ slices: ClosedRange<UInt32>, _ schedule: SliceSchedule, _ tier: Tier
    ) -> Int {
        var found = 0
        do {
            let store = try Store.open(
                home: Machine.home, fileSystem: owner.disk.platter.durableCopy(), now: 0, committingOn: .caller)
            defer { store.close() }
            try store.unlock(passphrase: nil)
            for row in store.liveRows() where world.identity(of: row, in: store) == key {
                for slice in slices {
                    let secret = try store.secret(
                        row, tier: tier, expiresAt: schedule.keyEnd(of: slice).milliseconds,
                        label: "mailbox slice \(slice) \(schedule.width) 0", isMade: false)
                    if secret != nil { found += 1 }
                }
            }
        } catch { fail("the disk of machine \(owner.index) cannot be read: \(error)") }
        return found
    }
}
