import ArgumentParser
import Control

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
