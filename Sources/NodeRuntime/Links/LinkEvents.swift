import Cryptography
import Logging
import Messaging
import NIOCore
import Store
import Transport

/// Transport events: handshakes, and links that open, receive and close. Each link event is a turn of the core.
final class LinkEvents: Part {
    /// Limits how often invite holders wake sleeping inboxes.
    private var guestWakes = TokenBucket(Limits.guestWakeRate)

    func connect(_ transport: LinkTransport) {
        // Weak: a connection may outlive its node.
        transport.events.route = { [weak self] token in self?.route(token) }
        transport.events.isKnown = { [weak self] token in self?.shell.routes.isKnown(token) ?? false }
        transport.events.acceptsKnock = { [weak self] token in self?.shell.routes.acceptsKnock(token) ?? false }
        transport.events.knock = { [weak self] token, sealed, source in
            self?.shell.knocks.receive(token, sealed, from: source)
        }
        transport.events.linkOpened = { [weak self] connection in self?.accepted(connection) ?? connection.abort() }
        transport.events.frame = { [weak self] connection, bytes in self?.receive(bytes, on: connection) }
        transport.events.batchEnded = { [weak self] _ in self?.shell.output.flush() }
        transport.events.becameWritable = { [weak self] connection in
            self?.shell.transfers.becameWritable(LinkID(connection.id))
        }
        transport.events.linkClosed = { [weak self] connection, reason in self?.closed(connection, reason) }
        transport.events.rejected = { [weak self] in self?.services.counters.rejected($0) }
        services.stoodStill = { [weak self] since in self?.stoodStill(since: since) }
    }

    /// After a suspension, the arrival time of bytes in the kernel's buffers is unknown.
    private func stoodStill(since: Timestamp) {
        let pings = links.all.map { ($0.id, $0.stoodStill(since: since)) }
        guard !pings.isEmpty else { return }
        // Deferred: the turn that read the clock is still running.
        loop.assumeIsolated().execute { [weak self] in
            guard let self, !isStopped else { return }
            for (link, ping) in pings { shell.output.transmit(.ping(ping), on: link) }
            shell.output.flush()
        }
    }

    private func route(_ token: RoutingToken) -> RouteMatch? {
        // Without a key there is no handshake.
        guard !store.isLocked, let match = shell.routes.match(token), !match.isKnock else { return nil }
        let number: UInt64
        switch match.route {
        case .member(let id), .shared(let id): number = id
        case .knockOnly: return nil
        }
        guard case .inbox(let client, let route)? = shell.routes.target(of: number), let inbox = inboxes[client],
            !inbox.isTroubled(now: now), let key = inbox.key ?? sleepingKey(inbox)
        else { return nil }
        switch route {
        case .member(let remote):
            // Treated as an unknown token, which costs no curve operation.
            guard !core.machine.isShunned(remote, by: client, now: now) else { return nil }
            if shell.routes.show(token) { shell.counters.saveShown(inbox) }
            return RouteMatch(identity: key, route: number, remote: remote)
        case .invite, .contact: return RouteMatch(identity: key, route: number, remote: nil)
        }
    }

    /// The key of a sleeping inbox, derived from its row. The inbox wakes only after the handshake has proved
    /// membership, so that an overheard token cannot wake it.
    private func sleepingKey(_ inbox: Inbox) -> IdentityKey? {
        guard core.machine.isSleeping(inbox.client), !store.isLocked else { return nil }
        return try? inbox.deriveKey(in: store)
    }

    /// A link of an inbox is open: an incoming one, or a dial's.
    func opened(_ connection: PeerConnection, of client: ClientID) {
        let id = LinkID(connection.id)
        let remote = connection.peer.publicKey
        if core.machine.contact?.client == client, shell.peers.isBlocked(remote) { return connection.abort() }
        guard let inbox = inboxes[client] else { return connection.abort() }
        links.add(ActiveLink(connection, inbox: inbox))
        let description = LinkDescription(connection)
        services.counters.opened(description)
        note(.linkOpened(client, description))
        if let number = inbox.routes[.member(remote)] { shell.routes.lan?.linked(number) }
        if !connection.isRelayed { shell.dials.dropRelays(of: client, to: remote) }
        if core.machine.isSleeping(client) {
            // The inbox fell asleep during the dial.
            shell.output.transmit(.closing(asleep: true), on: id)
            return shell.output.close(id)
        }
        core.turn {
            core.machine.linkOpened(
                id, client: client, remote: remote, weDialled: connection.role == .initiator,
                isRelayed: connection.isRelayed, &$0)
        }
        welcomeUnlessGuest(id)
    }

    private func accepted(_ connection: PeerConnection) {
        guard !store.isLocked, case .inbox(let client, let route)? = shell.routes.target(of: connection.route) else {
            return connection.abort()
        }
        // First: the dialer has used up the token even if the inbox cannot wake.
        let hasMoved = shell.routes.use(connection.token)
        if core.machine.isSleeping(client) {
            // Rate limit for invite holders: waking reads the disk and takes some milliseconds.
            if case .invite = route, guestWakes.take(now: now) != nil { return connection.abort() }
            shell.sleep.wakeIfPossible(client, .pushNotification)
            // The disk refuses; the member retries.
            guard !core.machine.isSleeping(client) else { return connection.abort() }
        }
        if hasMoved { shell.counters.save(client) }
        opened(connection, of: client)
    }

    /// Guests keep a stranger's small receive window (UDP). They hold an invite or our card, and have no business here
    /// yet.
    private func welcomeUnlessGuest(_ id: LinkID) {
        guard let connection = links[id]?.connection, !connection.isWelcome, !core.machine.isGuest(id) else { return }
        connection.welcome()
    }

    private func receive(_ bytes: [UInt8], on connection: PeerConnection) {
        let id = LinkID(connection.id)
        guard let link = links[id] else { return shell.anonymousLinks.receive(bytes, on: connection) }
        if link.isSilent {
            link.isSilent = false
            shell.dials.confirmToken(of: link)
        }
        let frame: Frame
        do throws(WireError) { frame = try FrameCodec.decode(bytes) } catch {
            log.debug("a peer sent a malformed frame", metadata: ["client": "\(link.client)", "reason": "\(error)"])
            return connection.abort(.protocolViolation)
        }
        if case .pong(let nonce) = frame { shell.peers.pongReceived(nonce, on: link) }
        shell.output.count(frame, of: link.inbox, isSent: false)
        core.turn { core.machine.receive(link.aged(frame, now: $0.now), on: id, verify: InviteSlug.verify, &$0) }
        welcomeUnlessGuest(id)
    }

    private func closed(_ connection: PeerConnection, _ reason: LinkCloseReason) {
        let id = LinkID(connection.id)
        guard let link = links[id] else { return shell.anonymousLinks.linkClosed(id) }
        shell.peers.noteLastHeard(link)
        links.remove(link)
        services.counters.closed(reason, in: connection.bytesIn, out: connection.bytesOut)
        note(.linkClosed(link.client, LinkDescription(connection), reason))
        shell.transfers.stopServing(id)
        shell.routes.lan?.stir()
        shell.streams.end(on: id)
        core.turn { core.machine.linkClosed(id, &$0) }
    }

    /// Closes the links of an inbox to be reloaded, without an event to the core.
    func abandonLinks(of inbox: Inbox) {
        for link in inbox.links {
            links.remove(link)
            link.connection.abort()
            // The link's end event no longer finds the link.
            shell.transfers.stopServing(link.id)
            shell.streams.end(on: link.id)
        }
    }
}
