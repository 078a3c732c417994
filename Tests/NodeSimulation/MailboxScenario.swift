import Cryptography
import Messaging
import NIOCore
import NodeRuntime
import Simulation

/// Members that are never online together use the mailbox, in a world whose only faults are their absence and the
/// mailbox's own. Mailed messages must arrive within their lifetime; then the conversation explodes while a member is
/// away.
final class MailboxScenario: @unchecked Sendable {
    private struct Sent {
        var text: String
        var id: MessageID
        var sender: Int
        var time: Int64
        /// Whether the sender reported the message as mailed for all members.
        var isMailed: Bool
    }

    let world: NodeSimulation
    let mailbox: WorldMailbox
    let members: [Machine]
    let terms: LifetimeTerms
    var conversation: ConversationID?
    private var sent: [Sent] = []
    /// World time when the members were last linked.
    private var linkedAt: Int64 = 0
    /// Time each clock had lost by then, by machine index.
    private var lostWhenLinked: [Int: Milliseconds] = [:]
    /// By text, members that have it and were up long enough for their acknowledgements to be put.
    private var acknowledged: [String: Set<Int>] = [:]

    private init(_ world: NodeSimulation, _ mailbox: WorldMailbox, _ members: [Machine], _ terms: LifetimeTerms) {
        (self.world, self.mailbox, self.members, self.terms) = (world, mailbox, members, terms)
    }

    /// Returns `nil` if too few clocks are near enough for tokens.
    convenience init?(_ world: NodeSimulation) {
        guard let mailbox = world.mailbox, let now = world.machines[mailbox.index].lastSeenNow else { return nil }
        var able = world.people.filter { machine in
            guard !machine.isHostile, mailbox.users.contains(machine.index), let own = machine.lastSeenNow else {
                return false
            }
            return abs(own - now) < 12 * .hour
        }
        while able.count > 3 || able.count > 2 && world.chance(60) {
            able.remove(at: Int(world.roll(Int64(able.count))))
        }
        guard able.count > 1 else { return nil }
        if world.chance(50) { able.reverse() }
        let all: [LifetimeTerms] = [
            LifetimeTerms(.oneHour, mailbox: .disk), LifetimeTerms(.oneHour, mailbox: .ram),
            LifetimeTerms(.oneDay, mailbox: .disk), LifetimeTerms(.sevenDays, mailbox: .disk),
            LifetimeTerms(.sixHours, mailbox: .ram), LifetimeTerms(.ephemeral, mailbox: .ram),
            LifetimeTerms(.thirtyDays, unopened: 30 * .minute, mailbox: .disk),
            LifetimeTerms(.oneDay, timer: .read, mailbox: .disk),
        ]
        let terms = world.options.mistake == nil ? world.one(of: all) : all[0]
        self.init(world, mailbox, able, terms)
    }

    var hub: Machine { world.machines[mailbox.index] }
    var isHonest: Bool { !mailbox.isHostile }
    var text: String { conversation?.description ?? "" }

    func fail(_ what: String) { world.violation("M3 through a mailbox (\(terms.displayName)): \(what)") }

    func run(_ seconds: Int64) { world.run(until: world.milliseconds + seconds * 1_000) }

    func wait(_ seconds: Int64, _ isTrue: () -> Bool) -> Bool {
        let end = world.milliseconds + seconds * 1_000
        while !isTrue() {
            guard world.milliseconds < end, world.violations.isEmpty else { return false }
            world.run(until: world.milliseconds + 250)
        }
        return true
    }

    func up(_ machine: Machine) { if !machine.isUp { world.start(machine) } }

    func down(_ machine: Machine) {
        guard machine.isUp else { return }
        if world.chance(40) {
            world.stop(machine)
            _ = wait(20) { !machine.isUp }
        }
        if machine.isUp { world.crash(machine, isPowerCut: world.chance(50)) }
    }

    /// All machines are off for a while; those that were off stay off.
    func sleep(_ milliseconds: Milliseconds) {
        let awake = world.machines.filter(\.isUp)
        for machine in awake { world.crash(machine, isPowerCut: world.chance(50)) }
        world.run(until: world.milliseconds + milliseconds)
        for machine in awake { up(machine) }
    }

    func one(_ machine: Machine) -> Conversation? { machine.conversation(text) }

