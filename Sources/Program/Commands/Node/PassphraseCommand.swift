import ArgumentParser
import Control
import Crypto
import NodeRuntime
import Store

struct PassphraseCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "passphrase", abstract: "Change what protects the keys at rest.",
        discussion: """
            Works with the node running, locked or not, and with the node stopped. The old passphrase comes from \
            --passphrase-file, MAYFLY_PASSPHRASE_FILE, the systemd credential mayfly-passphrase, or a prompt on the \
            terminal. The new passphrase comes from --new-passphrase-file, MAYFLY_NEW_PASSPHRASE_FILE, or two prompts. \
            Neither is ever taken from an argument.

            After success the old passphrase or key file opens nothing that is on the disk. After an interruption one \
            of the two opens the home, and from then on only the one that did. A copy of the home from before the \
            change still opens with the old secret, and can open the present home. If somebody may have both, make a \
            new home.

            Examples:
              mayfly passphrase change --passphrase-file old.txt --new-passphrase-file new.txt
              mayfly passphrase set            asks twice; for a home that `init` made without a passphrase
              mayfly passphrase drop           back to a key file
            """, subcommands: [PassphraseChangeCommand.self, PassphraseSetCommand.self, PassphraseDropCommand.self])
}

struct PassphraseChangeCommand: ProtectionCommand {
    static let configuration = CommandConfiguration(
        commandName: "change", abstract: "Replace the passphrase.",
        discussion: "Give the new one to `mayfly run` from then on. See `mayfly help passphrase`.")

    @Option(help: ArgumentHelp("Read the old passphrase from this file.", valueName: "file")) var passphraseFile:
        String?
    @Option(help: ArgumentHelp("Read the new passphrase from this file.", valueName: "file")) var newPassphraseFile:
        String?
    @OptionGroup var global: GlobalOptions

    func change(_ terminal: Terminal) throws -> PassphraseChange {
        .change(
            from: try Passphrase.text(.current, option: passphraseFile, terminal),
            to: try Passphrase.text(.new, option: newPassphraseFile, terminal))
    }
}

struct PassphraseSetCommand: ProtectionCommand {
    static let configuration = CommandConfiguration(
        commandName: "set", abstract: "Replace the key file with a passphrase.",
        discussion: "The key file is overwritten and removed. See `mayfly help passphrase`.")

    @Option(help: ArgumentHelp("Read the new passphrase from this file.", valueName: "file")) var newPassphraseFile:
        String?
    @OptionGroup var global: GlobalOptions

    func change(_ terminal: Terminal) throws -> PassphraseChange {
        .set(try Passphrase.text(.new, option: newPassphraseFile, terminal))
    }
}

struct PassphraseDropCommand: ProtectionCommand {
    static let configuration = CommandConfiguration(
        commandName: "drop", abstract: "Replace the passphrase with a key file.",
        discussion: "Anyone who can read the home can then read its data. See `mayfly help passphrase`.")

    @Option(help: ArgumentHelp("Read the passphrase from this file.", valueName: "file")) var passphraseFile: String?
    @OptionGroup var global: GlobalOptions

    func change(_ terminal: Terminal) throws -> PassphraseChange {
        .drop(try Passphrase.text(.current, option: passphraseFile, terminal))
    }
}

/// A command that changes the home's protection: through the node, or on the files when no node runs.
protocol ProtectionCommand: NodeCommand {
    /// Prompts for the passphrases that the change needs.
    func change(_ terminal: Terminal) throws -> PassphraseChange
}

extension ProtectionCommand {
    func perform(_ terminal: Terminal) throws {
        let client: ControlClient?
        do { client = try connect() } catch let error as ControlError where error.kind == .noNode { client = nil }
        let home = try global.resolvedHome()
        // Before the user is asked for a passphrase.
        let protection = try client.map(Self.protection) ?? StoppedHome.protection(home)
        try checkKind(protection)
        let change = try change(terminal)
        try change.check(against: protection)
        let answer = try client.map { try ask($0, change) } ?? StoppedHome.change(home, change)
        if terminal.json { return terminal.result(answer) }
        let result = try understand(answer, as: ProtectionResult.self)
        terminal.note("protected by a \(result.protection) now; the old protection opens nothing any more")
        if result.erasure == "best-effort" {
            terminal.warn("old copies may survive on this file system: erasure is best-effort")
        }
    }

    private func checkKind(_ protection: Protection) throws(ControlError) {
        // A sample change: only its kind is checked here.
        let example: PassphraseChange =
            switch Self.configuration.commandName {
            case "set": .set("new")
            case "drop": .drop("old")
            default: .change(from: "old", to: "new")
            }
        try example.check(against: protection)
    }

    private static func protection(_ client: ControlClient) throws -> Protection {
        let status = try understand(client.call(Methods.status, Nothing()), as: NodeStatus.self)
        return status.protection == "key file" ? .keyFile : .passphrase
    }

    private func ask(_ client: ControlClient, _ change: PassphraseChange) throws -> JSONValue {
        // Argon2id is slow on a small machine and runs twice.
        let timeout = Duration.seconds(240)
        switch change {
        case .change(let old, let new):
            let params = PassphraseChangeParams(passphrase: old, newPassphrase: new)
            return try client.call(Methods.passphraseChange, params, timeout: timeout)
        case .set(let new): return try client.call(Methods.passphraseSet, .init(newPassphrase: new), timeout: timeout)
        case .drop(let old): return try client.call(Methods.passphraseDrop, .init(passphrase: old), timeout: timeout)
        }
    }
}

private enum StoppedHome {
    static func protection(_ home: String) throws -> Protection {
        do throws(StoreError) { return try HomeInspection(home: home).protection } catch { throw controlError(error) }
    }

    static func change(_ home: String, _ change: PassphraseChange) throws -> JSONValue {
        do throws(StoreError) {
            let store = try Store.open(home: home, now: NodeClock.realtime())
            defer { store.close() }
            let old: SecretBytes? = change.old.map { SecretBytes(copying: $0.utf8) }
            let new: SecretBytes? = change.new.map { SecretBytes(copying: $0.utf8) }
            try store.changeProtection(from: old, to: new)
            return [
                "protection": .string(store.protection == .keyFile ? "key file" : "passphrase"),
                "erasure": .string(store.erasurePromise.erasure.rawValue),
            ]
        } catch { throw controlError(error) }
    }
}
