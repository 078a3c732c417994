import ArgumentParser
import Control
import Cryptography
import Glibc
import Messaging
import NodeRuntime
import Store

struct RunCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "run", abstract: "Run the node in the foreground.",
        discussion: """
            Prints one line when the node is ready: {"event":"ready","listen":[…],"pid":…}. SIGTERM, Ctrl-C and the \
            end of the terminal stop it cleanly. Under a service manager (NOTIFY_SOCKET), without a terminal, or under \
            nohup, SIGHUP does what `mayfly config reload` does.

            On a terminal the node asks for the passphrase of its home, at most three times. Without a terminal and \
            without --passphrase-file the node starts locked; `mayfly unlock` opens it.

            The log goes to standard error. Level notice, the default, reports what needs attention. Level info adds \
            the history of each conversation: creation, joins and why they fail, members, agreements, explosions with \
            their confirmations, leaving, locking. Level debug adds links and why they end, failed dials, sleep and \
            waking, proposals, acknowledgements. Level trace adds the states of each message. The log names an inbox \
            by its clientId (see `mayfly inbox list`). At no level does it contain a text, name, address or key, or \
            the id of a conversation, member or message.

            Examples:
              mayfly run
              mayfly run --listen tcp://127.0.0.1:0 --json      take a free port and report it
              mayfly run --log-level info
            """)

    @Option(parsing: .upToNextOption, help: ArgumentHelp("Endpoints to listen on.", valueName: "tcp://host:port"))
    var listen: [String] = []
    @Option(help: ArgumentHelp("Unlock with the passphrase in this file.", valueName: "file"), completion: .file())
    var passphraseFile: String?
    @Option(time: "How long a lost link counts as the same session.") var sessionGrace: Interval?
    @Option(capacity: "How many inboxes to keep awake, 1 to 10000.") var capacity: Int?
    @Flag(inversion: .prefixedNo, help: "Run links over UDP as well as TCP, on the same port; on by default.") var udp:
        Bool?
    @Option(
        parsing: .unconditional,
        help: ArgumentHelp(
            "Find members on this network by multicast: lan, lan:eth0,wlan0 or off.", valueName: "networks"))
    var discover: String?
    @Flag(
        inversion: .prefixedNo,
        help: "Ask the gateway for a port mapping of an hour by PCP, NAT-PMP or UPnP, and renew it; off by default.")
    var mapPorts: Bool?
    @Flag(help: "Be a rendezvous node: others can reach the nodes in peers.json through this node.") var rendezvous =
        false
    @Flag(help: "Be a mailbox: keep sealed messages for offline nodes of peers.json.") var mailbox = false
    @Option(
        help: ArgumentHelp(
            "Serve the node's metrics as GET /metrics on this loopback address.", valueName: "address:port"))
    var metrics: String?
    @Option(help: "The log level, on standard error. Default: that of config.json, else notice.") var logLevel:
        NodeConfiguration.LogLevel?
    @OptionGroup var global: GlobalOptions

    private func checkedMetrics() throws -> LoopbackEndpoint? {
        guard let metrics else { return nil }
        guard let endpoint = LoopbackEndpoint(metrics) else {
            throw ControlError(
                .usage, "--metrics: `\(metrics)` is not a loopback address with a port",
                hint: "write 127.0.0.1:9464 or [::1]:9464")
        }
        return endpoint
    }

    /// Prompts before the node handles signals, so that Ctrl-C ends the prompt. A background job gets no prompt,
    /// because the prompt would stop it.
    private func askPassphrase(_ home: String) throws -> SecretBox? {
        guard tcgetpgrp(STDIN_FILENO) == getpgrp(), let inspection = try? HomeInspection(home: home),
            inspection.protection == .passphrase
        else { return nil }
        let terminal = Terminal(json: global.json)
        var attempt = 0
        while true {
            attempt += 1
            do {
                return try Passphrase.withBytes(option: nil, terminal) { bytes in
                    let secret: SecretBytes? = SecretBytes(copying: bytes)
                    try inspection.check(passphrase: secret)
                    return SecretBox(secret)
                }
            } catch let error as StoreError {
                let refusal = controlError(error)
                guard error == .wrongPassphrase, attempt < 3 else { throw refusal }
                terminal.warn(refusal.message)
            }
        }
    }

    func run() async throws {
        do {
            let home = try global.resolvedHome()
            try ControlSocket(home: home).checkHome()
            var options = Node.Options(home: home, version: ProgramVersion.text)
            if !listen.isEmpty { options.listen = try EndpointOption.endpoints(listen, option: "--listen") }
            if let sessionGrace { options.sessionGrace = sessionGrace.milliseconds }
            options.capacity = capacity
            options.datagrams = udp
            options.discover = try checkedDiscovery(discover)
            options.isRendezvous = rendezvous ? true : nil
            options.isMailbox = mailbox ? true : nil
            options.mapPorts = mapPorts
            let metrics = try checkedMetrics()
            options.hasMetrics = metrics != nil
            options.hasLogLevel = logLevel != nil
            let file = try Passphrase.file(option: passphraseFile)
            try await Daemon.run(
                options, passphraseFile: file, passphrase: file == nil ? try askPassphrase(home) : nil,
                metrics: metrics, logLevel: logLevel?.level)
        } catch let error as ControlError { try global.reporting { _ in throw error } }
    }
}

extension NodeConfiguration.LogLevel: ExpressibleByArgument {}

func checkedDiscovery(_ text: String?) throws(ControlError) -> DiscoverySetting? {
    guard let text else { return nil }
    guard let setting = DiscoverySetting(text) else {
        throw ControlError(.usage, "--discover: `\(text)` is not known", hint: "say lan, lan:INTERFACE,… or off")
    }
    return setting
}