    private func others(than machine: Machine) -> [Machine] { members.filter { $0 !== machine } }

    func isMailable(_ machine: Machine) -> Bool {
        machine.ask { [text] node in
            guard let one = try? node.conversation(text), one.currentMembers.count == members.count - 1 else {
                return false
            }
            return one.currentMembers.allSatisfy { node.isMailable($0.key, in: one) }
        } ?? false
    }

    private func state(of sent: Sent, at machine: Machine) -> DeliveryState? {
        machine.ask { [text] node in
            guard let one = try? node.conversation(text) else { return nil }
            return node.message(sent.id, client: one.client)?.message.state
        }
    }

    private func hasSeen(_ sent: Sent, _ machine: Machine) -> Bool {
        world.oracle.arrived[sent.id, default: []].contains(machine.index)
    }

    private var unread: Milliseconds { terms.unreadTime(of: .text) ?? Limits.mailedMemoryLifetime }

    private func isAlive(_ sent: Sent) -> Bool {
        let lost = world.machines.map(\.lostTime).max() ?? 0
        return world.milliseconds - sent.time < unread - 5 * .minute - lost
    }

    func run() {
        guard meet() else { return world.count("mailbox scenarios that did not begin") }
        world.count("mailbox scenarios")
        for member in members { down(member) }
        let rounds = 2 + Int(world.roll(4))
        for _ in 0..<rounds where world.violations.isEmpty { round() }
        guard world.violations.isEmpty else { return }
        if world.chance(50) {
            explode()
        } else {
            if world.chance(60) { meetAgain() }
            checkKeys()
        }
        for machine in world.machines where world.violations.isEmpty { up(machine) }
        run(30)
    }

    private func meet() -> Bool {
        let creator = members[0]
        var listed: NodeSimulation.Listed?
        world.create(creator, name: "mail \(world.milliseconds)") { listed = $0 }
        guard wait(30, { listed != nil }), let listed else { return false }
        conversation = listed.id
        var slug: String?
        let invited = creator.ask { [text] in try? $0.invite(text, lifetime: .day, singleUse: false) }
        creator.when(invited) { slug = $0.slug }
        guard wait(30, { slug != nil }), let slug else { return false }
        for guest in members.dropFirst() { guest.ask { [self] node in world.join(guest, node, slug) } }
        guard wait(180, { areLinked }) else { return false }
        return agree()
    }

    private var areLinked: Bool {
        members.allSatisfy { member in
            guard let one = one(member), one.currentMembers.count == members.count - 1 else { return false }
            return one.currentMembers.allSatisfy { one.isOnline($0.key) }
        }
    }

    private func agree(attempts: Int = 3) -> Bool {
        for member in members {
            member.ask { [text] node in
                _ = try? node.command(text) { $0.setPolicy(.ask, &$1) }
                _ = try? node.command(text) { $0.setCap(LifetimeCap.none, &$1) }
            }
        }
        if world.chance(15) { refuse() }
        propose()
        let isAgreed = wait(60) {
            for member in members.dropFirst() { answer(member) { _ = try $0.accept($1, only: $2) } }
            return members.allSatisfy { one($0)?.agreement?.terms == terms }
        }
        guard isAgreed else {
            fail("nobody comes to the agreement")
            return false
        }
        guard isHonest else {
            // A hostile mailbox may refuse service for a while.
            return wait(900) { members.allSatisfy(isMailable) }
        }
        let isKnown = wait(180) { members.allSatisfy(isMailable) }
        // The box is announced and keys arrive before the mailbox has granted the box.
        if isKnown { run(30) }
        // A lost link ends the session of a member without grace, and with it the agreement.
        let stands = members.allSatisfy { one($0)?.agreement?.terms == terms }
        if !stands, attempts > 1 { return agree(attempts: attempts - 1) }
        guard isKnown, stands else {
            for member in members {
                let standing = member.ask { $0.mailboxStanding }
                world.note("machine \(member.index): mailable \(isMailable(member)), \(String(describing: standing))")
            }
            fail("members that are online do not know each other's boxes")
            return false
        }
        linkedAt = world.milliseconds
        for member in members { lostWhenLinked[member.index] = member.lostTime }
        return world.violations.isEmpty
    }

