import Control
import Messaging
import NIOCore
import NodeRuntime
import Transport

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
            bytesIn: Int64(clamping: path.bytesIn), bytesOut: Int64(clamping: path.bytesOut))
    }

    static func lost(_ loss: LinkLoss) -> LostLink {
        LostLink(transport: loss.carrier == .tcp ? "tcp" : "udp", reason: loss.reason.kind)
    }

    static func rounded(_ milliseconds: Double) -> Double { (milliseconds * 1_000).rounded() / 1_000 }
}
