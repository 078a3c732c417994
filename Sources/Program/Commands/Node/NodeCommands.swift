import ArgumentParser
import CLinux
import Control
import Glibc
import Messaging
import NodeRuntime
import Transport

struct StopCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "stop", abstract: "Stop the node cleanly.",
        discussion: "Returns when the node's process has ended and the home is free.")

    /// In milliseconds. The node writes its pending state and removes port mappings before it ends.
    private static let patience: Int32 = 30_000

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        let client = try connect()
        // Opened before the request, because the process id may be reused after the end.
        let process = client.process.map { process_descriptor($0) } ?? -1
        defer { if process >= 0 { close(process) } }
        let value = try client.call(Methods.stop, Nothing())
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
    static let configuration = CommandConfiguration(
        commandName: "lock", abstract: "Wipe the keys from memory until `mayfly unlock`.")

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        let client = try connect()
        let answer = try client.call(Methods.lock, Nothing())
        if terminal.json { return terminal.result(answer) }
        terminal.note("locked; `mayfly unlock` opens it")
        if (try? client.call(Methods.status, Nothing()))?["protection"]?.stringValue == "key file" {
            terminal.note("this home has a key file and no passphrase: `mayfly unlock` asks for no secret")
        }
    }
}

struct UnlockCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "unlock", abstract: "Open the storage with its passphrase.",
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
        let hasKeyFile = try client.call(Methods.status, Nothing())["protection"]?.stringValue == "key file"
        let passphrase = hasKeyFile ? "" : try Passphrase.text(.current, option: passphraseFile, terminal)
        // Argon2id is slow on a small machine.
        let answer = try client.call(Methods.unlock, .init(passphrase: passphrase), timeout: .seconds(120))
        if terminal.json { terminal.result(answer) } else { terminal.note("unlocked") }
    }
}

struct ReapCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "reap", abstract: "Destroy expired data and conversations that are due to explode.",
        discussion: """
            Works with the node down and needs no passphrase: run it at boot.
            """)

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        let answer: JSONValue
        do { answer = try connect().call(Methods.reap, Nothing(), timeout: .seconds(300)) } catch let error
            as ControlError where error.kind == .noNode
        { answer = try Reaping.run(home: try global.resolvedHome()) }
        if terminal.json {
            terminal.result(answer)
        } else {
            terminal.note("all data that must be gone by now is destroyed")
        }
    }
}

struct VersionCommand: NodeCommand {
    static let configuration = CommandConfiguration(commandName: "version", abstract: "Print the version.")

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        if terminal.json {
            terminal.result(["version": .string(ProgramVersion.text)])
        } else {
            terminal.result("mayfly \(ProgramVersion.text)")
        }
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

struct SchemaCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "schema", abstract: "Print all commands and JSON-RPC methods, machine-readable.",
        discussion: """
            One JSON object, with and without --json: \
            {"version","commands","methods","events","eventFields","failures"}.

            Example:
              mayfly schema | jq -r '.methods[].name'
            """)

    /// Deep enough for ArgumentParser's description of nested commands.
    private static let depthLimit = 64

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        let help = Mayfly._dumpHelp()
        guard let commands = try? JSONReader.read(Array(help.utf8), depthLimit: Self.depthLimit),
            case .object(var schema) = Methods.description
        else { throw ControlError.internalFailure("the description of the commands cannot be read") }
        schema["version"] = .string(ProgramVersion.text)
        schema["commands"] = commands["command"] ?? commands
        terminal.result(.object(schema))
    }
}

struct MetricsCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "metrics", abstract: "Print the node's metrics in the Prometheus text format.",
        discussion: """
            Messages, links, handshakes, commits, disk, memory and more, counted since the start of the node. No label \
            is an id, a name or an address. `mayfly run --metrics 127.0.0.1:9464` serves the same as GET /metrics to \
            every user of this machine.

            Example, for the textfile collector of node_exporter:
              mayfly metrics > /var/lib/node_exporter/mayfly.prom.new && mv /var/lib/node_exporter/mayfly.prom{.new,}
            """)

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        try call(Methods.metrics, Nothing(), terminal) { result in
            terminal.result(result.text.hasSuffix("\n") ? String(result.text.dropLast()) : result.text)
        }
    }
}

/// Child process of the node that queries a gateway by UPnP. Hidden from help.
struct GatewayHelperCommand: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: UPnPHelper.command, shouldDisplay: false)

    @Argument(parsing: .captureForPassthrough) var words: [String] = []

    func run() { UPnPHelper.run(words) }
}

struct InboxCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "inbox", abstract: "Inboxes: one for each conversation.",
        discussion: """
            Examples:
              mayfly inbox list
              mayfly inbox sleep 0c9a
              mayfly inbox rebalance
            """, subcommands: [List.self, Call<Wake>.self, Call<Sleep>.self, Rebalance.self])

    static func table(_ inboxes: [Inbox], _ terminal: Terminal) {
        terminal.table(
            ["INBOX", "STATE", "WOKEN BY", "LAST ACTIVITY", "PROTECTED"],
            inboxes.map { inbox in
                [
                    short(inbox.inbox), inbox.state, inbox.wakeReason ?? "-", shown(inbox.lastActivity),
                    inbox.protected ? "yes" : "no",
                ]
            })
        if inboxes.isEmpty { terminal.note("no inboxes") }
    }
}

extension InboxCommand {
    struct List: NodeCommand {
        static let configuration = CommandConfiguration(commandName: "list", abstract: "List the inboxes.")

        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try callList(Methods.inboxList, Nothing(), "inboxes", terminal) { InboxCommand.table($0, terminal) }
        }
    }

    enum Wake: MethodAction {
        static let configuration = CommandConfiguration(commandName: "wake", abstract: "Wake an inbox.")
        static let method = Methods.inboxWake
    }

    enum Sleep: MethodAction {
        static let configuration = CommandConfiguration(commandName: "sleep", abstract: "Put an inbox to sleep.")
        static let method = Methods.inboxSleep
    }
    struct Rebalance: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "rebalance", abstract: "Wake the most recently active inboxes, put the others to sleep.")

        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try call(Methods.inboxRebalance, Nothing(), terminal) { result in
                terminal.fields([
                    ("woken", String(result.woken)), ("put to sleep", String(result.slept)),
                    ("capacity", String(result.capacity)),
                ])
            }
        }
    }
}

extension Inbox: ShownRecord { func show(_ terminal: Terminal) { InboxCommand.table([self], terminal) } }