    /// Whether its clock has lost more than the dwell tolerance since the slices were announced. Such a member may
    /// doubt an honest mailbox's dwell, and then acknowledges over links only.
    private func mayDoubtDwells(_ machine: Machine) -> Bool {
        machine.lostTime - lostWhenLinked[machine.index, default: 0] > Limits.sliceTolerance
    }

    private func propose() {
        members[0].ask { [text, terms] node in
            do { try node.propose(text, terms) } catch { self.world.note("not proposed: \(error)") }
        }
    }

    private func answer(_ member: Machine, _ body: (isolated Node, String, ProposalID) throws -> Void) {
        nonisolated(unsafe) let body = body
        member.ask { [text] node in
            guard let open = try? node.conversation(text).pendingProposal, !open.isOurs else { return }
            try? body(node, text, open.proposal.id)
        }
    }

    /// A member refuses the terms: no box may be claimed and nothing put, which ``NodeSimulation/asked(_:)`` checks.
    private func refuse() {
        propose()
        _ = wait(20) { one(members[1])?.pendingProposal?.isOurs == false }
        answer(members[1]) { node, text, _ in
            try node.command(text) { machine, turn throws(CommandError) in try machine.reject(&turn) }
        }
        _ = wait(20) { one(members[0])?.pendingProposal == nil }
        run(10)
        world.count("mailboxes refused")
        if members.contains(where: { one($0)?.record.own.mailbox != nil }) {
            fail("a box is named that was not agreed to")
        }
    }

    /// One member sends while it is alone; then the others come, one after the other.
    private func round() {
        guard let sender = world.pick(members) else { return }
        // The mailbox loses what it holds in memory only.
        let isHubAway = isHonest && terms.mailbox == .disk && world.chance(20)
        if isHubAway { down(hub) }
        up(sender)
        run(1 + world.roll(4))
        let isReachable = isMailable(sender)
        let age = world.milliseconds - linkedAt
        let schedule = SliceSchedule(terms)
        if isHonest, !isReachable, age < schedule.horizon - 2 * schedule.width {
            return fail("machine \(sender.index) cannot write to a box, \(age) ms after their link")
        }
        awaitDeliveries(to: sender)
        let texts = say(sender)
        if isHubAway {
            run(world.roll(60))
            up(hub)
        }
        if isReachable { awaitMailed(texts, sender) }
        down(sender)
        pause()
        for receiver in others(than: sender) where world.violations.isEmpty { receive(receiver) }
    }

    private func say(_ sender: Machine) -> [MessageID] {
        guard let one = one(sender) else { return [] }
        let listed = NodeSimulation.Listed(client: one.client, id: one.conversation, isCreator: one.isCreator)
        let first = world.nextText
        for _ in 0..<1 + world.roll(4) { world.send(sender, listed) }
        run(3)
        var made: [MessageID] = []
        for number in first..<world.nextText {
            let found = world.oracle.sent.first { text, sent in
                text.drop(while: { $0 == "m" }).prefix { $0.isNumber } == "\(number)" && sent.machine == sender.index
            }
            guard let (text, content) = found else { continue }
            made.append(content.content.id)
            sent.append(
                Sent(text: text, id: content.content.id, sender: sender.index, time: content.time, isMailed: false))
        }
        return made
    }

    private func awaitMailed(_ messages: [MessageID], _ sender: Machine) {
        func isMailed(_ sent: Sent) -> Bool { [.mailed, .delivered].contains(state(of: sent, at: sender)) }
        let mine = sent.filter { messages.contains($0.id) }
        let isDone = wait(isHonest ? 240 : 30) { mine.allSatisfy(isMailed) }
        for index in sent.indices where messages.contains(sent[index].id) {
            sent[index].isMailed = isMailed(sent[index])
        }
        if isDone { world.count("mailed, and gone off") }
        if !isDone, isHonest {
            let states = mine.map { "\(state(of: $0, at: sender).map { "\($0)" } ?? "gone")" }.joined(separator: ", ")
            fail("what machine \(sender.index) says is not mailed: \(states)")
        }
    }

