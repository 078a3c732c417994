import ArgumentParser
import Control
import Cryptography
import Glibc
import Logging
import Messaging
import NodeRuntime
import Store

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
        if let note = try NodeSetup.linkLocalNote(home: home) { terminal.warn(note) }
        guard !terminal.json else { return terminal.result(created) }
        terminal.fields([
            ("home", created["home"]?.stringValue),
            ("listen", created["listen"]?.arrayValue?.compactMap(\.stringValue).joined(separator: " ")),
            ("contact card", created["contactCard"]?.stringValue), ("protection", created["protection"]?.stringValue),
        ])
        terminal.note("start it with `mayfly run`")
    }
}
