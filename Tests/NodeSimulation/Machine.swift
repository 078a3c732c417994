import Cryptography
import Logging
import Messaging
import NIOCore
import NodeRuntime
import SimulatedDisk
import Simulation
import Store
import Transport

/// A machine with its disk, clocks and addresses, and at times a running node.
final class Machine: @unchecked Sendable {
    static let home = "/home"
    private static let port: UInt16 = 7_440

    let index: Int
    /// Its outgoing frames are forged: see ``HostileMember``.
    let isHostile: Bool
    let disk: MachineDisk
    let grace: Milliseconds
    var capacity: Int
    /// Its lifetime policy and cap for conversations without their own.
    private let policy: LifetimePolicy
    private let cap: LifetimeCap
    private unowned let world: NodeSimulation
    private(set) var loop: SimulatedEventLoop?
    private(set) var node: Node?
    private(set) var transport: LinkTransport?
    private(set) var incarnation = 0
    /// Offset of its `CLOCK_REALTIME` to the world's time, in milliseconds.
    var clockOffset: Milliseconds {
        didSet {
            furthestOffset = max(furthestOffset, clockOffset)
            if clockOffset > oldValue { steppedAt = world.time.milliseconds }
        }
    }
    /// The world's time when this clock last stepped forward.
    private(set) var steppedAt: Int64?
    /// Greatest offset since the last look at the node's time, or the start.
    private var furthestOffset: Milliseconds
    private var bootedAt: Int64 = 0
    var place = 0
    /// Its node's time and the world's, when the node was last active.
    private(set) var lastSeen: (node: Messaging.Timestamp, world: Int64)?
    /// Its disk has failed, so the saved clock mark may be old.
    var diskHasFailed = false
    /// Reads have failed, too: stored data may be hidden until the next start.
    var readsHaveFailed = false
    /// Milliseconds that its node's clock lost, which is permitted while it is off.
    private(set) var lostTime: Milliseconds = 0
    /// World times of the last start and the last unlock.
    private(set) var startedAt: Int64 = 0
    var unlockedAt: Int64 = 0
    /// The last start failed while its disk was failing.
    private(set) var isKeptFromStarting = false
    var contactCard: ContactCard?
    var slowness: Int64 = 20

    init(
        _ index: Int, world: NodeSimulation, isHostile: Bool, clockOffset: Milliseconds, capacity: Int,
        grace: Milliseconds, policy: LifetimePolicy, cap: LifetimeCap
    ) {
        (self.index, self.world, self.isHostile, self.clockOffset) = (index, world, isHostile, clockOffset)
        furthestOffset = clockOffset
        (self.capacity, self.grace, self.policy, self.cap) = (capacity, grace, policy, cap)
        disk = MachineDisk(
            SimulatedDisk(), mistake: world.options.mistake, time: world.time, dice: .seeded(world.dice.next()))
        disk.powerCut = { [unowned self] in
            world.network.mute.insert(index)
            world.time.plan(inMilliseconds: 0) { [unowned self] in
                if isUp {
                    world.crash(self, isPowerCut: true)
                } else {
                    // The power failed during the start, which has reported it.
                    world.network.mute.remove(index)
                }
            }
        }
    }

    var isUp: Bool { node != nil }
    var lastSeenNow: Messaging.Timestamp? { ask { $0.currentTime } }
    var host: String { "10.\(index).\(place).1" }
    var endpoint: Messaging.Endpoint { Messaging.Endpoint(host: host, port: Self.port) }

    func initialize() {
        do { try disk.makeHome(Self.home) } catch {
            world.violation("machine \(index) could not make a home: \(error)")
        }
        disk.isInUse = true
    }

    private func passed(_ milliseconds: Int64) -> Int64 {
        world.options.mistake == .slowClock ? milliseconds / 10 : milliseconds
    }

    var realtime: Milliseconds { NodeSimulation.epoch + passed(world.time.milliseconds) + clockOffset }
    private var boottime: Milliseconds {
        passed(world.time.milliseconds - bootedAt) * (world.options.mistake == .fastClock ? 2 : 1)
    }

    private var environment: Environment {
        var result = Environment()
        result.disk = disk
        result.lan = nil
        result.encapsulation = .repeating
        result.gateways = nil
        result.datagrams = MachineDatagrams(datagrams: world.datagrams, machine: index)
        result.network = MachineNetwork(network: world.network, machine: index, host: host)
        result.realtime = { [unowned self] in realtime }
        result.boottime = { [unowned self] in boottime }
        result.space = { _ in DiskSpace(total: 1 << 40, available: 1 << 39) }
        let loop = loop
        result.commitThread = .later { [unowned self] work in
            world.time.plan(inMilliseconds: 1 + world.roll(slowness), on: loop, work)
        }
        return result
    }

    func start() -> (any Error)? {
        precondition(node == nil)
        incarnation += 1
        // Offsets while the node was off do not count.
        furthestOffset = clockOffset
        let loop = SimulatedEventLoop(world.time)
        self.loop = loop
        var options = Node.Options(home: Self.home, version: "simulated")
        options.capacity = capacity
        options.sessionGrace = grace
        options.isRendezvous = !world.roads.isEmpty && index == Roads.rendezvous
        options.isMailbox = index == world.mailbox?.index
        var configuration = NodeConfiguration(name: nil, listen: [endpoint], advertise: [], policy: policy.text)
        configuration.cap = cap.text
        let failure: (any Error)? = loop.turn {
            do {
                let node = try Node(
                    options, configuration: configuration, peers: world.peers(of: self), environment: environment,
                    loop: loop, log: Logger(label: "simulated", factory: { _ in SwiftLogNoOpLogHandler() }))
                self.node = node
                try begin(node)
                return nil
            } catch { return error }
        }
        if let failure {
            isKeptFromStarting = disk.isInTrouble
            // The node has read its clock, so this counts as a start.
            noteTime(afterStart: true)
            crash(isPowerCut: false)
            return failure
        }
        startedAt = world.time.milliseconds
        noteTime(afterStart: true)
        return nil
    }

