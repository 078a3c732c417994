import TestSupport
import Testing

@testable import Messaging

/// The rules of the inbox lifecycle (Delivery.md), on the machine alone.
@Suite struct InboxLifecycle {
    typealias Machine = InboxLifecycleStateMachine

    private let inboxes = (0..<16 as Range<UInt8>).map { number in
        InboxEntry(client: ClientID(unchecked: [UInt8](repeating: 0, count: 15) + [number]), createdAt: noon)
    }

    private func inbox(_ number: UInt8) -> InboxEntry { inboxes[Int(number)] }

    private let free: (InboxEntry) -> InboxProtection = { _ in [] }

    private func asleep(_ count: UInt8, capacity: Int) -> Machine {
        var machine = Machine(capacity: capacity)
        for number in 0..<count { machine.track(inbox(number), lastActivity: noon + Int64(number) * .second) }
        return machine
    }

    private let later = noon + .hour

    @discardableResult private func wake(
        _ machine: inout Machine, _ number: UInt8, _ reason: WakeReason = .userInteraction, at now: Timestamp? = nil,
        stay: Milliseconds = 0, protection: ((InboxEntry) -> InboxProtection)? = nil
    ) -> [InboxEntry] {
        machine.wake(inbox(number), reason, now: now ?? later, stay: stay, protection: protection ?? free)
    }

    @Test func `an untracked, sleeping or awake inbox answers each event as its state requires`() throws {
        var machine = Machine(capacity: 2)
        #expect(!machine.isTracked(inbox(1)) && machine.wakeReason(inbox(1)) == nil)
        #expect(throws: Machine.Refusal.notTracked) { try machine.sleep(inbox(1), now: later, protection: free) }
        machine.active(inbox(1), at: later)
        machine.endDelivery(inbox(1))
        machine.remove(inbox(1))
        #expect(!machine.isTracked(inbox(1)))
        machine.track(inbox(1), lastActivity: noon)
        #expect(machine.isTracked(inbox(1)) && !machine.isAwake(inbox(1)) && machine.sleepingCount == 1)
        machine.track(inbox(1), lastActivity: later)
        #expect(machine.lastActivity(inbox(1)) == noon)
        #expect(try machine.sleep(inbox(1), now: later, protection: free) == false)
        machine.endDelivery(inbox(1))
        machine.active(inbox(1), at: later)
        #expect(machine.lastActivity(inbox(1)) == later)
        wake(&machine, 1, .pushNotification)
        #expect(machine.isAwake(inbox(1)) && machine.wakeReason(inbox(1)) == .pushNotification)
        #expect(machine.awakeCount == 1 && machine.sleepingCount == 0)
        // A second wake keeps the first reason and evicts nothing.
        #expect(wake(&machine, 1, .userInteraction, protection: { _ in .unread }).isEmpty)
        #expect(machine.wakeReason(inbox(1)) == .pushNotification)
        machine.track(inbox(1), lastActivity: nil)
        #expect(machine.isAwake(inbox(1)))
        machine.active(inbox(1), at: noon)
        #expect(machine.lastActivity(inbox(1)) == later)
        #expect(try machine.sleep(inbox(1), now: later, protection: free) == true)
        #expect(!machine.isAwake(inbox(1)) && machine.wakeReason(inbox(1)) == nil)
        machine.remove(inbox(1))
        #expect(!machine.isTracked(inbox(1)))
        wake(&machine, 2)
        #expect(machine.isAwake(inbox(2)))
        machine.remove(inbox(2))
        #expect(machine.awakeCount == 0 && machine.sleepingCount == 0)
    }

    @Test(arguments: WakeReason.allCases) func `a woken inbox keeps the reason of its waking`(reason: WakeReason) throws
    {
        var machine = asleep(1, capacity: 1)
        wake(&machine, 0, reason)
        #expect(machine.wakeReason(inbox(0)) == reason)
    }

    @Test func `the capacity is 1,024 by default and always between 1 and 10,000`() {
        #expect(Machine().capacity == 1_024 && Machine().stayLimit == 2_048)
        #expect(Machine(capacity: 0).capacity == 1 && Machine(capacity: .min).capacity == 1)
        #expect(Machine(capacity: 20_000).capacity == 10_000 && Machine(capacity: .max).stayLimit == 20_000)
        var machine = Machine(capacity: 3)
        machine.setCapacity(.max)
        #expect(machine.capacity == 10_000)
    }

    @Test func `the least recently active inbox gives way beyond the capacity`() throws {
        var machine = asleep(4, capacity: 2)
        #expect(wake(&machine, 3).isEmpty && wake(&machine, 1).isEmpty)
        #expect(wake(&machine, 2) == [inbox(1)] && wake(&machine, 0) == [inbox(2)])
        // The order follows activity, not the time of waking.
        machine.active(inbox(0), at: later)
        #expect(wake(&machine, 1) == [inbox(3)])
        #expect(machine.awakeCount == 2 && machine.sleepingCount == 2)
    }

