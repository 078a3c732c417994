import Logging
import Messaging
import NIOCore
import Primitives
import Store
import Wire

/// When and how a named peer was last heard.
package struct PeerSighting: Sendable {
    package var at: Timestamp
    /// From the ping to its pong, over an open link.
    package var rttMilliseconds: Double
    /// How it was reached then.
    package var path: LinkPath?
}

/// Nodes known by name: `peers.json`, contact cards, pings and invitations.
extension Node {
    /// - Throws: ``NodeError/unknownPeer(_:)``, and as ``peersFile()``.
    package func peer(_ name: String) throws(NodeError) -> (PeersFile.Peer, PeerSighting?) {
        try readPeers()
        guard let peer = peers[name] else { throw .unknownPeer(name) }
        return (peer, peers.sighting(name))
    }

    func isBlocked(_ key: PublicKey) -> Bool {
        peers.peers.contains { $0.contact?.key == key && $0.isBlocked }
    }

    /// Adds a peer to `peers.json`. Adding the same one again changes nothing.
    /// - Parameter card: its text form; `nil` for a peer that can only be listed.
    /// - Throws: ``NodeError/invalidPeerName(_:)``, ``NodeError/invalidCard(_:)``, ``NodeError/peerExists(_:)``,
    ///   ``NodeError/homeFile(_:)``.
    package func addPeer(_ name: String, card: String?, endpoints: [Messaging.Endpoint]) throws(NodeError)
        -> PeersFile.Peer
    {
        guard PeersFile.isName(name) else { throw .invalidPeerName(name) }
        var contact: ContactCard?
        if let card {
            do throws(ContactCard.Failure) { contact = try ContactCard(text: card) } catch { throw .invalidCard(error) }
        }
        let peer = PeersFile.Peer(name: name, contact: contact, endpoints: endpoints.isEmpty ? nil : endpoints)
        try readPeers()
        if let known = peers[name] {
            // Adding the same peer again changes nothing.
            guard known.contact == peer.contact, known.endpoints == peer.endpoints else { throw .peerExists(name) }
            return known
        }
        try editPeers { $0.append(peer) }
        return peer
    }

    /// - Throws: ``NodeError/unknownPeer(_:)``, ``NodeError/homeFile(_:)``.
    package func removePeer(_ name: String) throws(NodeError) {
        _ = try peer(name)
        try editPeers { $0.removeAll { $0.name == name } }
    }

    /// Changes an entry of `peers.json`.
    /// - Throws: ``NodeError/unknownPeer(_:)``, ``NodeError/homeFile(_:)``.
    package func changePeer(_ name: String, _ change: (inout PeersFile.Peer) -> Void) throws(NodeError)
        -> PeersFile.Peer
    {
        _ = try peer(name)
        try editPeers { peers in
            for index in peers.indices where peers[index].name == name { change(&peers[index]) }
        }
        return try peer(name).0
    }

    /// Refuses links and invitations of a peer, and forgets those that wait on either side.
    /// - Throws: ``NodeError/unknownPeer(_:)``, ``NodeError/homeFile(_:)``.
    package func blockPeer(_ name: String) throws(NodeError) {
        _ = try changePeer(name) { $0.blocked = true }
    }

    /// Cuts the links of peers that are blocked now and were not before, and forgets invitations and pings.
    private func cutBlocked(since before: PeersFile) {
        let known = Set(before.peers.filter(\.isBlocked).compactMap { $0.contact?.key })
        for peer in peers.peers where peer.isBlocked {
            guard let key = peer.contact?.key, !known.contains(key), core.contact != nil else { continue }
            turn { core.withContact(&$0) { contact, _ in contact.forget(key) } }
            if let client = core.contact?.client { abortLinks(of: client, to: key) }
            peers.pings.end(to: key, .peerBlocked(peer.name))
        }
    }

    /// Takes over the peers of another file; those with a name that is taken must be the same. All or none.
    package func importPeers(_ file: PeersFile) throws(NodeError) {
        if let (index, _) = file.firstWrongName {
            let name = file.peers[index].name
            if PeersFile.isName(name) { throw .peerExists(name) }
            throw .invalidPeerName(name)
        }
        try readPeers()
        for peer in file.peers {
            if let known = peers[peer.name], known.contact != peer.contact { throw .peerExists(peer.name) }
        }
        try editPeers { peers in
            for peer in file.peers where !peers.contains(where: { $0.name == peer.name }) { peers.append(peer) }
        }
    }

    /// `peers.json` as it is now.
    /// - Throws: ``NodeError/homeFile(_:)`` when the file was edited and cannot be read.
    package func peersFile() throws(NodeError) -> PeersFile {
        try readPeers()
        return peers.file
    }

    private func readPeers() throws(NodeError) {
        if let before = try peers.read(home: options.home) { peersChanged(since: before) }
    }

    /// At a tick: looks whether `peers.json` was edited.
    func lookAtPeers() {
        do throws(NodeError) {
            if let before = try peers.readIfEdited(home: options.home) { peersChanged(since: before) }
        } catch {
            guard case .homeFile(let failure) = error else { return }
            log.error(
                "peers.json was edited and cannot be read: the peers of before stay in use",
                metadata: ["line": failure.line.map { "\($0)" } ?? "-"]
            )
        }
    }

