import Cryptography
import Glibc
import Logging
import Messaging
import NIOCore
import NIOPosix
import NodeRuntime
import SimulatedDisk
import Store
import Synchronization

/// A node on a simulated disk and a test clock.
final class NodeMachine: Sendable {
    static let home = "/nowhere"
    private static let begin: Milliseconds = 1_700_000_000_000
    let disk: SimulatedDisk
    private let seconds: Mutex<Milliseconds>
    private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)

    /// - Parameter passphrase: `nil` for a key file.
    init(passphrase: String? = nil) throws {
        disk = SimulatedDisk()
        seconds = Mutex(0)
        try Store.create(
            home: Self.home, protection: passphrase == nil ? .keyFile : .passphrase,
            passphrase: passphrase.map { SecretBytes(copying: $0.utf8) }, fileSystem: disk,
            journal: SimulatedDisk.journalByteCount)
    }

    /// The same machine after a power cut, which keeps what was durable.
    init(afterPowerCut machine: NodeMachine) {
        disk = machine.disk.durableCopy()
        seconds = Mutex(machine.seconds.withLock { $0 })
    }

    var now: Timestamp { Timestamp(milliseconds: Self.begin + seconds.withLock { $0 } * .second) }

    var loop: any EventLoop { group.next() }

    /// - Parameter change: other changes of its environment.
    func node(listen: [Messaging.Endpoint] = [], _ change: (inout Environment) -> Void = { _ in }) async throws -> Node
    {
        try await Node.quiet(home: Self.home, on: disk, loop, listen: listen) {
            $0.realtime = { [self] in Self.begin + seconds.withLock { $0 } * .second }
            $0.boottime = { [self] in seconds.withLock { $0 } * .second }
            change(&$0)
        }
    }

    static func started() async throws -> (NodeMachine, Node) {
        let machine = try NodeMachine()
        return (machine, try await machine.start())
    }

    func start() async throws -> Node {
        let node = try await node()
        try await node.unlock(passphrase: nil)
        return node
    }

    /// The disk refuses its call number `call`, and all later ones if `isLasting`.
    func refuse(from call: Int, isLasting: Bool = true) {
        disk.with { $0.fault = SimulatedDisk.Fault(at: call, code: EIO, isLasting: isLasting) }
    }

    func mend() { disk.with { $0.fault = nil } }

    func wait(seconds more: Milliseconds) { seconds.withLock { $0 += more } }

    func wait(seconds more: Milliseconds, reaping node: Node) async {
        wait(seconds: more)
        await node.reapNow()
    }

    func end(_ node: Node) async throws {
        await node.stop()
        try await end()
    }

    func end() async throws { try await group.shutdownGracefully() }
}

extension Node {
    /// A node on a simulated disk, without a network, that has not been started.
    /// - Parameter listen: where it listens once it is started.
    /// - Parameter change: other changes of its environment, such as the time.
    static func quiet(
        home: String, on disk: SimulatedDisk, _ loop: any EventLoop, listen: [Messaging.Endpoint] = [],
        configuration: NodeConfiguration = NodeConfiguration(name: nil, listen: [], advertise: []),
        peers: PeersFile = PeersFile(), _ configure: (inout Node.Options) -> Void = { _ in },
        _ change: (inout Environment) -> Void
    ) async throws -> Node {
        var environment = Environment()
        environment.disk = disk
        environment.commitThread = .caller
        environment.gateways = nil
        environment.lan = nil
        environment.space = { _ in DiskSpace(total: 1 << 40, available: 1 << 39) }
        change(&environment)
        var options = Node.Options(home: home, version: "test")
        options.listen = listen
        configure(&options)
        return try await loop.submit { [options, environment] in
            try Node(
                options, configuration: configuration, peers: peers, environment: environment, loop: loop,
                log: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }))
        }.get()
    }
}
