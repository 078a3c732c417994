import ArgumentParser
import Control
import Glibc
import NodeRuntime

struct ConfigCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "config", abstract: "The configuration of a node.",
        discussion: """
            Examples:
              mayfly config show
              mayfly config set name ann
              mayfly config set readReceipts true
              mayfly config set cap
            """, subcommands: [Show.self, Set.self, Call<ConfigReloadCommand>.self])

    struct Show: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "show", abstract: "Show config.json.",
            discussion: """
                A setting that is not in the file has its default; see mayfly-config(5). The command line of a running \
                node overrides the file.
                """)

        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            let value = try ConfigurationFile(home: try global.resolvedHome()).read().value
            guard !terminal.json, case .object(let members) = value else { return terminal.result(value) }
            terminal.fields(
                NodeConfiguration.CodingKeys.allCases.map { key in
                    (key.rawValue, members[key.rawValue].map { $0.stringValue ?? $0.text } ?? "(default)")
                })
        }
    }

    struct Set: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "set", abstract: "Change one setting of config.json, and of the running node.",
            discussion: """
                VALUE is a word or JSON. Without VALUE the setting gets its default. An invalid value changes nothing.

                Examples:
                  mayfly config set name ann
                  mayfly config set listen '["tcp://0.0.0.0:7440"]'
                """)

        @Argument(help: "A setting of mayfly-config(5).") var key: String
        @Argument(help: "A word or JSON; nothing for the default.") var value: String?
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            let file = ConfigurationFile(home: try global.resolvedHome())
            let before = try file.read().value[key]
            try file.set(key, to: value)
            let client: ControlClient
            do { client = try connect() } catch let error as ControlError where error.kind == .noNode {
                return terminal.json
                    ? terminal.result(["ok": true]) : terminal.note("the setting takes effect at the next start")
            }
            do {
                let value = try client.call(NodeMethods.configReload, Nothing())
                if terminal.json { return terminal.result(value) }
                try understand(value, as: ConfigReloadResult.self).show(terminal)
            } catch {
                try? file.set(key, to: before.flatMap { $0 == .null ? nil : $0.stringValue ?? $0.text })
                throw error
            }
        }
    }
}

struct ConfigurationFile {
    let home: String

    private var path: String { "\(home)/\(NodeConfiguration.fileName)" }

    func read() throws -> (bytes: [UInt8], value: JSONValue) {
        let bytes: [UInt8]
        do { bytes = try NodeConfiguration.read(home: home).bytes } catch { throw controlError(error) }
        return (bytes, try JSONReader.read(bytes))
    }

    /// - Parameter text: a word or JSON; `nil` for the default.
    func set(_ key: String, to text: String?) throws {
        guard NodeConfiguration.CodingKeys(stringValue: key) != nil else {
            let known = NodeConfiguration.CodingKeys.allCases.map(\.rawValue).joined(separator: ", ")
            throw ControlError(.usage, "there is no setting `\(key)`", hint: "the settings are \(known)")
        }
        if key == "name", let text, !PeersFile.isName(text) {
            throw ControlError(.usage, "name: `\(text)` is not 1 to 64 letters, digits, `.`, `_` or `-`")
        }
        for _ in 0..<Self.attempts {
            let (bytes, value) = try read()
            let changed = try changed(value, key, text)
            // Retries when the node or an editor wrote the file meanwhile, so that its change survives.
            do { if try changed.save(home: home, over: bytes) { return } } catch { throw controlError(error) }
        }
        throw ControlError(.failed, "\(path) is changed by another program again and again", hint: "try again")
    }

    private static let attempts = 4

    private func changed(_ value: JSONValue, _ key: String, _ text: String?) throws -> NodeConfiguration {
        guard case .object(var members) = value else {
            throw ControlError(.failed, "\(path) is not a JSON object", hint: "see `man mayfly-config`")
        }
        var result: NodeConfiguration?
        var failure: HomeFileError?
        // `true` and `20` may be words, so the word is tried first.
        let candidates = text.map { [.string($0), try? JSONReader.read(Array($0.utf8))] } ?? [nil]
        for candidate in candidates where result == nil && (text == nil || candidate != nil) {
            members[key] = candidate
            do throws(HomeFileError) {
                result = try NodeConfiguration.parse(JSONValue.object(members).utf8, path: path)
            } catch { failure = error }
        }
        if let result {
            do throws(HomeFileError) {
                try result.checkHooks(events: HookRunner.events, home: home)
                return result
            } catch { failure = error }
        }
        throw ControlError(
            .usage, failure?.reason ?? "`\(key)` cannot be changed",
            hint: "nothing has changed; see `man mayfly-config`")
    }
}

/// The user's name in new conversations: `name` of `config.json`.
enum OwnName {
    /// Asks a user without a name, and saves the answer.
    /// - Returns: `nil` when the user already has a name or gives none, or without a terminal.
    static func ask(_ global: GlobalOptions, _ terminal: Terminal) throws -> String? {
        guard Terminal.canAsk(terminal) else { return nil }
        let home = try global.resolvedHome()
        guard isMissing(home: home) else { return nil }
        Terminal.ask("Your name, as others see it (Enter for none): ")
        guard let name = readLine()?.split(separator: " ").joined(separator: " "), !name.isEmpty else { return nil }
        do { try set(name, home: home) } catch let error as ControlError {
            terminal.note("the name is used now but not saved: \(safe(error.message))")
        }
        return name
    }

    static func isMissing(home: String) -> Bool { (try? NodeConfiguration.load(home: home).name == nil) ?? false }

    static func set(_ name: String, home: String) throws {
        try ConfigurationFile(home: home).set("name", to: name)
        _ = try? ControlClient(home: home).call(NodeMethods.configReload, Nothing())
    }
}

extension NodeMethods {
    static let configReload = NodeMethod<Nothing, ConfigReloadResult>(
        "config.reload", "Reload config.json and peers.json while the node runs."
    ) { call, node, service in service.complete(call, service.reload.ask(on: node.loop), node) }
}

enum ConfigReloadCommand: MethodAction {
    static let method = NodeMethods.configReload
    static let discussion = """
        Prints the changed settings, and those that take effect at the next start: discover, udp, mapPorts, \
        metrics. Listeners in both the old and the new configuration stay open. Links stay open, except links over \
        UDP by a removed listener. If a file has a mistake, or an address is not available, nothing changes.

        SIGHUP does the same and logs what changed, unless the node runs in the foreground of a terminal.

        Example:
          mayfly config reload --json | jq .changed
        """
}

extension ConfigReloadResult: ShownRecord {
    func show(_ terminal: Terminal) {
        let lines = [
            ("changed", changed), ("takes effect at the next start", pending),
            ("overridden by the command line", overridden),
        ]
        for (what, settings) in lines where !settings.isEmpty {
            terminal.result("\(what): \(settings.map(safe).joined(separator: ", "))")
        }
        if lines.allSatisfy(\.1.isEmpty) { terminal.note("nothing has changed") }
    }
}
