import Messaging
import Transport

/// The node's metrics.
package struct NodeFigures: Sendable {
    package var state: NodeState
    package var counters: NodeCounters
    package var commits: CommitFigures
    package var links: [NodeCounters.LinkKind: Int]
    /// Sealed bytes of all links, open and ended.
    package var bytesIn: UInt64
    package var bytesOut: UInt64
    package var capacity: Int
    /// `nil` unless this is a rendezvous node.
    package var relay: RelayCounts?

    package init(_ node: isolated Node) {
        state = node.status()
        counters = node.services.counters
        commits = node.shell.commits.figures
        links = [:]
        bytesIn = counters.bytesIn
        bytesOut = counters.bytesOut
        for link in node.shell.links.all {
            links[NodeCounters.LinkKind(LinkDescription(link.connection)), default: 0] += 1
            bytesIn &+= link.connection.bytesIn
            bytesOut &+= link.connection.bytesOut
        }
        capacity = node.capacity
        relay = node.relayService?.counts
    }
}
