import Messaging
import NIOCore
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
        let machine = try NodeMachine()
        let asked = Mutex(0)
        let node = try await machine.node { environment in
            environment.space = { _ in
                asked.withLock { $0 += 1 }
                return DiskSpace(total: 1 << 40, available: 1 << 39)
            }
        }
        try await node.start(passphrase: nil)
        let before = asked.withLock { $0 }
        for _ in 0..<50 { await node.reapNow() }
        #expect(asked.withLock { $0 } <= before + 1)
        for _ in 0..<5 {
            machine.wait(seconds: 1)
            for _ in 0..<10 { await node.reapNow() }
        }
        #expect((before + 5...before + 6).contains(asked.withLock { $0 }))
        try await machine.end(node)
    }

    @Test func `interfaces are listed once per minute if the system reports changes, else at every look`() async throws
    {
        for isTold in [true, false] {
            let network = CountingNetwork(isTold: isTold)
            let machine = try NodeMachine()
            let node = try await machine.node { $0.lan = network }
            try await node.start(passphrase: nil)
            await node.reapNow()
            // Until the socket that reports changes is open.
            var lists = 0
            for _ in 0..<1_000 where isTold && network.listCount != lists {
                lists = network.listCount
                await machine.wait(seconds: 5, reaping: node)
            }
            await machine.wait(seconds: 60, reaping: node)
            let before = network.listCount
            for _ in 0..<10 { await machine.wait(seconds: 5, reaping: node) }
            #expect(network.listCount == before + (isTold ? 0 : 10))
            await machine.wait(seconds: 11, reaping: node)
            #expect(network.listCount == before + (isTold ? 1 : 11))
            try await machine.end(node)
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