    @Test func `an inbox that was never active gives way first, of two the one that a user touched longest ago`() {
        var machine = asleep(3, capacity: 2)
        machine.track(inbox(9), lastActivity: nil)
        wake(&machine, 0)
        wake(&machine, 9)
        #expect(wake(&machine, 2) == [inbox(9)])
        machine = Machine(capacity: 2)
        for (number, time) in [(4, 30), (5, 10)] as [(UInt8, Int64)] {
            _ = machine.wake(inbox(number), .userInteraction, now: noon + time * .second, stay: 0, protection: free)
        }
        #expect(wake(&machine, 6) == [inbox(5)])
    }

    @Test(arguments: [.active, .pendingInvite, .unread, .undelivered] as [InboxProtection])
    func `a protected inbox does not give way`(protection: InboxProtection) throws {
        var machine = asleep(3, capacity: 2)
        wake(&machine, 0)
        wake(&machine, 1)
        let victims = wake(&machine, 2, protection: { $0 == inbox(0) ? protection : [] })
        #expect(victims == [inbox(1)])
        #expect(throws: Machine.Refusal.protected(protection)) {
            try machine.sleep(inbox(0), now: later, protection: { _ in protection })
        }
        #expect(machine.isAwake(inbox(0)))
        #expect(!protection.description.isEmpty)
    }

    @Test(arguments: WakeReason.allCases)
    func `protected inboxes do not count against the capacity when another is woken`(reason: WakeReason) {
        var machine = asleep(8, capacity: 2)
        for number in 0..<6 as Range<UInt8> { #expect(wake(&machine, number, protection: { _ in .unread }).isEmpty) }
        #expect(machine.awakeCount == 6 && machine.isOverCapacity)
        #expect(wake(&machine, 6, reason, protection: { $0 == inbox(6) ? [] : .unread }).isEmpty)
        #expect(machine.isAwake(inbox(6)))
        #expect(wake(&machine, 7, reason, protection: { $0 == inbox(6) ? [] : .unread }) == [inbox(6)])
    }

    @Test func `a staying inbox gives way only beyond twice the capacity, the earliest woken first`() {
        var machine = asleep(8, capacity: 2)
        for number in [3, 0, 2, 1] as [UInt8] {
            let now = later + Milliseconds(number) * 100
            #expect(wake(&machine, number, at: now, stay: 10 * .second).isEmpty)
        }
        #expect(machine.isStaying(inbox(0), now: later) && !machine.isStaying(inbox(0), now: later + 10 * .second))
        // An inbox that has not done what it was woken for keeps its time, whatever the reason of the next wake.
        let early = later + Limits.inboxStayForToken - 1
        #expect(wake(&machine, 4, .pushNotification, at: early, stay: 10 * .second).isEmpty)
        let now = later + Limits.inboxStayForToken + 100
        // An inbox that is woken to deliver can wait for the others.
        #expect(wake(&machine, 5, .activityRanking, at: now, stay: 10 * .second).isEmpty)
        #expect(wake(&machine, 6, .userInteraction, at: now, stay: 10 * .second) == [inbox(0), inbox(1)])
        #expect(machine.awakeCount == 5)
    }

    @Test func `an inbox woken by a dial gives way before its stay ends once it was active`() {
        var machine = asleep(8, capacity: 1)
        for number in [0, 1] as [UInt8] { wake(&machine, number, .pushNotification, stay: 2 * .second) }
        machine.active(inbox(1), at: later)
        #expect(wake(&machine, 2, .pushNotification, at: later + 1, stay: 2 * .second) == [inbox(1)])
        machine.serve(inbox(0), .userInteraction)
        #expect(wake(&machine, 3, .pushNotification, at: later + 1, stay: 2 * .second).isEmpty)
    }

    @Test func `inboxes without protection are trimmed, the least recently active first`() throws {
        var machine = asleep(5, capacity: 2)
        for number in [4, 0, 3, 1] as [UInt8] { wake(&machine, number, protection: { _ in .active }) }
        #expect(machine.trim(now: later, protection: { _ in .active }).isEmpty)
        #expect(machine.trim(now: later, protection: { $0 == inbox(0) ? .active : [] }) == [inbox(1), inbox(3)])
        #expect(machine.trim(now: later, protection: free).isEmpty && machine.awakeCount == 2)
    }

    @Test func `a delivery counts until it has succeeded, its time is over or its inbox sleeps`() throws {
        var machine = asleep(4, capacity: 4)
        wake(&machine, 0, .activityRanking, stay: 10 * .second)
        wake(&machine, 1, .pushNotification, stay: 10 * .second)
        wake(&machine, 2, .activityRanking, stay: 20 * .second)
        wake(&machine, 3, .activityRanking)
        #expect(machine.isDelivering(inbox(0)) && !machine.isDelivering(inbox(1)) && !machine.isDelivering(inbox(3)))
        #expect(machine.deliveries(now: later) == (2, later + 10 * .second))
        #expect(machine.deliveries(now: later + 10 * .second) == (1, later + 20 * .second))
        machine.endDelivery(inbox(1))
        #expect(machine.isStaying(inbox(1), now: later))
        machine.endDelivery(inbox(2))
        #expect(machine.deliveries(now: later) == (0, nil) && !machine.isStaying(inbox(2), now: later))
        machine.remove(inbox(3))
        wake(&machine, 3, .activityRanking, stay: .second)
        #expect(try machine.sleep(inbox(3), now: later, protection: free))
        #expect(machine.deliveries(now: later) == (0, nil))
    }

    @Test func `deliveries take up to half of the capacity, a quarter for members that were away`() {
        for (capacity, quarter) in [(1, 1), (4, 1), (20, 5), (64, 16), (1_024, 16)] {
            let machine = Machine(capacity: capacity)
            #expect(machine.deliveryPlaces(hasFailed: true) == quarter)
            #expect(machine.deliveryPlaces(hasFailed: false) == 2 * quarter)
        }
    }

    @Test func `an inbox that gives way during its stay does not count a failed try`() throws {
        var machine = asleep(3, capacity: 1)
        wake(&machine, 0, stay: .second)
        wake(&machine, 1, at: later + .second)
        #expect(inbox(0).retries == 1, "its time was over")
        wake(&machine, 0, at: later + .second, stay: 10 * .second)
        wake(&machine, 2, at: later + .second, stay: 10 * .second)
        wake(&machine, 1, at: later + 2 * .second)
        #expect(inbox(0).retries == 1, "it gave way while it stayed")
        #expect(try machine.sleep(inbox(1), now: later, protection: free))
        #expect(inbox(1).retries == 1)
    }

    @Test func `rebalance keeps protected inboxes and fills the rest by activity`() {
        var machine = asleep(8, capacity: 3)
        for number in [0, 1, 2] as [UInt8] { wake(&machine, number) }
        let plan = machine.rebalance(now: later) { $0 == inbox(1) ? .active : [] }
        #expect(plan.sleep == [inbox(0), inbox(2)] && plan.wake == [inbox(7), inbox(6)])
        for number in [7, 6] as [UInt8] { wake(&machine, number, .activityRanking) }
        #expect(machine.awakeCount == 3)
        let next = machine.rebalance(now: later) { $0 == inbox(1) ? .active : [] }
        #expect(next.sleep.isEmpty && next.wake.isEmpty)
        // All are protected, and more than the capacity: they stay awake.
        wake(&machine, 5, protection: { _ in .unread })
        let last = machine.rebalance(now: later) { _ in .unread }
        #expect(machine.awakeCount == 4 && last.sleep.isEmpty && last.wake.isEmpty)
    }

    @Test func `a start wakes pending joins first, even beyond the capacity, then the most recently active`() {
        var machine = asleep(6, capacity: 2)
        for number in [10, 11, 12] as [UInt8] { machine.track(inbox(number), lastActivity: nil) }
        let order = machine.launch(pending: [inbox(10), inbox(11), inbox(12)])
        #expect(order.map(\.0) == [10, 11, 12, 5, 4].map { inbox($0) })
        #expect(order.map(\.1) == [.pendingInvite, .pendingInvite, .pendingInvite, .appLaunch, .appLaunch])
        #expect(machine.launch(pending: []).map(\.0) == [inbox(5), inbox(4)])
    }
}

@Suite struct InboxDirectoryTests {
    @Test func `conversations are found by id, by the beginning of an id and by name, awake or asleep`() throws {
        var pair = Pair()
        try pair.createAndInvite()
        let conversation = try #require(pair.machines[0]?.conversation)
        for _ in 0..<2 {
            let directory = pair.nodes[0].directory
            let client = pair.clients[0]
            #expect(directory.client(of: conversation) == client && directory.count == 1)
            #expect(directory.clients(named: "talk") == [client] && directory.clients(named: "tal").isEmpty)
            for text in [conversation.description, client.description, client.description.filter { $0 != "-" }] {
                for length in 1...text.count {
                    #expect(
                        directory.clients(beginningWith: String(text.prefix(length))) == [client], "\(text) \(length)")
                }
            }
            for text in ["", "-", "x", conversation.description + "0", "0123456789", client.description + "-"] {
                #expect(directory.clients(beginningWith: text).isEmpty, "\(text)")
            }
            pair.now = pair.now + .hour
            pair.sleep(0)
            #expect(pair.nodes[0].isSleeping(client))
        }
    }
}
