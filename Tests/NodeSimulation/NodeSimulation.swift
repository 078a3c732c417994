import Cryptography
import Messaging
import NodeRuntime
import Simulation

/// Several whole nodes in one thread, deterministic by seed: the real shell, store, codecs, handshakes and sealed
/// frames over simulated clocks, disks and network.
///
/// During a phase of faults and random commands no invariant may break. Then the faults stop, and the nodes must
/// converge. `Tests/Simulation` simulates the core alone, faster.
package final class NodeSimulation: SimulatedWorld, @unchecked Sendable {
    package struct Options: Sendable {
        package var seed: UInt64
        /// Duration of the faults in simulated seconds.
        package var seconds: Int64
        package var mistake: PlantedMistake?
        /// Number of machines; random when absent.
        package var machines: Int?
        /// The last machine, sometimes the last two, forges its frames; random when absent.
        package var isHostile: Bool?
        /// The first machine is a rendezvous node; random when absent.
        package var hasRendezvous: Bool?
        /// An additional machine is a mailbox; random when absent.
        package var hasMailbox: Bool?
        /// The mailbox is hostile; random when absent.
        package var isMailboxHostile: Bool?

        package init(
            seed: UInt64, seconds: Int64 = 60, mistake: PlantedMistake? = nil, machines: Int? = nil,
            isHostile: Bool? = nil, hasRendezvous: Bool? = nil, hasMailbox: Bool? = nil, isMailboxHostile: Bool? = nil
        ) {
            (self.seed, self.seconds, self.mistake, self.machines) = (seed, seconds, mistake, machines)
            (self.isHostile, self.hasRendezvous, self.hasMailbox) = (isHostile, hasRendezvous, hasMailbox)
            self.isMailboxHostile = isMailboxHostile
        }
    }

    /// The world's time 0, in milliseconds since 1970.
    static let epoch: Milliseconds = 1_750_000_000_000
    /// Time for convergence after the faults, in milliseconds.
    static let patience: Int64 = 90 * 60_000

    let options: Options
    let time = SimulatedTime()
    package let journal: Journal
    let network: SimulatedNetwork
    let datagrams: SimulatedDatagrams
    package var dice: Randomness
    var machines: [Machine] = []
    private(set) var roads = Roads.open
    private(set) var mailbox: WorldMailbox?
    let oracle = NodeOracle()
    /// Knowledge that the hostile machines share.
    let hostile: HostileMember
    /// Hostile machines also create conversations and invite to them.
    private(set) var hostilesCreate = false
    var isCalm = false
    var nextText = 1
    package var milliseconds: Int64 { time.milliseconds }
    var violations: [String] { journal.violations }

    /// Runs one seed. The same seed always gives the same report.
    package static func run(_ options: Options, log: ((String) -> Void)? = nil) -> Report {
        SeededRandomness.run(seed: options.seed) { NodeSimulation(options, Journal(limit: 10, log: log)).run() }
    }

    private init(_ options: Options, _ journal: Journal) {
        (self.options, self.journal) = (options, journal)
        dice = .seeded(options.seed &* 0x9e37_79b9_7f4a_7c15 &+ 11)
        hostile = HostileMember(dice: .seeded(dice.next()), journal: journal)
        network = SimulatedNetwork(time, dice: .seeded(dice.next()), journal: journal)
        datagrams = SimulatedDatagrams(network, dice: .seeded(dice.next()), journal: journal)
        // Some worlds have no TCP at all, others little.
        network.lastingRefusals = one(of: [0, 0, 0, 50, 100])
        let drawn = chance(60) ? 2 + roll(3) : chance(85) ? 4 + roll(5) : 9 + roll(8)
        let count = Int(options.machines.map(Int64.init) ?? drawn)
        roads = Roads(
            seed: options.seed, machines: count, hasRendezvous: options.mistake == nil ? options.hasRendezvous : false)
        network.roads = roads
        mailbox = WorldMailbox(options, machines: count, journal)
        let isHostile = options.isHostile ?? (options.mistake == nil && count > 2 && chance(40))
        let hostileCount = isHostile ? (count > 3 && chance(30) ? 2 : 1) : 0
        hostilesCreate = isHostile && chance(50)
        if hostileCount > 1 { self.count("worlds with two hostile machines") }
        let grace: Milliseconds = one(of: [0, 5_000, 30_000])
        let isScattered = chance(5)
        for index in 0..<count {
            let skew = isScattered ? roll(20 * 365 * .day) - 10 * 365 * .day : roll(4 * .hour) - 2 * .hour
            let capacity = one(of: [1, 2, 4, Limits.inboxCapacity])
            let policy = one(of: [
                LifetimePolicy.ask, .ask, .ask, .ask, .acceptUpTo(.thirtyDays, mailbox: .disk), .refuse,
            ])
            let cap = one(of: LifetimeCap.drawn)
            machines.append(
                Machine(
                    index, world: self, isHostile: index >= count - hostileCount, clockOffset: skew, capacity: capacity,
                    grace: grace, policy: policy, cap: cap))
        }
        if let mailbox { machines.append(mailbox.machine(in: self)) }
    }

    /// Whether the key is a hostile machine's. Unknown keys are not.
    func isHostile(_ key: PublicKey) -> Bool { oracle.owners[key].map { machines[$0].isHostile } ?? false }

    func run(until end: Int64) { time.run(until: end * 1_000_000) { !self.journal.isFull } }

    private func run() -> Report {
        for machine in machines { machine.initialize() }
        exchangeCards()
        for machine in machines {
            if let error = machine.start() { violation("machine \(machine.index) does not start: \(error)") }
        }
        for machine in people { time.plan(inMilliseconds: roll(2_000)) { [unowned self] in useAndGoOn(machine) } }
        time.plan(inMilliseconds: 3_000) { [unowned self] in misfortune() }
        time.plan(inMilliseconds: 20_000) { [unowned self] in steal() }
        run(until: milliseconds + options.seconds * 1_000)
        calmDown()
        let calmAt = milliseconds
        while milliseconds < calmAt + Self.patience, violations.isEmpty {
            run(until: milliseconds + 10_000)
            for machine in machines { look(at: machine) }
            if unrest() == nil {
                count(milliseconds - calmAt <= 60_000 ? "healed within 60 s" : "healed later")
                break
            }
        }
        if violations.isEmpty, let unrest = unrest() { violation("liveness: \(unrest)") }
        if violations.isEmpty, mailbox != nil { talkThroughMailbox() }
        if violations.isEmpty { finish() }
        defer { forget() }
        return report(seed: options.seed, nodeCount: machines.count, events: time.count)
    }

    private func calmDown() {
        note("calm")
        if let relay = machines[Roads.rendezvous].ask({ $0.relayService?.counts }) {
            journal.count("relayed streams", Int(relay.opened))
        }
        isCalm = true
        roads.heal()
        network.roads = roads
        network.heal()
        datagrams.heal()
        for machine in machines {
            if machine.isUp { crash(machine, isPowerCut: false) }
            machine.disk.mend()
            machine.disk.changesUntilPowerCut = nil
            machine.slowness = 5
            machine.capacity = 1_000
            start(machine)
        }
    }

    private func steal() {
        if let machine = pick(machines) { inspectDisk(machine) }
        time.plan(inMilliseconds: 5_000 + roll(15_000)) { [unowned self] in steal() }
    }

    /// Expired messages must be unreadable long after their end, before any reaper runs and after a restart.
    private func finish() {
        for machine in machines { check(machine) }
        for machine in machines { machine.clockOffset += 31 * .day }
        for machine in machines { look(at: machine) }
        for machine in machines {
            crash(machine, isPowerCut: true)
            start(machine)
        }
        run(until: milliseconds + 30_000)
        for machine in machines { inspectDisk(machine) }
    }

    private func forget() {
        for machine in machines { machine.forget() }
        network.forget()
        datagrams.forget()
        time.forgetEverything()
    }
}

/// A defect planted under the node, which a test must find.
package enum PlantedMistake: String, Sendable, CaseIterable {
    /// fsync succeeds and does nothing.
    case lyingFsync
    /// fsync succeeds twenty seconds early: acknowledgements leave before their data is durable.
    case lateFsync
    /// The clock's high-water mark is never written, so a clock that was set back goes back.
    case forgottenClock
    /// The node's clocks run at a tenth of their speed.
    case slowClock
    /// The node's time runs twice as fast as its clock: it destroys too early.
    case fastClock
    /// Messages held only in memory are also written to the disk, where the node does not look.
    case writtenMemory
    case droppedAgreement
    /// A destroyed key page remains on the disk.
    case keptRow
    /// After an explosion the machine returns with an old disk.
    case restoredBackup
    case lostAcknowledgements
    /// A shell that reports every event twice.
    case shownTwice
    /// A mailbox that names no dwell, and a codec that names a later slice: the age of contents is unknown.
    case ignoredDwell
    /// A slot is discarded at its mailbox before its content is durable at the receiver.
    case earlyDiscard

    var needsMailbox: Bool { self == .ignoredDwell || self == .earlyDiscard }
}
