import Crypto
import Logging
import Messaging
import NIOCore
import Store
import Transport

/// Transport events: handshakes, and links that open, receive and close. Each link event is a turn of the core.
final class LinkEvents: CorePart {
    let core: ProtocolCore
    private let routes: Routes
    private let counters: TokenCounters
    private let sleep: InboxSleep
    private let dials: Dials
    private let streams: RelayStreams
    private let output: LinkOutput
    private let transfers: FileTransfers
    private let peers: Peers
    private let mailboxes: MailboxLinks
    /// Limits how often invite holders wake sleeping inboxes.
    private var guestWakes = TokenBucket(Limits.guestWakeRate)

    init(
        _ core: ProtocolCore, _ routes: Routes, _ counters: TokenCounters, _ sleep: InboxSleep, _ dials: Dials,
        _ streams: RelayStreams, _ output: LinkOutput, _ transfers: FileTransfers, _ peers: Peers,
        _ mailboxes: MailboxLinks
    ) {
        self.core = core
        self.routes = routes
        self.counters = counters
        self.sleep = sleep
        self.dials = dials
        self.streams = streams
        self.output = output
        self.transfers = transfers
        self.peers = peers
        self.mailboxes = mailboxes
    }

    /// - Parameter knocks: answers knocks, which open no link.
    func connect(_ transport: LinkTransport, knocks: Knocks) {
        // Weak: a connection may outlive its node, and the transport is known to all of these.
        transport.events.route = { [weak self] token in self?.route(token) }
        transport.events.isKnown = { [weak routes] token in routes?.isKnown(token) ?? false }
        transport.events.acceptsKnock = { [weak routes] token in routes?.acceptsKnock(token) ?? false }
        transport.events.knock = { [weak knocks] token, sealed, source in knocks?.receive(token, sealed, from: source) }
        transport.events.dialAnswered = { [weak dials] number, token in dials?.dialAnswered(number, token) }
        transport.events.linkOpened = { [weak self] connection in self?.opened(connection) ?? connection.abort() }
        transport.events.frame = { [weak self] connection, bytes in self?.receive(bytes, on: connection) }
        transport.events.batchEnded = { [weak output] _ in output?.flush() }
        transport.events.becameWritable = { [weak transfers] connection in
            transfers?.becameWritable(LinkID(connection.id))
        }
        transport.events.linkClosed = { [weak self] connection, reason in self?.closed(connection, reason) }
        transport.events.rejected = { [weak self] in self?.services.counters.rejected($0) }
        transport.dialEnded = { [weak dials] number, failure, hearing in dials?.dialEnded(number, failure, hearing) }
        transport.tokenRefused = { [weak dials] number in dials?.tokenRefused(number) }
        services.stoodStill = { [weak self] since in self?.stoodStill(since: since) }
    }

    /// After a suspension, the arrival time of bytes in the kernel's buffers is unknown.
    private func stoodStill(since: Timestamp) {
        let pings = links.all.map { ($0.id, $0.stoodStill(since: since)) }
        guard !pings.isEmpty else { return }
        // Deferred: the turn that read the clock is still running.
        loop.assumeIsolated().execute { [weak self] in
            guard let self, !isStopped else { return }
            for (link, ping) in pings { output.transmit(.ping(ping), on: link) }
            output.flush()
        }
    }

    // MARK: Handshakes

