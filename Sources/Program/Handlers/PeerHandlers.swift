import Control
import Cryptography
import FoundationEssentials
import Messaging
import NIOCore
import NodeRuntime
import Transport

enum PeerHandlers {
    static func add(to router: inout NodeRouter) {
        router.on(Methods.peerAdd) { node, params in
            let endpoints = try EndpointOption.endpoints(params.endpoints ?? [], option: "--endpoint")
            _ = try node.peers.add(params.name, card: params.card, endpoints: endpoints)
            return try peer(params.name, node)
        }
        router.on(Methods.peerList) { node, _ in PeerListResult(peers: try PeerView.peers(node)) }
        router.on(Methods.peerShow) { node, params in try peer(params.name, node) }
        router.on(Methods.peerRemove) { node, params in
            try node.peers.remove(params.name)
            return Acknowledged()
        }
        router.on(Methods.peerBlock) { node, params in
            try node.peers.block(params.name)
            return try peer(params.name, node)
        }
        router.on(Methods.peerUnblock) { node, params in
            _ = try node.peers.change(params.name) { $0.blocked = nil }
            return try peer(params.name, node)
        }
        router.on(Methods.peerSet) { node, params in
            func isOn() throws(ControlError) -> Bool {
                guard ["on", "off"].contains(params.value) else {
                    throw ControlError(.usage, "\(params.key): `\(params.value)` is not one of on, off")
                }
                return params.value == "on"
            }
            switch params.key {
            case "invitations":
                guard let value = PeersFile.Invitations(rawValue: params.value) else {
                    throw ControlError(.usage, "invitations: `\(params.value)` is not one of ask, accept, refuse")
                }
                _ = try node.peers.change(params.name) { $0.invitations = value }
            case "endpoints":
                let endpoints = try EndpointOption.endpoints(
                    params.value.split(separator: ",").map(String.init), option: "endpoints")
                _ = try node.peers.change(params.name) { $0.endpoints = endpoints.isEmpty ? nil : endpoints }
            case "rendezvous": try node.peers.setRendezvous(params.name, try isOn())
            case "mailbox": try node.peers.setMailbox(params.name, try isOn())
            default:
                throw ControlError(
                    .usage, "`\(params.key)` cannot be set", hint: "keys: invitations, endpoints, rendezvous, mailbox")
            }
            return try peer(params.name, node)
        }
        router.later(Methods.peerPing) { node, call in
            let params = call.params
            let timeout = try positiveTime(params.timeout) ?? 10_000
            return try node.peers.ping(params.name, timeout: timeout).flatMapThrowing { [node] _ in
                try node.assumeIsolated { try peer(params.name, $0) }
            }
        }
        router.on(Methods.peerCard) { node, _ in
            let card = try node.card()
            return PeerCardResult(
                name: node.configuredName, endpoints: card.endpoints.map(\.description), contact: card.description)
        }
        router.on(Methods.peerExport) { node, _ in
            let encoded = try JSONEncoder().encode(try node.peers.file())
            return PeerExportResult(document: try JSONReader.read(encoded))
        }
        router.on(Methods.peerImport) { node, params in
            let file: PeersFile
            do { file = try JSONDecoder().decode(PeersFile.self, from: Data(params.document.utf8)) } catch let error
                as DecodingError
            {
                let (field, message) = words(error)
                throw ControlError(
                    .usage, "this is not a peers file: `\(field)` \(message)", hint: "see peers.example.json",
                    field: field)
            }
            try node.peers.take(file)
            return PeerListResult(peers: try PeerView.peers(node))
        }
    }

    private static func peer(_ name: String, _ node: isolated Node) throws(NodeError) -> Peer {
        PeerView.peer(try node.peers.peer(name).0, node.peers.presences()[name])
    }

    private static func words(_ error: DecodingError) -> (field: String, message: String) {
        func place(_ path: [any CodingKey]) -> String {
            let text = path.map { key in key.intValue.map { "[\($0)]" } ?? ".\(key.stringValue)" }.joined()
            return String(text.drop { $0 == "." })
        }
        switch error {
        case .keyNotFound(let key, let context): return (place(context.codingPath + [key]), "is missing")
        case .typeMismatch(_, let context), .valueNotFound(_, let context):
            return (place(context.codingPath), "has the wrong type")
        case .dataCorrupted(let context): return (place(context.codingPath), context.debugDescription)
        @unknown default: return ("", "does not fit")
        }
    }
}

enum PeerView {
    static func peers(_ node: isolated Node) throws(NodeError) -> [Peer] {
        let file = try node.peers.file()
        let presences = node.peers.presences()
        return file.peers.map { peer($0, presences[$0.name]) }
    }

    static func peer(_ peer: PeersFile.Peer, _ presence: PeerPresence?) -> Peer {
        Peer(
            name: peer.name, endpoints: peer.allEndpoints.map(\.description), contact: peer.contact?.description,
            blocked: peer.isBlocked, invitations: peer.invitationPolicy.rawValue, online: presence?.isLinked ?? false,
            lastSeen: presence?.at, path: presence?.path?.kind.rawValue,
            rttMs: presence?.rttMilliseconds.map { PeerView.rounded($0) }, link: presence?.path.map(link),
            rendezvous: peer.isRendezvous, mailbox: peer.isMailbox)
    }

    static func link(_ path: LinkPath) -> Link {
        let isIPv6 = if case .v6 = path.address { true } else { false }
        return Link(
            transport: path.transport, family: isIPv6 ? "ipv6" : "ipv4", address: path.address.ipAddress ?? "",
            since: path.openedAt, rttMs: path.rttMilliseconds.map { PeerView.rounded($0) },
            bytesIn: Int64(clamping: path.bytesIn), bytesOut: Int64(clamping: path.bytesOut),
            postQuantum: path.isPostQuantum)
    }

    static func lost(_ loss: LinkLoss) -> LostLink {
        LostLink(transport: loss.carrier == .tcp ? "tcp" : "udp", reason: loss.reason.kind)
    }

    static func rounded(_ milliseconds: Double) -> Double { (milliseconds * 1_000).rounded() / 1_000 }
}
