import Dispatch
import Logging
import Messaging
import NIOCore
import NIOPosix
import NodeRuntime
import SimulatedDisk
import Store
import Synchronization
import Testing

@testable import Transport

private typealias Endpoint = Messaging.Endpoint

private final class StubGateways: GatewayNetwork {
    struct Record {
        var questions: [PortMappingStateMachine.Question] = []
        var keys: Set<[UInt8]> = []
        var removed: [Mapping] = []
        var looks = 0
        /// Every answer, even to a removal, waits for this signal.
        var gate: DispatchSemaphore?
    }

    let record = Mutex(Record())

    func routes() -> [GatewayRoute] {
        record.withLock { $0.looks += 1 }
        return [GatewayRoute(gateway: IPAddress(192, 168, 1, 1), interface: 2, locals: [IPAddress(127, 0, 0, 1)])]
    }

    func ask(_ question: PortMappingStateMachine.Question, key: [UInt8], isGivenUp: @escaping @Sendable () -> Bool)
        -> PortMappingStateMachine.Outcome
    {
        record.withLock {
            $0.questions.append(question)
            $0.keys.insert(key)
        }
        return .granted(MappingGrant(outer: IPAddress(5, 5, 5, 2), tcp: 4_242, udp: 4_242, lifetime: 3_600))
    }

    func remove(_ mapping: Mapping, key: [UInt8]) {
        if let gate = record.withLock({ $0.gate }) {
            gate.wait()
            gate.signal()
        }
        record.withLock { $0.removed.append(mapping) }
    }
}

@Suite("Port mapping of the shell") struct PortMappingShellTests {
    private final class Machine: Sendable {
        private let disk = SimulatedDisk()
        let gateways = StubGateways()
        private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)

        init() throws { try disk.makeHome() }

        func start(mapPorts: Bool?, configured: Bool? = nil, advertise: [Endpoint] = []) async throws -> Node {
            var configuration = NodeConfiguration(name: nil, listen: [], advertise: advertise)
            configuration.mapPorts = configured
            let node = try await Node.quiet(
                home: "/home", on: disk, group.next(), listen: [Endpoint(host: "127.0.0.1", port: 0)],
                configuration: configuration, { $0.mapPorts = mapPorts }, { $0.gateways = gateways })
            try await node.start(passphrase: nil)
            return node
        }

        func end() async throws { try await group.shutdownGracefully() }
    }

    /// Waits for the mapping that the node's own thread makes.
    private func mapped(_ node: Node) async throws -> PortMappingState? {
        for _ in 0..<2_000 {
            if let state = await node.portMappings?.first, !state.endpoints.isEmpty { return state }
            try await node.loop.scheduleTask(in: .milliseconds(5)) {}.futureResult.get()
        }
        return nil
    }

    @Test("a mapped address is advertised first, the same key is used after a restart, and a stop removes the mapping")
    func mapping() async throws {
        let machine = try Machine()
        for run in 1...2 {
            // Enabled by the command line, then by the configuration.
            let node = try await machine.start(
                mapPorts: run == 1 ? true : nil, configured: run == 2,
                advertise: [Endpoint(host: "desk.example", port: 9)])
            let state = try await mapped(node)
            #expect(state?.endpoints == [Endpoint(host: "5.5.5.2", port: 4_242)])
            let card = try await node.card()
            #expect(
                card.endpoints == [Endpoint(host: "5.5.5.2", port: 4_242), Endpoint(host: "desk.example", port: 9)])
            let port = await node.listening[0].port
            await node.stop()
            let record = machine.gateways.record.withLock { ($0.questions.count, $0.removed, $0.keys) }
            #expect(record.0 == run && record.1.count == run && record.1.last?.place.port == port)
            #expect(record.2.count == 1 && record.2.first?.count == 32)
        }
        try await machine.end()
    }

    @Test("without the option, or disabled by it, no gateway is sought or asked by any start, tick or stop") func off()
        async throws
    {
        let machine = try Machine()
        for (mapPorts, configured) in [(nil, nil), (false, nil), (false, true)] as [(Bool?, Bool?)] {
            let node = try await machine.start(mapPorts: mapPorts, configured: configured)
            await node.reapNow()
            #expect(await node.portMappings == nil)
            await node.stop()
        }
        let record = machine.gateways.record.withLock { ($0.looks, $0.questions.count, $0.removed.count) }
        #expect(record == (0, 0, 0))
        try await machine.end()
    }

    @Test func `a gateway that does not end its answer delays a stop by two seconds at most`() async throws {
        let machine = try Machine()
        let node = try await machine.start(mapPorts: true)
        #expect(try await mapped(node) != nil)
        let gate = DispatchSemaphore(value: 0)
        machine.gateways.record.withLock { $0.gate = gate }
        let begin = ContinuousClock.now
        // The clock is read on the node's loop: on a slow machine this task may hear of the end much later.
        let stopped = node.loop.makePromise(of: ContinuousClock.Instant.self)
        await node.stop { stopped.succeed(ContinuousClock.now) }
        let time = try await stopped.futureResult.get() - begin
        gate.signal()
        #expect(time >= .seconds(1.5))
        // The stop ended after 2 s without the gateway's answer (T-87).
        #expect(time < .seconds(20))
        try await machine.end()
    }
}