    private func route(_ token: RoutingToken) -> RouteMatch? {
        // Without a key there is no handshake.
        guard !store.isLocked, let match = routes.match(token), !match.isKnock else { return nil }
        let number: UInt64
        switch match.route {
        case .member(let id), .shared(let id): number = id
        case .knockOnly: return nil
        }
        guard case .inbox(let client, let route)? = routes.target(of: number), let inbox = inboxes[client],
            !inbox.isTroubled(now: now), let key = inbox.key ?? sleepingKey(inbox)
        else { return nil }
        switch route {
        case .member(let remote):
            // Treated as an unknown token, which costs no curve operation.
            guard !core.machine.isShunned(remote, by: client, now: now) else { return nil }
            if routes.show(token) { counters.saveShown(inbox) }
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

    // MARK: Links

    private func opened(_ connection: PeerConnection) {
        let id = LinkID(connection.id)
        let weDialled = connection.role == .initiator
        guard let client = weDialled ? dialled(connection) : accepted(connection) else { return }
        let remote = connection.peer.publicKey
        if core.machine.contact?.client == client, peers.isBlocked(remote) { return connection.abort() }
        guard let inbox = inboxes[client] else { return connection.abort() }
        links.add(ActiveLink(connection, inbox: inbox))
        let description = LinkDescription(connection)
        services.counters.opened(description)
        note(.linkOpened(client, description))
        if let number = inbox.routes[.member(remote)] { routes.lan?.linked(number) }
        if !connection.isRelayed { dials.dropRelays(of: client, to: remote) }
        if core.machine.isSleeping(client) {
            // The inbox fell asleep during the dial.
            output.transmit(.closing(asleep: true), on: id)
            return output.close(id)
        }
        core.turn {
            core.machine.linkOpened(
                id, client: client, remote: remote, weDialled: weDialled, isRelayed: connection.isRelayed, &$0)
        }
        welcomeUnlessGuest(id)
    }

    /// - Returns: the link's inbox; `nil` if the link belongs to no inbox or was closed.
    private func dialled(_ connection: PeerConnection) -> ClientID? {
        if streams.linkOpened(connection) || mailboxes.linkOpened(connection) { return nil }
        guard !store.isLocked, let active = dials.opened(connection) else {
            connection.abort()
            return nil
        }
        if active.dial.route == .member {
            _ = inboxes[active.client]?.dialTokens[active.dial.remote]?.answered(connection.token)
            counters.save(active.client)
        }
        return active.client
    }

    /// - Returns: the link's inbox; `nil` if the link was closed.
    private func accepted(_ connection: PeerConnection) -> ClientID? {
        guard !store.isLocked, case .inbox(let client, let route)? = routes.target(of: connection.route) else {
            connection.abort()
            return nil
        }
        // First: the dialer has used up the token even if the inbox cannot wake.
        let hasMoved = routes.use(connection.token)
        if core.machine.isSleeping(client) {
            // Rate limit for invite holders: waking reads the disk and takes some milliseconds.
            if case .invite = route, guestWakes.take(now: now) != nil {
                connection.abort()
                return nil
            }
            sleep.wakeIfPossible(client, .pushNotification)
            // The disk refuses; the member retries.
            guard !core.machine.isSleeping(client) else {
                connection.abort()
                return nil
            }
        }
        if hasMoved { counters.save(client) }
        return client
    }

    /// Guests keep a stranger's small receive window (UDP). They hold an invite or our card, and have no business here
    /// yet.
    private func welcomeUnlessGuest(_ id: LinkID) {
        guard let connection = links[id]?.connection, !connection.isWelcome, !core.machine.isGuest(id) else { return }
        connection.welcome()
    }

    private func receive(_ bytes: [UInt8], on connection: PeerConnection) {
        let id = LinkID(connection.id)
        guard let link = links[id] else {
            if !mailboxes.receive(bytes, on: connection) { streams.receive(bytes, on: connection) }
            return
        }
        if link.isSilent {
            link.isSilent = false
            dials.confirmToken(of: link)
        }
        let frame: Frame
        do throws(WireError) { frame = try FrameCodec.decode(bytes) } catch {
            log.debug("a peer sent a malformed frame", metadata: ["client": "\(link.client)", "reason": "\(error)"])
            return connection.abort(.protocolViolation)
        }
        if case .pong(let nonce) = frame { peers.pongReceived(nonce, on: link) }
        output.count(frame, of: link.inbox, isSent: false)
        core.turn { core.machine.receive(link.aged(frame, now: $0.now), on: id, verify: InviteSlug.verify, &$0) }
        welcomeUnlessGuest(id)
    }

    private func closed(_ connection: PeerConnection, _ reason: LinkCloseReason) {
        let id = LinkID(connection.id)
        guard let link = links[id] else {
            if !mailboxes.linkClosed(id) { streams.linkClosed(id) }
            return
        }
        peers.noteLastHeard(link)
        links.remove(link)
        services.counters.closed(reason, in: connection.bytesIn, out: connection.bytesOut)
        note(.linkClosed(link.client, LinkDescription(connection), reason))
        transfers.stopServing(id)
        routes.lan?.stir()
        streams.end(on: id)
        core.turn { core.machine.linkClosed(id, &$0) }
    }

    /// Closes the links of an inbox to be reloaded, without an event to the core.
    func abandonLinks(of inbox: Inbox) {
        for link in inbox.links {
            links.remove(link)
            link.connection.abort()
            // The link's end event no longer finds the link.
            transfers.stopServing(link.id)
            streams.end(on: link.id)
        }
    }
}
