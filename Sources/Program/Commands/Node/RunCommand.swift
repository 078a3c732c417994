import ArgumentParser
import Control
import Crypto
import Glibc
import NodeRuntime
import Store

struct RunCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "run", abstract: "Run the node in the foreground.",
        discussion: """
            Prints one line when it serves: {"event":"ready","listen":[…],"pid":…}. SIGTERM stops it cleanly, and \
            so do Ctrl-C and the end of the terminal. Where SIGHUP cannot mean the end of a terminal - under a service \
            manager (NOTIFY_SOCKET), without a terminal, under nohup - it does what `mayfly config reload` does.

            A home with a passphrase asks for it on a terminal, three times at most. Without a terminal and without \
            --passphrase-file the node starts locked; `mayfly unlock` opens it.

            The log goes to standard error. At notice, the default, it says what somebody has to look at; at info \
            what becomes of each conversation: created, joined or not and why, members, agreements, explosions and \
            how many have confirmed, leaving, locking; at debug also links and why they end, failed dials, sleep and \
            waking, proposals, acknowledgements; at trace each message's way. An inbox is named by its clientId (see \
            `mayfly inbox list`). No text, name, address, key, nor the id of a conversation or member is in the log, \
            at any level.

            Examples:
              mayfly run
              mayfly run --listen tcp://127.0.0.1:0 --json      take a free port and report it
              mayfly run --log-level info
            """)

    enum LogLevel: String, ExpressibleByArgument, CaseIterable {
        case trace, debug, info, notice, warning, error, critical
    }

    @Option(parsing: .upToNextOption, help: ArgumentHelp("Where to listen.", valueName: "tcp://host:port")) var listen:
        [String] = []
    @Option(help: ArgumentHelp("Unlock with the passphrase in this file.", valueName: "file"), completion: .file())
    var passphraseFile: String?
    @Option(
        parsing: .unconditional,
        help: ArgumentHelp("How long a lost link counts as the same session.", valueName: "seconds")) var sessionGrace:
        Interval?
    @Option(
        parsing: .unconditional,
        help: ArgumentHelp("How many inboxes are awake at a time, 1 to 10000.", valueName: "number")) var capacity: Int?
    @Flag(inversion: .prefixedNo, help: "Whether links run over UDP, too, on the same port; they do by default.")
    var udp: Bool?
    @Option(
        parsing: .unconditional,
        help: ArgumentHelp(
            "Find members on this network by multicast: lan, lan:eth0,wlan0 or off.", valueName: "networks"))
    var discover: String?
    @Flag(
        inversion: .prefixedNo,
        help: "Ask the gateway to let others in, by PCP, NAT-PMP or UPnP, for an hour at most; off by default.")
    var mapPorts: Bool?
    @Flag(help: "Be a rendezvous node: nodes in peers.json may be reached by others through this one.") var rendezvous =
        false
    @Flag(help: "Be a mailbox: keep, sealed, what comes for the nodes in peers.json while they are away.") var mailbox =
        false
    @Option(
        help: ArgumentHelp(
            "Serve the node's figures as GET /metrics on this port of this machine.", valueName: "address:port"))
    var metrics: String?
    @Option(help: "How much to log, on standard error; notice, unless config.json says otherwise.") var logLevel:
        LogLevel?
    @OptionGroup var global: GlobalOptions

    private func checkedMetrics() throws -> LoopbackEndpoint? {
        guard let metrics else { return nil }
        guard let endpoint = LoopbackEndpoint(metrics) else {
            throw ControlError(
                .usage, "--metrics: `\(metrics)` is not a port of this machine alone",
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
            let file = try Passphrase.file(option: passphraseFile)
            let options = DaemonOptions(
                home: home, listen: listen, passphraseFile: file,
                passphrase: file == nil ? try askPassphrase(home) : nil, sessionGrace: sessionGrace?.duration,
                capacity: try checkedCapacity(capacity), datagrams: udp, discover: try checkedDiscovery(discover),
                isRendezvous: rendezvous ? true : nil, isMailbox: mailbox ? true : nil, mapPorts: mapPorts,
                metrics: try checkedMetrics(), logLevel: logLevel?.rawValue)
            try await Daemon.run(options)
        } catch let error as ControlError {
            Terminal(json: global.json).report(error.naming(home: global.home))
            throw ExitCode(error.kind.exitCode)
        }
    }
}
