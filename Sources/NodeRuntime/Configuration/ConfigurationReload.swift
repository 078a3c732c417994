import Messaging

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
        throw HomeFileError(kind: .busy, path: path, reason: "another program changes it again and again")
    }

    private static func apply(_ file: NodeConfiguration, arePeersChanged: Bool, to node: isolated Node) -> Report {
        let services = node.services
        let before = services.configuration
        var report = Report(arePeersChanged: arePeersChanged, configuration: file)
        var running = file
        for setting in Setting.all where setting.differs(before, file) {
            if setting.isOverridden(services.options) {
                report.overridden.append(setting.key)
            } else if setting.isFixed {
                setting.copy(before, &running)
                report.pending.append(setting.key)
            } else {
                report.changed.append(setting.key)
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

/// A setting of `config.json`, as a reload treats it.
private struct Setting {
    let key: NodeConfiguration.CodingKeys
    /// It is read only at the start.
    let isFixed: Bool
    let isOverridden: (NodeOptions) -> Bool
    let differs: (NodeConfiguration, NodeConfiguration) -> Bool
    let copy: (_ from: NodeConfiguration, _ to: inout NodeConfiguration) -> Void

    init<Value: Equatable>(
        _ key: NodeConfiguration.CodingKeys, _ path: WritableKeyPath<NodeConfiguration, Value>, isFixed: Bool = false,
        isOverridden: @escaping (NodeOptions) -> Bool = { _ in false }
    ) {
        (self.key, self.isFixed, self.isOverridden) = (key, isFixed, isOverridden)
        differs = { $0[keyPath: path] != $1[keyPath: path] }
        copy = { $1[keyPath: path] = $0[keyPath: path] }
    }

    static var all: [Setting] {
        [
            Setting(.name, \.name), Setting(.listen, \.listen) { $0.listen != nil }, Setting(.advertise, \.advertise),
            Setting(.policy, \.policy), Setting(.capacity, \.capacity) { $0.capacity != nil }, Setting(.cap, \.cap),
            Setting(.attachmentByteCount, \.attachmentByteCount), Setting(.readReceipts, \.readReceipts),
            Setting(.storage, \.storage), Setting(.discover, \.discover, isFixed: true) { $0.discover != nil },
            Setting(.hooks, \.hooks), Setting(.datagrams, \.datagrams, isFixed: true) { $0.datagrams != nil },
            Setting(.rendezvous, \.rendezvous), Setting(.mailbox, \.mailbox),
            Setting(.mapPorts, \.mapPorts, isFixed: true) { $0.mapPorts != nil },
            Setting(.logLevel, \.logLevel) { $0.hasLogLevel },
            Setting(.metrics, \.metrics, isFixed: true) { $0.hasMetrics },
        ]
    }
}
