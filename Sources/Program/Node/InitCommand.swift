import ArgumentParser
import Control
import Cryptography
import Glibc
import Logging
import Messaging
import NIOCore
import NIOPosix
import NodeRuntime
import Store
import Transport

struct InitCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "init", abstract: "Create a node. Never asks anything.",
        discussion: """
            Examples:
              mayfly init --name desk --passphrase-file /root/mayfly.pass
              mayfly init --advertise tcp://desk.example.org:7440

            The node listens on port 7440 of all addresses, IPv4 and IPv6, unless --listen says otherwise. Without a \
            passphrase the keys are protected by a key file that only you can read. The output names the protection.
            """)

    @Option(help: "Your name, in the contact card and for the members of new conversations.") var name: String?
    @Option(
        parsing: .upToNextOption,
        help: ArgumentHelp(
            "Endpoints to listen on; tcp://0.0.0.0:7440 and tcp://[::]:7440 by default.", valueName: "tcp://host:port"))
    var listen: [String] = []
    @Option(
        parsing: .upToNextOption, help: ArgumentHelp("Endpoints to announce to others instead.", valueName: "endpoint"))
    var advertise: [String] = []
    @Option(capacity: "How many inboxes to keep awake, 1 to 10000; 1024 by default.") var capacity: Int?
    @Option(
        parsing: .unconditional,
        help: ArgumentHelp(
            "Find members on this network by multicast: lan, lan:eth0,wlan0 or off; off by default.",
            valueName: "networks")) var discover: String?
    @Option(
        help: ArgumentHelp("Protect the keys with the passphrase in this file.", valueName: "file"), completion: .file()
    ) var passphraseFile: String?
    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        let home = try global.resolvedHome()
        if let name, !PeersFile.isName(name) {
            throw ControlError(
                .usage, "--name: `\(name)` is not a name", hint: "use 1 to 64 letters, digits, `.`, `_` or `-`")
        }
        let listen = listen.isEmpty ? ["tcp://0.0.0.0:7440", "tcp://[::]:7440"] : listen
        var configuration = NodeConfiguration(
            name: name, listen: try EndpointOption.endpoints(listen, option: "--listen"),
            advertise: try EndpointOption.endpoints(advertise, option: "--advertise"), capacity: capacity)
        configuration.discover = try checkedDiscovery(discover)?.description
        let created = try NodeSetup.initialise(
            home, configuration, passphraseFile: try Passphrase.file(option: passphraseFile), terminal)
        let reachable = ReachableAddresses(configuration, Sockets().interfaces() ?? [])
        // Multicast finds link-local listeners, which are not advertised.
        let isFound = configuration.discover ?? "off" != "off"
        if !isFound, let note = NetworkView.linkLocalNote(reachable) { terminal.warn(note) }
        guard !terminal.json else { return terminal.result(created) }
        terminal.fields([
            ("home", created["home"]?.stringValue),
            ("listen", created["listen"]?.arrayValue?.compactMap(\.stringValue).joined(separator: " ")),
            ("contact card", created["contactCard"]?.stringValue), ("protection", created["protection"]?.stringValue),
        ])
        terminal.note("start it with `mayfly run`")
    }
}

/// `mayfly init`: a home with its keystore, configuration and contact inbox.
enum NodeSetup {
    /// - Parameter passphraseFile: `nil` for a key file.
    /// - Returns: `{home, listen, contactCard, protection}`.
    static func initialise(
        _ home: String, _ configuration: NodeConfiguration, passphraseFile: String?, _ terminal: Terminal
    ) throws -> JSONValue {
        umask(0o077)
        do {
            guard let passphraseFile else { return try make(home, configuration, .keyFile, nil) }
            return try Passphrase.withBytes(option: passphraseFile, terminal) { bytes in
                // A user may have to type it later.
                guard String(validating: bytes, as: UTF8.self) != nil else {
                    throw ControlError(.usage, "the passphrase is not UTF-8 text")
                }
                return try make(home, configuration, .passphrase, SecretBytes(copying: bytes))
            }
        } catch { throw controlError(error) }
    }

    private static func makeParents(of home: String) throws(ControlError) {
        var path = ""
        for part in home.split(separator: "/").dropLast() {
            path += "/\(part)"
            let target = home.hasPrefix("/") ? path : String(path.dropFirst())
            if mkdir(target, 0o700) != 0, errno != EEXIST {
                throw ControlError(
                    .failed, "\(target): \(String(cString: strerror(errno)))", hint: "name another --home")
            }
        }
    }

    /// Journal size of a new home: 8 MiB, but at most a sixteenth of the free disk space.
    private static func journalByteCount(for home: String) -> Int {
        let parent = home.lastIndex(of: "/").map { String(home[...$0]) } ?? "."
        guard let space = DiskSpace(of: home) ?? DiskSpace(of: parent) else { return Store.journalByteCount }
        let share = Int(clamping: space.available / 16) & ~0xFFFF
        return min(Store.journalByteCount, max(Store.smallestJournalByteCount, share))
    }

    /// Creates the store, or opens the one of an interrupted `init`, recognised by its missing configuration.
    /// Nothing is written to the latter before it is opened.
    private static func makeStore(_ home: String, _ protection: Protection, _ passphrase: consuming SecretBytes?) throws
    {
        let again = passphrase?.clone()
        do throws(StoreError) {
            try Store.create(
                home: home, protection: protection, passphrase: passphrase, journal: journalByteCount(for: home))
        } catch {
            guard case .alreadyInitialised = error, access("\(home)/\(NodeConfiguration.fileName)", F_OK) != 0 else {
                throw error
            }
            let store = try Store.open(home: home, now: NodeClock.realtime())
            defer { store.close() }
            guard store.protection == protection else { throw error }
            do throws(StoreError) { try store.unlock(passphrase: again) } catch .wrongPassphrase {
                throw ControlError(
                    .failed, "an interrupted `mayfly init` has begun \(home) with another passphrase",
                    hint: "give that one, or remove \(home) and begin again")
            }
        }
    }

    private static func make(
        _ home: String, _ configuration: NodeConfiguration, _ protection: Protection,
        _ passphrase: consuming SecretBytes?
    ) throws -> JSONValue {
        try makeParents(of: home)
        try makeStore(home, protection, passphrase?.clone())
        try configuration.save(home: home)
        if access("\(home)/\(PeersFile.fileName)", F_OK) != 0 { try PeersFile().save(home: home) }
        var options = Node.Options(home: home, version: ProgramVersion.text)
        options.listen = []
        options.discover = .off
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        defer { try? group.syncShutdownGracefully() }
        let loop = group.next()
        let holder = SecretBox(passphrase)
        let card = try loop.makeFutureWithTask { [options] in
            let node = try await loop.submit {
                try Node.open(
                    options, on: loop, log: Logger(label: "mayfly", factory: { _ in SwiftLogNoOpLogHandler() }))
            }.get()
            try await node.start(passphrase: holder.take())
            let card = try await node.card()
            await node.stop()
            return card
        }.wait()
        return [
            "home": .string(home), "listen": .array(configuration.listen.map { .string($0.description) }),
            "contactCard": .string(card.description), "protection": protection == .keyFile ? "key file" : "passphrase",
        ]
    }
}
