import Crypto
import Logging
import Messaging
import NIOCore
import Store
import Transport
import Wire

/// Nodes known by name: `peers.json`, contact cards, pings and invitations.
final class Peers: CorePart {
    private static let editAttempts = 16

    let core: ProtocolCore
    private let unread: UnreadInboxes
    let book: PeerBook
    private let addresses: OwnAddresses
    private let output: LinkOutput
    let rendezvous: RendezvousNodes
    /// Joins by an invite that a peer has sent, as its entry says.
    var join: (_ slug: String) throws -> Void = { _ in }

    init(
        _ core: ProtocolCore, _ unread: UnreadInboxes, _ book: PeerBook, _ addresses: OwnAddresses,
        _ output: LinkOutput, _ rendezvous: RendezvousNodes
    ) {
        self.core = core
        self.unread = unread
        self.book = book
        self.addresses = addresses
        self.output = output
        self.rendezvous = rendezvous
    }

    /// - Throws: ``NodeError/unknownPeer(_:)``, and as ``file()``.
    func peer(_ name: String) throws(NodeError) -> (PeersFile.Peer, PeerSighting?) {
        try readPeers()
        guard let peer = book[name] else { throw .unknownPeer(name) }
        return (peer, book.sighting(name))
    }

    /// Lets others reach us through a peer, or no longer.
    /// - Throws: ``NodeError/unknownPeer(_:)``, ``NodeError/peerWithoutCard(_:)``, ``NodeError/tooManyRendezvous``,
    ///   ``NodeError/homeFile(_:)``.
    func setRendezvous(_ name: String, _ isRendezvous: Bool) throws(NodeError) {
        let (peer, _) = try peer(name)
        if isRendezvous, !peer.isRendezvous {
            guard peer.card != nil else { throw .peerWithoutCard(name) }
            guard book.peers.count(where: \.isRendezvous) < Limits.rendezvousCount else { throw .tooManyRendezvous }
        }
        _ = try change(name) { $0.rendezvous = isRendezvous ? true : nil }
    }

    /// Has a peer keep what comes for us while we are away, or no longer.
    /// - Throws: ``NodeError/unknownPeer(_:)``, ``NodeError/peerWithoutCard(_:)``, ``NodeError/otherMailbox(_:)``,
    ///   ``NodeError/homeFile(_:)``.
    func setMailbox(_ name: String, _ isMailbox: Bool) throws(NodeError) {
        let (peer, _) = try peer(name)
        if isMailbox, !peer.isMailbox {
            guard peer.card != nil else { throw .peerWithoutCard(name) }
            if let other = book.peers.first(where: \.isMailbox) { throw .otherMailbox(other.name) }
        }
        _ = try change(name) { $0.mailbox = isMailbox ? true : nil }
    }

    func isBlocked(_ key: PublicKey) -> Bool { book.peers.contains { $0.contact?.key == key && $0.isBlocked } }

    /// Adds a peer to `peers.json`. Adding the same one again changes nothing.
    /// - Parameter card: its text form; `nil` for a peer that can only be listed.
    /// - Throws: ``NodeError/invalidPeerName(_:)``, ``NodeError/invalidCard(_:)``, ``NodeError/peerExists(_:)``,
    ///   ``NodeError/homeFile(_:)``.
    func add(_ name: String, card: String?, endpoints: [Messaging.Endpoint]) throws(NodeError) -> PeersFile.Peer {
        guard PeersFile.isName(name) else { throw .invalidPeerName(name) }
        var contact: ContactCard?
        if let card {
            do throws(ContactCard.Failure) { contact = try ContactCard(text: card) } catch { throw .invalidCard(error) }
        }
        let peer = PeersFile.Peer(name: name, contact: contact, endpoints: endpoints.isEmpty ? nil : endpoints)
        try readPeers()
        if let known = book[name] {
            // Adding the same peer again changes nothing.
            guard known.contact == peer.contact, known.endpoints == peer.endpoints else { throw .peerExists(name) }
            return known
        }
        try editPeers { $0.append(peer) }
        return peer
    }

    /// - Throws: ``NodeError/unknownPeer(_:)``, ``NodeError/homeFile(_:)``.
    func remove(_ name: String) throws(NodeError) {
        _ = try peer(name)
        try editPeers { $0.removeAll { $0.name == name } }
    }

    /// Changes an entry of `peers.json`.
    /// - Throws: ``NodeError/unknownPeer(_:)``, ``NodeError/homeFile(_:)``.
    func change(_ name: String, _ change: (inout PeersFile.Peer) -> Void) throws(NodeError) -> PeersFile.Peer {
        _ = try peer(name)
        try editPeers { peers in for index in peers.indices where peers[index].name == name { change(&peers[index]) } }
        return try peer(name).0
    }

