import Logging
import Messaging
import NIOCore
import NodeRuntime
import SimulatedDisk
import Store

extension Node {
    /// A node on a simulated disk, without a network, that has not been started.
    /// - Parameter listen: where it listens once it is started.
    /// - Parameter change: other changes of its environment, such as the time.
    static func quiet(
        home: String, on disk: SimulatedDisk, _ loop: any EventLoop, listen: [Messaging.Endpoint] = [],
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
        return try await loop.submit { [options, environment, peers] in
            try Node(
                options, configuration: NodeConfiguration(name: nil, listen: [], advertise: []), peers: peers,
                environment: environment, loop: loop,
                log: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }))
        }.get()
    }
}