    /// All machines, or all but the mailbox, are off.
    private func pause() {
        let lengths: [Milliseconds] = [
            0, 10 * .second, 5 * .minute, 20 * .minute, 50 * .minute, 90 * .minute, 5 * .hour,
        ]
        var length = world.one(of: lengths)
        if world.options.mistake == .ignoredDwell { length = 50 * .minute }
        guard terms.mailbox == .disk, length >= 5 * .minute else { return run(min(length, 20 * .minute) / 1_000) }
        if world.chance(30), terms.lifetime != .oneHour { length = world.one(of: [.day, 3 * .day, 6 * .day]) }
        sleep(length)
    }

    private func receive(_ receiver: Machine) {
        if world.options.mistake == .earlyDiscard || world.chance(25) {
            world.count("cut off while taking")
            receiver.slowness = world.options.mistake == .earlyDiscard ? 3_000 : 500
            up(receiver)
            _ = wait(world.options.mistake == .earlyDiscard ? 20 : 1 + world.roll(8)) {
                world.chance(4) || sent.contains { $0.sender != receiver.index && hasSeen($0, receiver) }
            }
            if receiver.isUp { world.crash(receiver, isPowerCut: true) }
            receiver.slowness = 5
        }
        up(receiver)
        func isMissing(_ sent: Sent) -> Bool {
            sent.isMailed && sent.sender != receiver.index && isAlive(sent) && !hasSeen(sent, receiver)
        }
        let isDone = wait(isHonest ? 180 : 30) { !sent.contains(where: isMissing) }
        if isHonest, !isDone {
            let missing = sent.filter(isMissing).map(\.text).joined(separator: " ")
            let standing = receiver.ask { $0.mailboxStanding }
            world.note("standing: \(String(describing: standing))")
            return fail("\(missing.prefix(60)) has not come to machine \(receiver.index)")
        }
        for one in sent where one.sender != receiver.index && hasSeen(one, receiver) {
            world.count("came through a mailbox")
        }
        world.look(at: receiver)
        if world.chance(50) { _ = say(receiver) }
        run(40)
        if mayDoubtDwells(receiver) {
            world.count("receivers that may doubt a dwell")
        } else if isMailable(receiver) {
            for one in sent where one.sender != receiver.index && hasSeen(one, receiver) {
                acknowledged[one.text, default: []].insert(receiver.index)
            }
        }
        for index in sent.indices where sent[index].sender == receiver.index && !sent[index].isMailed {
            sent[index].isMailed = state(of: sent[index], at: receiver) == .mailed
        }
        down(receiver)
    }

    /// The sender learns of acknowledgements in its box when it is on.
    private func awaitDeliveries(to sender: Machine) {
        guard isHonest, !sent.isEmpty else { return }
        func isOwed(_ one: Sent) -> Bool {
            guard one.sender == sender.index, isAlive(one),
                acknowledged[one.text, default: []].count == members.count - 1, let state = state(of: one, at: sender)
            else { return false }
            return state.isWaiting
        }
        up(hub)
        guard wait(180, { !sent.contains(where: isOwed) }) else {
            let owed = sent.filter(isOwed).map(\.text).joined(separator: " ")
            return fail("machine \(sender.index) does not learn that \(owed.prefix(60)) has come")
        }
        for one in sent where one.sender == sender.index && state(of: one, at: sender) == .delivered {
            world.count("delivered through a mailbox")
        }
    }

    /// Whatever the mailbox has done, everything must arrive over a link.
    private func meetAgain() {
        for machine in world.machines { up(machine) }
        guard wait(900, { world.unrest() == nil }) else { return fail("together again: \(world.unrest() ?? "")") }
        // Messages in memory went with their sender, and messages that waited for a week are abandoned. A sender also
        // drops messages whose own copy has expired, which counts as read from the beginning.
        let kept = min(terms.lifetime(of: .text).milliseconds ?? 0, Limits.outboxLifetime)
        let oldest = world.milliseconds - kept + min(kept / 4, .hour)
        for one in sent where isAlive(one) && terms.keepsSomething && one.time > oldest {
            for member in members where member.index != one.sender && !hasSeen(one, member) {
                guard world.areNear(member, world.machines[one.sender]) else {
                    world.count("members whose clocks keep them apart")
                    continue
                }
                fail("\(one.text.prefix(20)) has not come to machine \(member.index) over the link")
            }
        }
        world.count("together again after a mailbox")
    }
}

extension NodeSimulation {
    func talkThroughMailbox() {
        guard let scenario = MailboxScenario(self) else { return count("mailbox scenarios without members") }
        scenario.run()
    }
}