    /// Refuses links and invitations of a peer, and forgets those that wait on either side.
    /// - Throws: ``NodeError/unknownPeer(_:)``, ``NodeError/homeFile(_:)``.
    func block(_ name: String) throws(NodeError) { _ = try change(name) { $0.blocked = true } }

    /// Cuts the links of peers that are blocked now and were not before, and forgets invitations and pings.
    private func cutBlocked(since before: PeersFile) {
        let known = Set(before.peers.filter(\.isBlocked).compactMap { $0.contact?.key })
        for peer in book.peers where peer.isBlocked {
            guard let key = peer.contact?.key, !known.contains(key), core.machine.contact != nil else { continue }
            core.turn { core.machine.withContact(&$0) { contact, _ in contact.forget(key) } }
            if let client = core.machine.contact?.client { output.abort(LinkName(client: client, remote: key)) }
            book.pings.end(to: key, .peerBlocked(peer.name))
        }
    }

    /// Takes over the peers of another file; those with a name that is taken must be the same. All or none.
    func take(_ file: PeersFile) throws(NodeError) {
        if let (index, _) = file.firstWrongName {
            let name = file.peers[index].name
            if PeersFile.isName(name) { throw .peerExists(name) }
            throw .invalidPeerName(name)
        }
        try readPeers()
        for peer in file.peers {
            if let known = book[peer.name], known.contact != peer.contact { throw .peerExists(peer.name) }
        }
        try editPeers { peers in
            for peer in file.peers where !peers.contains(where: { $0.name == peer.name }) { peers.append(peer) }
        }
    }

    /// `peers.json` as it is now.
    /// - Throws: ``NodeError/homeFile(_:)`` when the file was edited and cannot be read.
    func file() throws(NodeError) -> PeersFile {
        try readPeers()
        return book.file
    }

    /// Takes over what somebody has written.
    /// - Returns: whether it was something else than before.
    func reload() throws(NodeError) -> Bool {
        let before = book.file
        try readPeers()
        return book.file != before
    }

    private func readPeers() throws(NodeError) {
        if let before = try book.read(home: options.home) { peersChanged(since: before) }
    }

    /// At a tick: looks whether `peers.json` was edited.
    func look() {
        do throws(NodeError) {
            if let before = try book.readIfEdited(home: options.home) { peersChanged(since: before) }
        } catch {
            guard case .homeFile(let failure) = error else { return }
            log.error(
                "peers.json was edited and cannot be read: the peers of before stay in use",
                metadata: ["line": failure.line.map { "\($0)" } ?? "-"])
        }
    }

    /// - Parameter edit: is called again when somebody else has written the file meanwhile.
    private func editPeers(_ edit: (inout [PeersFile.Peer]) -> Void) throws(NodeError) {
        for _ in 0..<Self.editAttempts {
            try readPeers()
            guard case .saved(let before) = try book.edit(home: options.home, edit) else { continue }
            if let before { peersChanged(since: before) }
            return
        }
        throw .homeFile(
            HomeFileError(
                kind: .system, path: "\(options.home)/\(PeersFile.fileName)", line: nil,
                reason: "another program writes it all the time"))
    }

    private func peersChanged(since before: PeersFile) {
        rendezvous.changed()
        cutBlocked(since: before)
    }

    /// The card by which others can introduce themselves to this node.
    func card() throws(NodeError) -> ContactCard {
        guard let contact = core.machine.contact else { throw store.isLocked ? .locked : unread.error ?? .locked }
        return ContactCard(
            key: contact.key.publicKey, routingSecret: contact.record.routingSecret,
            endpoints: core.makeTurn().endpoints(of: contact.cardSeed))
    }

    // MARK: Ping

    /// Dials a peer's contact inbox.
    /// - Returns: the round trip in milliseconds.
    func ping(_ name: String, timeout: Milliseconds) throws(NodeError) -> EventLoopFuture<Double> {
        let (peer, _) = try peer(name)
        if store.isLocked { throw .locked }
        if peer.isBlocked { throw .peerBlocked(name) }
        guard let card = peer.card else { throw .peerWithoutCard(name) }
        let promise = loop.makePromise(of: Double.self)
        var random = Randomness.system
        let nonce = random.next()
        let end = loop.assumeIsolated().scheduleTask(in: .milliseconds(timeout)) {
            guard let ping = self.book.pings.take(nonce) else { return }
            self.core.turn { turn in
                self.core.machine.withContact(&turn) { contact, _ in contact.stopPing(ping.key, nonce: nonce) }
            }
            ping.promise.fail(NodeError.unreachable(name))
        }
        let ping = PendingPing(peer: name, key: card.key, sentAt: loop.now, end: end, promise: promise)
        book.pings.add(nonce, ping)
        core.turn { core.machine.withContact(&$0) { contact, turn in contact.ping(card, nonce: nonce, &turn) } }
        return promise.futureResult
    }

