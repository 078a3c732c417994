import Control
import Messaging
import NodeRuntime
import Transport

extension NetworkView {
    static func portMappings(_ node: isolated Node) -> [PortMappingStatus]? {
        node.portMappings.map { portMappings($0, isLocked: node.status().isLocked) }
    }

    /// - Parameter isLocked: a locked node queries no gateway.
    static func portMappings(_ states: [PortMappingState], isLocked: Bool) -> [PortMappingStatus] {
        guard states.isEmpty else { return states.map(portMapping) }
        let reason = isLocked ? "the storage is locked" : "no gateway, or no listener on its network"
        return [PortMappingStatus(family: "ipv4", state: .failed, reason: reason)]
    }

    private static func portMapping(_ state: PortMappingState) -> PortMappingStatus {
        var result = PortMappingStatus(family: state.isIPv4 ? "ipv4" : "ipv6", state: .asking)
        switch state.standing {
        case .none, .asking: break
        case .failed(let failure):
            result.state = .failed
            result.reason = failure.reason
        case .mapped(let mapping):
            result.state = .mapped
            result.method = mapping.method.rawValue
            result.outer = state.endpoints.map(\.description)
            result.until = state.expiresAt
        }
        return result
    }

    /// Only a warning: connections may still arrive by another path.
    static func portMappingCheck(_ mapping: PortMappingStatus) -> HealthCheck {
        switch mapping.state {
        case .mapped, .possible:
            let message = "\(mapping.family): mapped by \(mapping.method ?? "-")"
            return .ok("port mapping", message)
        case .asking: return .ok("port mapping", "\(mapping.family): the gateway is being asked")
        case .failed:
            return .warning(
                "port mapping", "\(mapping.family): none: \(mapping.reason ?? "-")",
                "allow UPnP or PCP on the router, set a port forwarding by hand, or use a rendezvous node")
        }
    }
}
