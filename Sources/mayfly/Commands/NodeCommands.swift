import ArgumentParser
import Control

struct StopCommand: NodeCommand {
    static let configuration = CommandConfiguration(commandName: "stop", abstract: "Stop the node cleanly.")

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        try call(StopMethod.self, Nothing(), terminal) { answer in
            let count = answer.forgotten
            let unread = "\(count) unread message\(count == 1 ? "" : "s") that \(count == 1 ? "was" : "were")"
            terminal.note(
                count == 0 ? "stopped" : "stopped; \(unread) in memory only \(count == 1 ? "is" : "are") gone"
            )
        }
    }
}

struct LockCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "lock",
        abstract: "Forget the storage keys until `mayfly unlock`."
    )

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        try call(LockMethod.self, Nothing(), terminal) { _ in terminal.note("locked") }
    }
}

struct UnlockCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "unlock",
        abstract: "Open the storage with its passphrase.",
        discussion: """
            The passphrase comes from --passphrase-file, MAYFLY_PASSPHRASE_FILE, the systemd credential \
            mayfly-passphrase, or a question on the terminal; never from an argument.

            Example:
              mayfly unlock --passphrase-file /run/secrets/mayfly
            """
    )

    @Option(help: ArgumentHelp("Read the passphrase from this file.", valueName: "file"))
    var passphraseFile: String?
    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        let client = try connect()
        let status = try client.call(StatusMethod.self, Nothing())
        if status["protection"]?.stringValue == "key file" {
            // Nothing to ask for: the key file is in the home.
            let answer = try client.call(UnlockMethod.self, .init(passphrase: ""))
            return terminal.json ? terminal.result(answer) : terminal.note("unlocked")
        }
        let answer = try Passphrase.withBytes(option: passphraseFile, terminal) { bytes in
            guard let passphrase = String(validating: bytes, as: UTF8.self) else {
                throw ControlError(.usage, "the passphrase is not UTF-8 text")
            }
            // Argon2id takes its time on a small machine.
            return try client.call(UnlockMethod.self, .init(passphrase: passphrase), timeout: .seconds(120))
        }
        if terminal.json { terminal.result(answer) } else { terminal.note("unlocked") }
    }
}

struct ReapCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "reap",
        abstract: "Destroy everything that is due now.",
        discussion: """
            Works with the node down and needs no passphrase: run it at boot.
            """
    )

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        let answer: JSONValue
        do {
            answer = try connect().call(ReapMethod.self, Nothing(), timeout: .seconds(300))
        } catch let error as ControlError where error.kind == .noNode {
            answer = try Reaping.run(ReapOptions(home: try global.resolvedHome(), json: global.json))
        }
        if terminal.json { terminal.result(answer) } else { terminal.note("everything due is destroyed") }
    }
}

struct VersionCommand: NodeCommand {
    static let configuration = CommandConfiguration(commandName: "version", abstract: "Print the version.")

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        if terminal.json {
            terminal.result(["version": .string(Mayfly.version)])
        } else {
            terminal.result("mayfly \(Mayfly.version)")
        }
    }
}