    private func editPeers(_ edit: (inout [PeersFile.Peer]) -> Void) throws(NodeError) {
        try readPeers()
        if let before = try peers.edit(home: options.home, edit) { peersChanged(since: before) }
    }

    private func peersChanged(since before: PeersFile) {
        rendezvousChanged()
        cutBlocked(since: before)
    }

    /// The card by which others can introduce themselves to this node.
    package func card() throws(NodeError) -> ContactCard {
        guard let contact = core.contact else { throw store.isLocked ? .locked : unreadError ?? .locked }
        return ContactCard(
            key: contact.key.publicKey,
            routingSecret: contact.record.routingSecret,
            endpoints: makeTurn().endpoints(of: contact.cardSeed)
        )
    }

    /// What `init --name` was given.
    package var configuredName: String? { configuration.name }

    // MARK: Ping

    /// Dials a peer's contact inbox.
    /// - Returns: the round trip in milliseconds.
    package func ping(_ name: String, timeout: Milliseconds) throws(NodeError) -> EventLoopFuture<Double> {
        let (peer, _) = try peer(name)
        if store.isLocked { throw .locked }
        if peer.isBlocked { throw .peerBlocked(name) }
        guard let card = peer.card else { throw .peerWithoutCard(name) }
        let promise = loop.makePromise(of: Double.self)
        var random = Randomness.system
        let nonce = random.next()
        let end = loop.assumeIsolated().scheduleTask(in: .milliseconds(timeout)) {
            self.assumeIsolated { node in
                guard let ping = node.peers.pings.take(nonce) else { return }
                node.turn { turn in
                    node.core.withContact(&turn) { contact, _ in contact.stopPing(ping.key, nonce: nonce) }
                }
                ping.promise.fail(NodeError.unreachable(name))
            }
        }
        let ping = PendingPing(peer: name, key: card.key, sentAt: loop.now, end: end, promise: promise)
        peers.pings.add(nonce, ping)
        turn { core.withContact(&$0) { contact, turn in contact.ping(card, nonce: nonce, &turn) } }
        return promise.futureResult
    }

    func pongReceived(_ nonce: UInt64, on link: LinkID) {
        guard let ping = peers.pings.take(nonce) else { return }
        ping.end.cancel()
        let elapsed = Double((loop.now - ping.sentAt).nanoseconds) / 1_000_000
        peers.saw(ping.peer, PeerSighting(at: now, rttMilliseconds: elapsed, path: path(of: link)))
        ping.promise.succeed(elapsed)
    }

    // MARK: Invitations

    /// Sends an invite to a peer's contact inbox, for as long as it is valid.
    package func sendInvitation(_ slug: String, invite: VerifiedInvite, name: String?, to peerName: String)
        throws(NodeError)
    {
        let (peer, _) = try peer(peerName)
        if peer.isBlocked { throw .peerBlocked(peerName) }
        guard let card = peer.card else { throw .peerWithoutCard(peerName) }
        turn { turn in
            let invitation = Invitation(id: .random(&turn.random), slug: slug, name: name)
            return core.withContact(&turn) { contact, turn in
                contact.send(invitation, to: card, deadline: invite.invite.expiresAt, &turn)
            }
        }
    }

    /// An invitation that waits for the user's answer.
    package struct ReceivedInvitation {
        package var id: Messaging.MessageID
        /// The peer's name; `nil` for a sender that is not in `peers.json`.
        package var from: String?
        package var slug: String
        package var name: String?
        package var receivedAt: Timestamp
    }

    /// Those that wait, in the order of their arrival.
    package func invitations() -> [ReceivedInvitation] {
        (core.contact?.record.received ?? []).map { received in
            ReceivedInvitation(
                id: received.invitation.id,
                from: peers.peer(received.from)?.name,
                slug: received.invitation.slug,
                name: received.invitation.name,
                receivedAt: received.receivedAt
            )
        }
    }

    /// Forgets an invitation; an unknown one is no error.
    package func dismissInvitation(_ id: Messaging.MessageID) {
        turn { core.withContact(&$0) { contact, _ in contact.dismiss(id) } }
    }

    /// Acts on an invitation that has just come, as the peer's entry says.
    func answer(invitation id: Messaging.MessageID, from key: PublicKey) {
        guard let received = core.contact?.record.received.first(where: { $0.invitation.id == id }) else { return }
        switch peers.peer(key)?.invitationPolicy ?? .ask {
        case .ask: break
        case .refuse: dismissInvitation(id)
        case .accept:
            let slug = received.invitation.slug
            loop.assumeIsolated().execute {
                self.assumeIsolated { node in
                    // One that we cannot accept now stays, for the user.
                    do { _ = try node.join(slug, profile: nil) } catch {
                        return node.log.warning("an invitation could not be accepted", metadata: ["error": "\(error)"])
                    }
                    node.dismissInvitation(id)
                }
            }
        }
    }
}
