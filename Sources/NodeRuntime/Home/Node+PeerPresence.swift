import Messaging
import Noise
import Primitives
import Transport

/// Which named peers are linked, and when each was last heard.
extension Node {
    /// What is known of the way to a named peer.
    package struct PeerPresence: Sendable {
        /// When it was last heard; now, while there is a link.
        package var at: Timestamp
        /// There is a link to its contact inbox, or to a member that came by an invite that was sent to it.
        package var isLinked: Bool
        /// As the transport or a ping has measured it.
        package var rttMilliseconds: Double?
        package var path: LinkPath?
    }

    /// Of the peers that are linked or have been heard since the start, by their names.
    package func peerPresences() -> [String: PeerPresence] {
        var result = peers.lastHeard
        guard !links.isEmpty, !peers.peers.isEmpty else { return result }
        let names = Dictionary(peers.peers.compactMap { peer in peer.contact.map { ($0.key, peer.name) } }) { one, _ in
            one
        }
        for (id, link) in links.sorted(by: { $0.key < $1.key }) {
            guard let name = contactKey(of: link).flatMap({ names[$0] }) else { continue }
            var presence = presence(of: id)
            let isOfMember = core.contact?.client != link.client
            // The oldest link that there is, and the contact inbox's before a member's.
            if isOfMember, result[name]?.isLinked ?? false { continue }
            presence.rttMilliseconds = presence.rttMilliseconds ?? result[name]?.rttMilliseconds
            result[name] = presence
        }
        return result
    }

    private func presence(of link: LinkID) -> PeerPresence {
        let path = path(of: link)
        return PeerPresence(at: now, isLinked: true, rttMilliseconds: path?.rttMilliseconds, path: path)
    }

    /// The named peer at the other end of a link, by the key of its contact inbox; `nil` for others.
    private func contactKey(of link: ActiveLink) -> PublicKey? {
        let remote = link.connection.peer.publicKey
        let key =
            core.contact?.client == link.client
            ? remote : link.inbox.notes.guests.first { $0.member == remote }?.peer
        return key.flatMap { peers.peer($0) == nil ? nil : $0 }
    }

    /// A link ends: its peer was there until now.
    func noteLastHeard(_ id: LinkID) {
        guard let link = links[id], let key = contactKey(of: link) else { return }
        let path = path(of: id)
        let presence = PeerPresence(at: now, isLinked: false, rttMilliseconds: path?.rttMilliseconds, path: path)
        peers.noteHeard(key, presence)
    }
}
