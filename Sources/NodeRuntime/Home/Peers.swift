import Cryptography
import Logging
import Messaging
import NIOCore
import Store
import Transport

/// Named peers: `peers.json`, contact cards, pings and invitations.
package final class Peers: Part {
    private static let editAttempts = 16

    /// Joins by an invite of a peer whose entry accepts invitations.
    var join: (_ slug: String) throws -> Void = { _ in }

    package func peer(_ name: String) throws(NodeError) -> (PeersFile.Peer, PeerSighting?) {
        try readPeers()
        guard let peer = shell.book[name] else {
            throw .notFound("no peer `\(name)`", "`mayfly peer list` shows the peers")
        }
        return (peer, shell.book.sightings[name])
    }

    /// Starts or stops using a peer as a rendezvous node.
    package func setRendezvous(_ name: String, _ isRendezvous: Bool) throws(NodeError) {
        let (peer, _) = try peer(name)
        if isRendezvous, !peer.isRendezvous {
            guard peer.card != nil else { throw .peerWithoutCard(name) }
            guard shell.book.peers.count(where: \.isRendezvous) < Limits.rendezvousCount else {
                throw .failed(
                    "\(Limits.rendezvousCount) rendezvous nodes are in use already",
                    "remove one: `mayfly peer set NAME rendezvous=off`")
            }
        }
        _ = try change(name) { $0.rendezvous = isRendezvous ? true : nil }
    }

    /// Starts or stops using a peer as our mailbox.
    package func setMailbox(_ name: String, _ isMailbox: Bool) throws(NodeError) {
        let (peer, _) = try peer(name)
        if isMailbox, !peer.isMailbox {
            guard peer.card != nil else { throw .peerWithoutCard(name) }
            if let other = shell.book.peers.first(where: \.isMailbox)?.name {
                throw .failed(
                    "\(other) is the mailbox already",
                    "a node has one mailbox; first: `mayfly peer set \(other) mailbox=off`")
            }
        }
        _ = try change(name) { $0.mailbox = isMailbox ? true : nil }
    }

    func isBlocked(_ key: PublicKey) -> Bool { shell.book.peers.contains { $0.contact?.key == key && $0.isBlocked } }

    /// Adds a peer to `peers.json`. Idempotent.
    /// - Parameter card: its text form; without a card the peer can only be listed.
    package func add(_ name: String, card: String?, endpoints: [Messaging.Endpoint]) throws(NodeError) -> PeersFile.Peer
    {
        guard PeersFile.isName(name) else { throw .invalidPeerName(name) }
        var contact: ContactCard?
        if let card {
            do throws(ContactCard.Failure) { contact = try ContactCard(text: card) } catch {
                throw .command(error.explained)
            }
        }
        if let key = contact?.key, key == core.machine.contact?.key.publicKey {
            throw .usage(
                "this is the contact card of this node",
                "give another node's: `mayfly peer card` on that node prints it")
        }
        let peer = PeersFile.Peer(name: name, contact: contact, endpoints: endpoints.isEmpty ? nil : endpoints)
        try readPeers()
        if let known = shell.book[name] {
            guard known.contact == peer.contact, known.endpoints == peer.endpoints else { throw .peerExists(name) }
            return known
        }
        try editPeers { $0.append(peer) }
        return peer
    }

    package func remove(_ name: String) throws(NodeError) {
        _ = try peer(name)
        try editPeers { $0.removeAll { $0.name == name } }
    }

    package func change(_ name: String, _ change: (inout PeersFile.Peer) -> Void) throws(NodeError) -> PeersFile.Peer {
        _ = try peer(name)
        try editPeers { peers in for index in peers.indices where peers[index].name == name { change(&peers[index]) } }
        return try peer(name).0
    }

    /// Refuses a peer's links and invitations, and drops pending ones in both directions.
    package func block(_ name: String) throws(NodeError) { _ = try change(name) { $0.blocked = true } }

    /// Closes the links of newly blocked peers, and drops their invitations and pings.
    private func cutBlocked(since before: PeersFile) {
        let known = Set(before.peers.filter(\.isBlocked).compactMap { $0.contact?.key })
        for peer in shell.book.peers where peer.isBlocked {
            guard let key = peer.contact?.key, !known.contains(key), core.machine.contact != nil else { continue }
            core.turn { core.machine.withContact(&$0) { contact, _ in contact.forget(key) } }
            if let client = core.machine.contact?.client { shell.output.abort(LinkName(client: client, remote: key)) }
            shell.book.pings.end(to: key, .peerBlocked(peer.name))
        }
    }

    /// Imports the peers of another file, all or none. A peer with an existing name must be identical.
    package func take(_ file: PeersFile) throws(NodeError) {
        if let (index, _) = file.firstWrongName {
            let name = file.peers[index].name
            if PeersFile.isName(name) { throw .peerExists(name) }
            throw .invalidPeerName(name)
        }
        try readPeers()
        for peer in file.peers {
            if let known = shell.book[peer.name], known.contact != peer.contact { throw .peerExists(peer.name) }
        }
        try editPeers { peers in
            for peer in file.peers where !peers.contains(where: { $0.name == peer.name }) { peers.append(peer) }
        }
    }

    /// The current `peers.json`.
    /// - Throws: ``NodeError/homeFile(_:)`` when an edited file cannot be read.
    package func file() throws(NodeError) -> PeersFile {
        try readPeers()
        return shell.book.file
    }

    /// Takes over edits of `peers.json`.
    /// - Returns: whether the peers changed.
    func reload() throws(NodeError) -> Bool {
        let before = shell.book.file
        try readPeers()
        return shell.book.file != before
    }

    private func readPeers() throws(NodeError) {
        if let before = try shell.book.read(home: options.home) { peersChanged(since: before) }
    }

    func look() {
        do throws(NodeError) {
            if let before = try shell.book.readIfEdited(home: options.home) { peersChanged(since: before) }
        } catch {
            guard case .homeFile(let failure) = error else { return }
            log.error(
                "peers.json was edited and cannot be read: the previous peers stay in use",
                metadata: ["line": failure.line.map { "\($0)" } ?? "-"])
        }
    }

    /// - Parameter edit: called again when another process edited the file in between.
    private func editPeers(_ edit: (inout [PeersFile.Peer]) -> Void) throws(NodeError) {
        for _ in 0..<Self.editAttempts {
            try readPeers()
            guard case .saved(let before) = try shell.book.edit(home: options.home, edit) else { continue }
            if let before { peersChanged(since: before) }
            return
        }
        throw .homeFile(
            HomeFileError(
                kind: .busy, path: "\(options.home)/\(PeersFile.fileName)",
                reason: "another program changes it again and again"))
    }

    private func peersChanged(since before: PeersFile) {
        shell.peerServices.changed()
        cutBlocked(since: before)
    }

    func card() throws(NodeError) -> ContactCard {
        guard let contact = core.machine.contact else { throw store.isLocked ? .locked : shell.unread.error ?? .locked }
        return ContactCard(
            key: contact.key.publicKey, routingSecret: contact.record.routingSecret,
            endpoints: core.makeTurn().endpoints(of: contact.cardSeed))
    }

    /// - Returns: the round trip in milliseconds.
    package func ping(_ name: String, timeout: Milliseconds) throws(NodeError) -> EventLoopFuture<Double> {
        let (peer, _) = try peer(name)
        if store.isLocked { throw .locked }
        if peer.isBlocked { throw .peerBlocked(name) }
        guard let card = peer.card else { throw .peerWithoutCard(name) }
        let promise = loop.makePromise(of: Double.self)
        let nonce = random.next()
        let end = after(timeout) {
            guard let ping = self.shell.book.pings.take(nonce) else { return }
            self.core.turn { turn in
                self.core.machine.withContact(&turn) { contact, _ in contact.stopPing(ping.key, nonce: nonce) }
            }
            ping.promise.fail(
                NodeError.unreachable(
                    "`\(name)` did not answer", "check that its node runs and that its endpoints are right"))
        }
        let ping = PendingPing(peer: name, key: card.key, sentAt: loop.now, end: end, promise: promise)
        shell.book.pings.add(nonce, ping)
        core.turn { core.machine.withContact(&$0) { contact, turn in contact.ping(card, nonce: nonce, &turn) } }
        return promise.futureResult
    }

    func pongReceived(_ nonce: UInt64, on link: ActiveLink) {
        guard let ping = shell.book.pings.take(nonce) else { return }
        ping.end.cancel()
        let elapsed = Double((loop.now - ping.sentAt).nanoseconds) / 1_000_000
        shell.book.saw(ping.peer, PeerSighting(at: now, rttMilliseconds: elapsed, path: path(of: link.connection)))
        ping.promise.succeed(elapsed)
    }

    package func sendInvitation(_ slug: String, invite: VerifiedInvite, name: String?, to peerName: String)
        throws(NodeError)
    {
        let (peer, _) = try peer(peerName)
        if peer.isBlocked { throw .peerBlocked(peerName) }
        guard let card = peer.card else { throw .peerWithoutCard(peerName) }
        core.turn { turn in
            let invitation = Invitation(id: .random(&turn.random), slug: slug, name: name)
            core.machine.withContact(&turn) { contact, turn in
                contact.send(invitation, to: card, deadline: invite.invite.expiresAt, &turn)
            }
        }
    }

    package func invitations() -> [ReceivedInvitation] {
        (core.machine.contact?.record.received ?? []).map { received in
            ReceivedInvitation(
                id: received.invitation.id, from: shell.book.peer(received.from)?.name, slug: received.invitation.slug,
                name: received.invitation.name, receivedAt: received.receivedAt)
        }
    }

    /// Drops an invitation. Idempotent.
    package func dismissInvitation(_ id: Messaging.MessageID) {
        core.turn { core.machine.withContact(&$0) { contact, _ in contact.dismiss(id) } }
    }

    func answer(invitation id: Messaging.MessageID, from key: PublicKey) {
        guard let received = core.machine.contact?.record.received.first(where: { $0.invitation.id == id }) else {
            return
        }
        switch shell.book.peer(key)?.invitationPolicy ?? .ask {
        case .ask: break
        case .refuse: dismissInvitation(id)
        case .accept:
            let slug = received.invitation.slug
            execute {
                // An invitation that cannot be accepted now stays for the user.
                do { try self.join(slug) } catch {
                    return self.log.warning("an invitation could not be accepted", metadata: ["error": "\(error)"])
                }
                self.dismissInvitation(id)
            }
        }
    }

    func path(of connection: PeerConnection) -> LinkPath? {
        LinkPath(of: connection, addresses: shell.addresses, now: now, loop: loop)
    }

    /// Presence of the peers that are linked or have been heard since the start, by name.
    package func presences() -> [String: PeerPresence] {
        var result = shell.book.lastHeard
        guard !links.isEmpty, !shell.book.peers.isEmpty else { return result }
        let names = Dictionary(shell.book.peers.compactMap { peer in peer.contact.map { ($0.key, peer.name) } }) {
            one, _ in one
        }
        for link in links.all {
            guard let name = contactKey(of: link).flatMap({ names[$0] }) else { continue }
            var presence = presence(of: link)
            let isOfMember = core.machine.contact?.client != link.client
            // The oldest link counts, and the contact inbox's link before a member's.
            if isOfMember, result[name]?.isLinked ?? false { continue }
            presence.rttMilliseconds = presence.rttMilliseconds ?? result[name]?.rttMilliseconds
            result[name] = presence
        }
        return result
    }

    private func presence(of link: ActiveLink, isLinked: Bool = true) -> PeerPresence {
        let path = path(of: link.connection)
        return PeerPresence(at: now, isLinked: isLinked, rttMilliseconds: path?.rttMilliseconds, path: path)
    }

    /// The contact key of the named peer at the other end of a link; `nil` for unnamed peers.
    private func contactKey(of link: ActiveLink) -> PublicKey? {
        let remote = link.connection.peer.publicKey
        let key =
            core.machine.contact?.client == link.client
            ? remote : link.inbox.notes.guests.first { $0.member == remote }?.peer
        return key.flatMap { shell.book.peer($0) == nil ? nil : $0 }
    }

    /// Records the end of a link as the time when its peer was last heard.
    func noteLastHeard(_ link: ActiveLink) {
        if let key = contactKey(of: link) { shell.book.noteHeard(key, presence(of: link, isLinked: false)) }
    }
}
