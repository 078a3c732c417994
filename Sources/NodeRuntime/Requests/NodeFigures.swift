import Messaging
import Transport

/// What the operator of a node is told in numbers.
package struct NodeFigures: Sendable {
    package var state: NodeState
    package var counters: NodeCounters
    package var commits: CommitFigures
    /// Open links.
    package var links: [NodeCounters.LinkKind: Int]
    /// Sealed bytes of all links, ended or not.
    package var bytesIn: UInt64
    package var bytesOut: UInt64
    package var capacity: Int
    /// As a rendezvous node; `nil` if it is none.
    package var relay: RelayCounts?

    package init(_ node: isolated Node) {
        state = node.status()
        counters = node.services.counters
        commits = node.held.writer.commits.figures
        links = [:]
        bytesIn = counters.bytesIn
        bytesOut = counters.bytesOut
        for link in node.core.links.all {
            links[NodeCounters.LinkKind(LinkDescription(link.connection)), default: 0] += 1
            bytesIn &+= link.connection.bytesIn
            bytesOut &+= link.connection.bytesOut
        }
        capacity = node.capacity
        relay = node.relayService?.counts
    }
}
