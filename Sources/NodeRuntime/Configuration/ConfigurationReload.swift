import Messaging
import Transport

/// Reloads `config.json` and `peers.json` into the running node, completely or not at all.
package enum ConfigurationReload {
    /// The settings that differ from before.
    package struct Report: Sendable {
        /// In force now.
        package var changed: [NodeConfiguration.CodingKeys] = []
        /// In force from the next start on.
        package var pending: [NodeConfiguration.CodingKeys] = []
        package var overridden: [NodeConfiguration.CodingKeys] = []
        package var arePeersChanged = false
        package var configuration: NodeConfiguration
    }

    /// Retries when the file changes during the reload.
    private static let attempts = 4

    /// - Parameter check: additional checks of the program.
    /// - Throws: ``HomeFileError``, a `ListenFailure`, or the error of `check`; then nothing has changed.
    package static func run(on node: isolated Node, checking check: @Sendable (NodeConfiguration) throws -> Void)
        async throws -> Report
    {
        let services = node.services
        let path = "\(services.options.home)/\(NodeConfiguration.fileName)"
        for _ in 0..<attempts {
            let bytes = try HomeFile.read(path)
            let file = try NodeConfiguration.parse(bytes, path: path)
            try check(file)
            _ = try PeersFile.load(home: services.options.home)
            let isListening = services.options.listen == nil && file.listen != services.configuration.listen
            let change = isListening ? try await ListenerChange(to: file.listen, on: node.shell.listening) : nil
            guard !services.isStopped else {
                await change?.undo()
                throw NodeError.stopping
            }
            guard (try? HomeFile.read(path)) == bytes else {
                await change?.undo()
                continue
            }
            let arePeersChanged: Bool
            do throws(NodeError) { arePeersChanged = try node.shell.peers.reload() } catch {
                await change?.undo()
                throw error
            }
            await change?.end()
            guard !services.isStopped else { throw NodeError.stopping }
            return apply(file, arePeersChanged: arePeersChanged, to: node)
        }
        throw HomeFileError(kind: .busy, path: path, line: nil, reason: "another program changes it again and again")
    }

    private static func apply(_ file: NodeConfiguration, arePeersChanged: Bool, to node: isolated Node) -> Report {
        let services = node.services
        let before = services.configuration
        var report = Report(arePeersChanged: arePeersChanged, configuration: file)
        var running = file
        for setting in NodeConfiguration.CodingKeys.allCases where setting.differs(before, file) {
            if services.options.overrides(setting) {
                report.overridden.append(setting)
            } else if setting.isFixed {
                setting.copy(from: before, to: &running)
                report.pending.append(setting)
            } else {
                report.changed.append(setting)
            }
        }
        services.take(running)
        perform(report.changed, on: node)
        return report
    }

    /// Most settings are read at their use and need no action here.
    private static func perform(_ changed: [NodeConfiguration.CodingKeys], on node: isolated Node) {
        let services = node.services
        if changed.contains(.capacity) {
            let capacity = services.configuration.capacity ?? Limits.inboxCapacity
            node.core.machine.setCapacity(capacity, now: services.now)
            node.core.schedule()
        }
        if changed.contains(.storage) {
            services.storage.room.limit(to: services.configuration.storage ?? NodeConfiguration.Storage())
        }
        if changed.contains(.rendezvous) || changed.contains(.mailbox) { node.shell.peerServices.changed() }
        if changed.contains(.listen) || changed.contains(.advertise) { node.shell.network.listenersChanged() }
    }
}

extension NodeOptions {
    func overrides(_ setting: NodeConfiguration.CodingKeys) -> Bool {
        switch setting {
        case .listen: listen != nil
        case .capacity: capacity != nil
        case .discover: discover != nil
        case .datagrams: datagrams != nil
        case .mapPorts: mapPorts != nil
        case .logLevel: hasLogLevel
        case .metrics: hasMetrics
        case .name, .advertise, .policy, .cap, .attachmentByteCount, .readReceipts, .storage, .hooks, .rendezvous,
            .mailbox:
            false
        }
    }
}

extension NodeConfiguration.CodingKeys {
    /// Settings that are read only at the start.
    var isFixed: Bool {
        switch self {
        case .discover, .datagrams, .mapPorts, .metrics: true
        case .name, .listen, .advertise, .policy, .capacity, .cap, .attachmentByteCount, .readReceipts, .storage,
            .hooks, .rendezvous, .mailbox, .logLevel:
            false
        }
    }

    func differs(_ one: NodeConfiguration, _ other: NodeConfiguration) -> Bool {
        var copy = one
        self.copy(from: other, to: &copy)
        return copy != one
    }

    func copy(from one: NodeConfiguration, to other: inout NodeConfiguration) {
        switch self {
        case .name: other.name = one.name
        case .listen: other.listen = one.listen
        case .advertise: other.advertise = one.advertise
        case .policy: other.policy = one.policy
        case .capacity: other.capacity = one.capacity
        case .cap: other.cap = one.cap
        case .attachmentByteCount: other.attachmentByteCount = one.attachmentByteCount
        case .readReceipts: other.readReceipts = one.readReceipts
        case .storage: other.storage = one.storage
        case .discover: other.discover = one.discover
        case .hooks: other.hooks = one.hooks
        case .datagrams: other.datagrams = one.datagrams
        case .rendezvous: other.rendezvous = one.rendezvous
        case .mailbox: other.mailbox = one.mailbox
        case .mapPorts: other.mapPorts = one.mapPorts
        case .logLevel: other.logLevel = one.logLevel
        case .metrics: other.metrics = one.metrics
        }
    }
}