    func pongReceived(_ nonce: UInt64, on link: ActiveLink) {
        guard let ping = book.pings.take(nonce) else { return }
        ping.end.cancel()
        let elapsed = Double((loop.now - ping.sentAt).nanoseconds) / 1_000_000
        book.saw(ping.peer, PeerSighting(at: now, rttMilliseconds: elapsed, path: path(of: link.connection)))
        ping.promise.succeed(elapsed)
    }

    // MARK: Invitations

    /// Sends an invite to a peer's contact inbox, for as long as it is valid.
    func sendInvitation(_ slug: String, invite: VerifiedInvite, name: String?, to peerName: String) throws(NodeError) {
        let (peer, _) = try peer(peerName)
        if peer.isBlocked { throw .peerBlocked(peerName) }
        guard let card = peer.card else { throw .peerWithoutCard(peerName) }
        core.turn { turn in
            let invitation = Invitation(id: .random(&turn.random), slug: slug, name: name)
            return core.machine.withContact(&turn) { contact, turn in
                contact.send(invitation, to: card, deadline: invite.invite.expiresAt, &turn)
            }
        }
    }

    /// Those that wait, in the order of their arrival.
    func invitations() -> [ReceivedInvitation] {
        (core.machine.contact?.record.received ?? []).map { received in
            ReceivedInvitation(
                id: received.invitation.id, from: book.peer(received.from)?.name, slug: received.invitation.slug,
                name: received.invitation.name, receivedAt: received.receivedAt)
        }
    }

    /// Forgets an invitation; an unknown one is no error.
    func dismissInvitation(_ id: Messaging.MessageID) {
        core.turn { core.machine.withContact(&$0) { contact, _ in contact.dismiss(id) } }
    }

    /// Acts on an invitation that has just come, as the peer's entry says.
    func answer(invitation id: Messaging.MessageID, from key: PublicKey) {
        guard let received = core.machine.contact?.record.received.first(where: { $0.invitation.id == id }) else {
            return
        }
        switch book.peer(key)?.invitationPolicy ?? .ask {
        case .ask: break
        case .refuse: dismissInvitation(id)
        case .accept:
            let slug = received.invitation.slug
            loop.assumeIsolated().execute {
                // One that we cannot accept now stays, for the user.
                do { try self.join(slug) } catch {
                    return self.log.warning("an invitation could not be accepted", metadata: ["error": "\(error)"])
                }
                self.dismissInvitation(id)
            }
        }
    }

    // MARK: Presence

    /// How the other side of a link is reached.
    func path(of connection: PeerConnection) -> LinkPath? {
        LinkPath(of: connection, addresses: addresses, now: now, loop: loop)
    }

    /// Of the peers that are linked or have been heard since the start, by their names.
    func presences() -> [String: PeerPresence] {
        var result = book.lastHeard
        guard !links.isEmpty, !book.peers.isEmpty else { return result }
        let names = Dictionary(book.peers.compactMap { peer in peer.contact.map { ($0.key, peer.name) } }) { one, _ in
            one
        }
        for link in links.all {
            guard let name = contactKey(of: link).flatMap({ names[$0] }) else { continue }
            var presence = presence(of: link)
            let isOfMember = core.machine.contact?.client != link.client
            // The oldest link that there is, and the contact inbox's before a member's.
            if isOfMember, result[name]?.isLinked ?? false { continue }
            presence.rttMilliseconds = presence.rttMilliseconds ?? result[name]?.rttMilliseconds
            result[name] = presence
        }
        return result
    }

    private func presence(of link: ActiveLink) -> PeerPresence {
        let path = path(of: link.connection)
        return PeerPresence(at: now, isLinked: true, rttMilliseconds: path?.rttMilliseconds, path: path)
    }

    /// The named peer at the other end of a link, by the key of its contact inbox; `nil` for others.
    private func contactKey(of link: ActiveLink) -> PublicKey? {
        let remote = link.connection.peer.publicKey
        let key =
            core.machine.contact?.client == link.client
            ? remote : link.inbox.notes.guests.first { $0.member == remote }?.peer
        return key.flatMap { book.peer($0) == nil ? nil : $0 }
    }

    /// A link ends: its peer was there until now.
    func noteLastHeard(_ link: ActiveLink) {
        guard let key = contactKey(of: link) else { return }
        let path = path(of: link.connection)
        let presence = PeerPresence(at: now, isLinked: false, rttMilliseconds: path?.rttMilliseconds, path: path)
        book.noteHeard(key, presence)
    }
}
