import ArgumentParser
import CLinux
import Control
import Cryptography
import Glibc
import NIOCore
import NodeRuntime
import Store
import Transport

struct StopResult: CodableRecord {
    var ok = true
    /// Unread messages of other members that were in memory only and are now gone.
    var forgotten: Int = 0
}

struct UnlockParams: CodableRecord { var passphrase = "" }

struct MetricsResult: CodableRecord, ShownRecord {
    /// Prometheus text format, version 0.0.4.
    var text = ""

    func show(_ terminal: Terminal) { terminal.result(text.hasSuffix("\n") ? String(text.dropLast()) : text) }
}

struct VersionResult: CodableRecord { var version = "" }

enum NodeMethods {
    static let all: [any ServedMethod] = [
        mailboxStatus, netcheck, status, configReload, stop, lock, unlock, reap, version, metrics,
    ]

    static let stop = NodeMethod<Nothing, StopResult>("stop", "Stop the node cleanly.") { call, node, service in
        node.loop.execute { service.stop.succeed(()) }
        call.succeed(StopResult(forgotten: node.unreadInMemoryCount))
    }

    static let lock = NodeMethod<Nothing, Acknowledged>("lock", "Wipe the keys from memory until `mayfly unlock`.") {
        _, node in
        node.lock()
        return .now(Acknowledged())
    }

    /// Unlocks run one at a time, each with a slow key derivation.
    static let unlock = NodeMethod<UnlockParams, Acknowledged>(
        "unlock", "Open the storage with its passphrase.", waits: .always
    ) { params, node in
        guard params.passphrase.isEmpty else {
            return .later(node.unlocking(passphrase: SecretBytes(copying: params.passphrase.utf8)).map { .init() })
        }
        if node.status().protection == .passphrase { throw StoreError.passphraseNeeded }
        try node.unlock(passphrase: nil)
        return .now(Acknowledged())
    }

    static let reap = NodeMethod<Nothing, Acknowledged>(
        "reap", "Destroy expired data and conversations that are due to explode."
    ) { _, node in
        node.reapNow()
        return .now(Acknowledged())
    }

    static let version = NodeMethod<Nothing, VersionResult>("version", "Print the version.") { _, node in
        .now(VersionResult(version: node.options.version))
    }

    static let metrics = NodeMethod<Nothing, MetricsResult>(
        "metrics", "Print the node's metrics in the Prometheus text format."
    ) { call, node, service in service.complete(call, service.metrics.text().map { MetricsResult(text: $0) }, node) }
}

struct StopCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        NodeMethods.stop, discussion: "Returns when the node's process has ended and the home is free.")

    /// In milliseconds. The node writes its pending state and removes port mappings before it ends.
    private static let patience: Int32 = 30_000

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        let client = try connect()
        // Opened before the request, because the process id may be reused after the end.
        let process = client.process.map { process_descriptor($0) } ?? -1
        defer { if process >= 0 { close(process) } }
        let value = try client.call(NodeMethods.stop, Nothing())
        guard Self.hasEnded(process) else {
            throw ControlError(.timedOut, "the node did not end within 30 s", hint: "see its log")
        }
        if terminal.json { return terminal.result(value) }
        let count = try understand(value, as: StopResult.self).forgotten
        let lost = count == 1 ? "1 unread message, memory only, is" : "\(count) unread messages, memory only, are"
        terminal.note(count == 0 ? "stopped" : "stopped; \(lost) gone")
    }

    /// - Parameter process: a process descriptor; -1 when there is none to wait for.
    private static func hasEnded(_ process: Int32) -> Bool {
        guard process >= 0 else { return true }
        var polled = pollfd(fd: process, events: Int16(POLLIN), revents: 0)
        var count: Int32
        repeat { count = poll(&polled, 1, patience) } while count < 0 && errno == EINTR
        return count > 0
    }
}

struct LockCommand: NodeCommand {
    static let configuration = CommandConfiguration(NodeMethods.lock)

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        let client = try connect()
        let answer = try client.call(NodeMethods.lock, Nothing())
        if terminal.json { return terminal.result(answer) }
        terminal.note("locked; `mayfly unlock` opens it")
        if (try? client.call(NodeMethods.status, Nothing()))?["protection"]?.stringValue == "key file" {
            terminal.note("this home has a key file and no passphrase: `mayfly unlock` asks for no secret")
        }
    }
}

