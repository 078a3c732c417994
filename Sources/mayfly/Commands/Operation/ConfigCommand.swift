import ArgumentParser
import Control

struct ConfigCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "config",
        abstract: "The configuration of a running node.",
        subcommands: [ConfigReloadCommand.self]
    )
}

struct ConfigReloadCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "reload",
        abstract: "Take over config.json and peers.json while the node runs.",
        discussion: """
            Says what has changed, and what holds from the next start only: discover, udp, mapPorts, metrics. Listeners that \
            are wanted before and after stay open, and so do all links but those over UDP by a listener that goes. \
            With a mistake in one of the files, or an address that cannot be had, nothing changes.

            SIGHUP does the same and logs what changed, unless the node runs in the foreground of a terminal.

            Example:
              mayfly config reload --json | jq .changed
            """
    )

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        try call(ConfigReloadMethod.self, Nothing(), terminal) { result in
            let lines = [
                ("changed", result.changed), ("holds from the next start", result.pending),
                ("given on the command line, which holds", result.overridden),
            ]
            for (what, settings) in lines where !settings.isEmpty {
                terminal.result("\(what): \(settings.map(safe).joined(separator: ", "))")
            }
            if lines.allSatisfy(\.1.isEmpty) { terminal.note("nothing has changed") }
        }
    }
}