    func forget() {
        guard let node, let loop else { return }
        silence()
        loop.die()
        loop.turn { node.assumeIsolated { $0.lock() } }
        Graveyard.bury(node)
        self.node = nil
        self.loop = nil
        transport = nil
    }

    private func begin(_ node: Node) throws {
        let transport = try node.assumeIsolated { node in SendableBox(try node.prepare(passphrase: nil)) }.value
        self.transport = transport
        overhear(transport)
        let incarnation = incarnation
        let told: @Sendable (EventLog.Entry) -> Void = { [unowned self] entry in
            guard isUp, incarnation == self.incarnation, !world.network.mute.contains(index) else { return }
            for _ in 0..<(world.options.mistake == .shownTwice ? 2 : 1) { world.saw(entry.event, self, incarnation) }
        }
        let made = transport.listen(host: endpoint.host, port: Int(endpoint.port))
        var listeners: [TCPListener] = []
        made.assumeIsolated().whenSuccess { listeners.append($0.tcp) }
        let all = listeners
        try node.assumeIsolated { node in
            _ = node.watch(told)
            try node.begin(listeners: all)
        }
    }

    /// Passes arriving frames, already opened, through the world's checks.
    private func overhear(_ transport: LinkTransport) {
        let inner = transport.events.frame
        transport.events.frame = { [unowned self] connection, bytes in
            for frame in world.passed(bytes, from: connection.peer.publicKey, to: self) { inner(connection, frame) }
        }
        let opened = transport.events.linkOpened
        transport.events.linkOpened = { [unowned self] connection in
            if connection.isRelayed { world.count("relayed links") }
            if connection.isPunched { world.count("punched links") }
            opened(connection)
        }
        transport.events.rejected = { [unowned self] reason in world.count("rejected: \(reason)") }
    }

    func silence() {
        transport?.events = TransportEvents()
        transport?.abandonDials()
    }

    func crash(isPowerCut: Bool) {
        noteTime(afterStart: false)
        let (deadNode, deadLoop) = (node, loop)
        silence()
        loop?.die()
        node = nil
        transport = nil
        loop = nil
        if !isPowerCut {
            // The kernel keeps everything that was written.
            disk.platter.synchronizeAll()
        } else {
            bootedAt = world.time.milliseconds
        }
        disk.platter.reboot(seed: world.dice.next())
        disk.mend()
        disk.restart()
        if let deadNode, let deadLoop {
            // It cannot reach its disk any more; its memory is released.
            deadLoop.turn { deadNode.assumeIsolated { $0.lock() } }
            Graveyard.bury(deadNode)
        }
    }

    /// Stops the process in order, like SIGTERM.
    func stop(_ whenStopped: @escaping () -> Void) {
        nonisolated(unsafe) let whenStopped = whenStopped
        ask { $0.stop { whenStopped() } }
    }

    /// Runs `body` on the node's loop; `nil` while the node is down.
    @discardableResult func ask<Result>(_ body: (isolated Node) -> Result?) -> Result? {
        guard let node, let loop else { return nil }
        nonisolated(unsafe) var result: Result?
        nonisolated(unsafe) let body = body
        loop.turn { node.assumeIsolated { node in result = body(node) } }
        return result
    }

    /// - Parameter text: The name of a conversation or of its inbox.
    func conversation(_ text: String) -> Conversation? { ask { try? $0.conversation(text) } }

    func when<Value>(_ future: EventLoopFuture<Value>?, _ body: @escaping (Value) -> Void) {
        guard let loop, let future else { return }
        loop.turn { future.assumeIsolated().whenSuccess(body) }
    }

    /// The node's clock must not go back while it runs, nor lose more time than it was off. It must not run ahead of
    /// the machine's clock either, which would destroy messages too early.
    func noteTime(afterStart: Bool) {
        guard let now = ask({ $0.currentTime }) else { return }
        let world = world.time.milliseconds
        let shown = Messaging.Timestamp(milliseconds: NodeSimulation.epoch + passed(world) + furthestOffset)
        let latest = lastSeen.map { max(shown, $0.node + (world - $0.world)) } ?? shown
        if now - latest > 1 {
            self.world.violation("I3 the clock of machine \(index) runs ahead by \(now - latest) ms")
        }
        furthestOffset = clockOffset
        if let lastSeen, world > lastSeen.world || afterStart {
            let expected = lastSeen.node + (world - lastSeen.world)
            let lost = expected - now
            if afterStart, lost > 0 {
                lostTime += lost
                let allowed = world - lastSeen.world + 90 * .second
                if lost > allowed, !diskHasFailed {
                    self.world.violation("I3 the clock of machine \(index) lost \(lost) ms, and was off for less")
                }
            } else if !afterStart, lost > 1 {
                self.world.violation("I3 the clock of machine \(index) fell behind by \(lost) ms")
            }
        }
        if afterStart { (diskHasFailed, readsHaveFailed) = (false, false) }
        lastSeen = (now, world)
    }
}