struct UnlockCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        NodeMethods.unlock,
        discussion: """
            The passphrase comes from --passphrase-file, MAYFLY_PASSPHRASE_FILE, the systemd credential \
            mayfly-passphrase, or a prompt on the terminal; never from an argument. A wrong passphrase is refused even \
            if the node is already unlocked. A home with a key file needs no passphrase.

            Example:
              mayfly unlock --passphrase-file /run/secrets/mayfly
            """)

    @Option(help: ArgumentHelp("Read the passphrase from this file.", valueName: "file"), completion: .file())
    var passphraseFile: String?
    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        let client = try connect()
        // A key file is in the home.
        let hasKeyFile = try client.call(NodeMethods.status, Nothing())["protection"]?.stringValue == "key file"
        let passphrase = hasKeyFile ? "" : try Passphrase.text(.current, option: passphraseFile, terminal)
        // Argon2id is slow on a small machine.
        let answer = try client.call(NodeMethods.unlock, .init(passphrase: passphrase), timeout: .seconds(120))
        if terminal.json { terminal.result(answer) } else { terminal.note("unlocked") }
    }
}

struct ReapCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        NodeMethods.reap, discussion: "Works with the node down and needs no passphrase: run it at boot.")

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        let answer: JSONValue
        do { answer = try connect().call(NodeMethods.reap, Nothing(), timeout: .seconds(300)) } catch let error
            as ControlError where error.kind == .noNode
        { answer = try Self.reap(home: try global.resolvedHome()) }
        if terminal.json { terminal.result(answer) }
        terminal.note("all data that must be gone by now is destroyed")
    }

    /// Without a running node: destroys due data, without a passphrase.
    /// - Returns: `{ok}` and the work done.
    private static func reap(home: String) throws -> JSONValue {
        do throws(StoreError) {
            let report = try Store.reapHome(home: home, now: NodeClock.realtime())
            if let failure = report.failures.first { throw failure }
            return [
                "ok": true, "columnsDestroyed": .integer(Int64(report.columnsDestroyed)),
                "inboxesDestroyed": .integer(Int64(report.rowsDestroyed)),
                "tombstonesDestroyed": .integer(Int64(report.tombstonesDestroyed)),
            ]
        } catch { throw controlError(error) }
    }
}

struct VersionCommand: NodeCommand {
    static let configuration = CommandConfiguration(NodeMethods.version)

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        if terminal.json { return terminal.result(["version": .string(ProgramVersion.text)]) }
        terminal.result("mayfly \(ProgramVersion.text)")
    }
}

struct RPCCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "rpc", abstract: "Speak JSON-RPC 2.0 over standard input and output.",
        discussion: """
            Serves the methods of the control socket, one request a line; `mayfly schema` lists them. After the end of \
            the input all requests are still answered, and a subscription goes on. The exit code is 8 if the node \
            stops before that, and 4 if it does not answer for 35 s.

            Example:
              echo '{"jsonrpc":"2.0","id":1,"method":"status"}' | mayfly rpc
            """)

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws { try connect().pump(from: STDIN_FILENO, to: STDOUT_FILENO) }
}

enum MetricsCommand: MethodAction {
    static let method = NodeMethods.metrics
    static let discussion = """
        Messages, links, handshakes, commits, disk, memory and more, counted since the start of the node. No label \
        is an id, a name or an address. `mayfly run --metrics 127.0.0.1:9464` serves the same as GET /metrics to \
        every user of this machine.

        Example, for the textfile collector of node_exporter:
          mayfly metrics > /var/lib/node_exporter/mayfly.prom.new && mv /var/lib/node_exporter/mayfly.prom{.new,}
        """
}

/// Child process of the node that queries a gateway by UPnP. Hidden from help.
struct GatewayHelperCommand: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: UPnPHelper.command, shouldDisplay: false)

    @Argument(parsing: .captureForPassthrough) var words: [String] = []

    func run() { UPnPHelper.run(words) }
}
