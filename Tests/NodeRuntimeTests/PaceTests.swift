import Messaging
import NIOCore
import NIOPosix
import SimulatedDisk
import Store
import Synchronization
import Testing
import Transport

@testable import NodeRuntime

@Suite("Pace") struct PaceTests {
    private let now = Timestamp(milliseconds: 1_800_000_000_000)

    @Test func `a single expiry is handled at its time, and close later ones together`() {
        var pace = Pace()
        #expect(pace.expiry(now) == now)
        pace.expired(at: now)
        #expect(pace.expiry(now + 1) == now + Pace.expiryPause)
        #expect(pace.expiry(now + Pace.expiryPause) == now + Pace.expiryPause)
        #expect(pace.expiry(now + .second) == now + .second)
        // A thousand expiries a millisecond apart take as many ticks as there are pauses.
        var ticks = 0
        var time = now + 1
        while time <= now + 1_000 {
            time = pace.expiry(time)
            pace.expired(at: time)
            ticks += 1
            time = time + 1
        }
        #expect(ticks == 10)
    }

    @Test func `a node asks for free disk space at most once per second, however many ticks run`() async throws {
        let machine = Machine()
        try await machine.withNode { node in
            let before = machine.askedCount
            for _ in 0..<50 { await node.reapNow() }
            #expect(machine.askedCount <= before + 1)
            for _ in 0..<5 {
                machine.wait(.second)
                for _ in 0..<10 { await node.reapNow() }
            }
            #expect((before + 5...before + 6).contains(machine.askedCount))
        }
    }

    @Test func `a tick with nothing due begins no turn`() async throws {
        let machine = Machine()
        try await machine.withNode { node in
            var counts: [Int] = []
            for _ in 0..<9 {
                let before = machine.readCount
                await node.reapNow()
                counts.append(machine.readCount - before)
            }
            // The tick's own, the probe's and the timer's. Other work may come between.
            #expect(counts.min()! <= 3, "\(counts)")
        }
    }

    @Test func `interfaces are listed once per minute if the system reports changes, else at every look`() async throws
    {
        for isTold in [true, false] {
            let machine = Machine(isTold: isTold)
            try await machine.withNode { node in
                await node.reapNow()
                // Until the socket that reports changes is open.
                var lists = 0
                for _ in 0..<1_000 where isTold && machine.network.listCount != lists {
                    lists = machine.network.listCount
                    machine.wait(5 * .second)
                    await node.reapNow()
                }
                machine.wait(.minute)
                await node.reapNow()
                let before = machine.network.listCount
                for _ in 0..<10 {
                    machine.wait(5 * .second)
                    await node.reapNow()
                }
                #expect(machine.network.listCount == before + (isTold ? 0 : 10))
                machine.wait(11 * .second)
                await node.reapNow()
                #expect(machine.network.listCount == before + (isTold ? 1 : 11))
            }
        }
    }
}

/// The system's network, which counts how often its interfaces are listed.
private final class CountingNetwork: LanNetwork {
    private let lists = Mutex(0)
    private let isTold: Bool
    var listCount: Int { lists.withLock { $0 } }

    init(isTold: Bool) { self.isTold = isTold }

    func interfaces() -> [LanInterface]? {
        lists.withLock { $0 += 1 }
        return []
    }

    func watch(on loop: any EventLoop, changed: @escaping @Sendable () -> Void) -> EventLoopFuture<any Channel> {
        isTold ? Sockets().watch(on: loop) {} : loop.makeFailedFuture(ChannelError.operationUnsupported)
    }

    func open(
        isIPv4: Bool, port: UInt16?, on loop: any EventLoop,
        receive: @escaping @Sendable ((DatagramAddress, [UInt8])?) -> Void
    ) throws(ListenFailure) -> any LanSocket { throw .system(Endpoint(host: "", port: 0), 0) }
}

/// A test clock, and a counter of queries for free disk space.
private final class Machine: Sendable {
    private let time = Mutex<Milliseconds>(0)
    private let asked = Mutex(0)
    private let reads = Mutex(0)
    let network: CountingNetwork

    init(isTold: Bool = true) { network = CountingNetwork(isTold: isTold) }

    var askedCount: Int { asked.withLock { $0 } }
    /// How often the node read its clock.
    var readCount: Int { reads.withLock { $0 } }
    func wait(_ more: Milliseconds) { time.withLock { $0 += more } }

    func withNode(_ body: (Node) async throws -> Void) async throws {
        let disk = SimulatedDisk()
        try disk.makeHome()
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let node = try await Node.quiet(home: "/home", on: disk, group.next()) {
            $0.realtime = { [self] in 1_700_000_000_000 + time.withLock { $0 } }
            $0.boottime = { [self] in
                reads.withLock { $0 += 1 }
                return time.withLock { $0 }
            }
            $0.lan = network
            $0.space = { [self] _ in
                asked.withLock { $0 += 1 }
                return DiskSpace(total: 1 << 40, available: 1 << 39)
            }
        }
        try await node.start(passphrase: nil)
        try await body(node)
        await node.stop()
        try await group.shutdownGracefully()
    }
}
