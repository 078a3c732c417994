import Control
import Messaging
import NodeRuntime

extension NetworkView {
    /// Checks which addresses the node advertises, and why it omits others.
    /// - Parameters:
    ///   - isFound: members on this network find the node by multicast.
    static func addressesCheck(_ reachable: ReachableAddresses, isFound: Bool) -> HealthCheck {
        let told = reachable.told.map(\.description)
        var words = told.isEmpty ? "others are told no address" : "others are told \(told.joined(separator: " "))"
        let linkLocal = reachable.untold.filter { $0.reason == .linkLocal }
        let others = reachable.untold.filter { $0.reason != .linkLocal }
        if !others.isEmpty { words += "; omitted, because there are too many: \(list(others))" }
        if !linkLocal.isEmpty { words += "; not told, because they are link-local: \(list(linkLocal))" }
        if !linkLocal.isEmpty, !isFound { return .warning("addresses", words, linkLocalHint) }
        if others.contains(where: { $0.reason == .tooMany }) {
            return .warning(
                "addresses", words, "set the dialable addresses as `advertise` in \(NodeConfiguration.fileName)")
        }
        if reachable.isThisMachineAlone, !isFound {
            return .warning(
                "addresses", words + ", because this machine listens on no other address",
                "connect it to a network, or listen on both tcp://0.0.0.0:PORT and tcp://[::]:PORT")
        }
        return .ok("addresses", words)
    }

    static let linkLocalHint = "members on that network find this node with `mayfly run --discover lan` on both sides"

    /// Note on link-local listeners for `init` and `run`; `nil` when there are none.
    static func linkLocalNote(_ reachable: ReachableAddresses) -> String? {
        guard reachable.untold.contains(where: { $0.reason == .linkLocal }) else { return nil }
        return "others are not told link-local addresses; \(linkLocalHint)"
    }

    private static func list(_ untold: [ReachableAddresses.Untold]) -> String {
        untold.map { address in address.endpoint.description + (address.interface.map { " (\($0))" } ?? "") }.joined(
            separator: ", ")
    }
}
