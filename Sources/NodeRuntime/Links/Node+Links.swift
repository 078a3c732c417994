import Logging
import Messaging
import NIOCore
import NIOPosix
import Noise
import Primitives
import Store
import Transport
import Wire

/// Where an incoming token leads.
enum RouteTarget: Hashable {
    case inbox(ClientID, NodeAction.Route)
    case tombstone(ConversationID, Knocker)

    /// Who may knock at a tombstone.
    enum Knocker: Hashable {
        case member(PublicKey)
        /// A holder of this one of its invites.
        case invite(Int)
    }
}

/// A route by what it is for.
typealias RouteName = RouteTarget

/// One of our inboxes and another one.
struct LinkName: Hashable {
    var client: ClientID
    var remote: PublicKey
}

/// One way of a dial of the core's.
struct ActiveDial {
    var client: ClientID
    var dial: NodeAction.Dial
    /// The dial, by its number.
    var group: UInt64
    let shown: ShownToken
}

/// The token of a dial, the same over all ways, until a node has refused it.
///
/// `@unchecked Sendable` for the closure by which a transport asks for it: only the node, on its loop, touches it.
final class ShownToken: @unchecked Sendable {
    var token: RoutingToken?
}

final class ActiveLink {
    let id: LinkID
    let inbox: Inbox
    let connection: PeerConnection
    var pauses = ReadingPauses()
    /// Nothing has come over it yet.
    var isSilent = true
    /// What has been said of contents since the last flush: it leaves in one frame, ahead of every other but contents.
    var said = Acknowledgement()
    /// Pieces of relayed streams that are not there.
    var lostPieces = IdleFrames.relayed

    var client: ClientID { inbox.client }
    var remote: PublicKey { connection.peer.publicKey }

    init(_ connection: PeerConnection, inbox: Inbox) {
        id = LinkID(connection.id)
        self.inbox = inbox
        self.connection = connection
    }
}

/// Links: the transport's events into the core, the core's dials and frames into the transport.
extension Node {
    func connectEvents(of transport: LinkTransport) {
        transport.events.route = { [unowned self] token in assumeIsolated { $0.route(token) } }
        transport.events.isKnown = { [unowned self] token in
            assumeIsolated { $0.routing.match(token).map { !$0.isKnock } ?? false }
        }
        transport.events.acceptsKnock = { [unowned self] token in
            assumeIsolated { $0.routing.match(token)?.isKnock ?? false }
        }
        transport.events.knock = { [unowned self] token, sealed, source in
            assumeIsolated { $0.receiveKnock(token, sealed, from: source) }
        }
        transport.events.dialAnswered = { [unowned self] number, token in
            assumeIsolated { $0.dialAnswered(number, token) }
        }
        transport.events.linkOpened = { [unowned self] connection in
            assumeIsolated { $0.linkOpened(connection) }
        }
        transport.events.frame = { [unowned self] connection, bytes in
            assumeIsolated { $0.receive(bytes, on: connection) }
        }
        transport.events.batchEnded = { [unowned self] _ in assumeIsolated { $0.flushLinks() } }
        transport.events.becameWritable = { [unowned self] connection in
            assumeIsolated { $0.becameWritable(LinkID(connection.id)) }
        }
        transport.events.linkClosed = { [unowned self] connection, reason in
            assumeIsolated { $0.linkClosed(connection, reason) }
        }
        transport.dialEnded = { [unowned self] number, failure, hearing in
            assumeIsolated { $0.dialEnded(number, failure, hearing) }
        }
        transport.tokenRefused = { [unowned self] number in assumeIsolated { $0.tokenRefused(number) } }
    }

    // MARK: Routes

    private func route(_ token: RoutingToken) -> RouteMatch? {
        // Without a key there is no handshake.
        guard !store.isLocked, let match = routing.match(token), !match.isKnock else { return nil }
        let number: UInt64
        switch match.route {
        case .member(let id), .shared(let id): number = id
        case .knockOnly: return nil
        }
        guard case .inbox(let client, let route)? = routeTargets[number], let inbox = inboxes[client],
            !inbox.isTroubled(now: now), let key = inbox.key ?? sleepingKey(inbox)
        else { return nil }
        switch route {
        case .member(let remote):
            // As an unknown token: it costs no curve operation.
            guard !core.isShunned(remote, by: client, now: now) else { return nil }
            if routing.show(token) { saveShownCounters(inbox) }
            return RouteMatch(identity: key, route: number, remote: remote)
        case .invite, .contact: return RouteMatch(identity: key, route: number, remote: nil)
        }
    }

    /// The key of a sleeping inbox follows from its row. Woken it is when the handshake has shown that it is a member, so
    /// that a token somebody has overheard wakes nobody.
    private func sleepingKey(_ inbox: Inbox) -> IdentityKey? {
        guard core.isSleeping(inbox.client), !store.isLocked else { return nil }
        return try? Self.identityKey(inbox.row, in: store)
    }

    func register(_ client: ClientID, _ route: NodeAction.Route) {
        guard let inbox = inboxes[client], let key = inbox.key else { return }
        guard !key.isWiped else { return inbox.owedRoutes.append(route) }
        let known = inbox.routes[route]
        let number = known ?? takeRouteNumber(inbox, route)
        defer { listen(for: number) }
        switch route {
        case .member(let remote):
            guard let conversation = core.conversationID(client) else { return }
            let saved = inbox.savedCounters.first { $0.remote == remote }
            if known == nil {
                let accept = RoutingSecret.derive(
                    own: key,
                    remote: remote,
                    conversation: conversation.bytes,
                    role: .responder
                )
                routing.addMember(number, secret: accept, counters: saved?.accept ?? ListenerCounters())
            }
            // Who sleeps dials nobody.
            guard !core.isSleeping(client), inbox.dialTokens[remote] == nil else { return }
            let dial = RoutingSecret.derive(
                own: key,
                remote: remote,
                conversation: conversation.bytes,
                role: .initiator
            )
            inbox.dialTokens[remote] =
                saved.map { DialTokens(secret: dial, saved: $0.dial) } ?? DialTokens(secret: dial)
        case .invite(let id):
            guard known == nil else { return }
            routing.addShared(number, secret: .derive(shared: SecretBytes(copying: id.bytes), purpose: "invite"))
        case .contact:
            guard let secret = core.contact?.record.routingSecret else { return }
            routing.addShared(number, secret: .derive(shared: SecretBytes(copying: secret), purpose: "card"))
            // The contact inbox is there, or as it was on the disk.
            loop.assumeIsolated().execute {
                self.assumeIsolated { node in
                    node.rendezvousChanged()
                    node.lookAtGateways()
                }
            }
        }
    }

    func takeRouteNumber(_ inbox: Inbox, _ route: NodeAction.Route) -> UInt64 {
        let number = takeRouteNumber(.inbox(inbox.client, route))
        inbox.routes[route] = number
        return number
    }

    private func takeRouteNumber(_ name: RouteName) -> UInt64 {
        defer { nextRoute += 1 }
        routeTargets[nextRoute] = name
        return nextRoute
    }

    func unregister(_ client: ClientID, _ route: NodeAction.Route) {
        if let inbox = inboxes[client] { unregister(inbox, route) }
    }

    private func unregister(_ inbox: Inbox, _ route: NodeAction.Route) {
        inbox.owedRoutes.removeAll { $0 == route }
        guard let number = inbox.routes.removeValue(forKey: route) else { return }
        routeTargets[number] = nil
        lan?.remove(number)
        switch route {
        case .member(let remote):
            routing.remove(.member(number))
            inbox.dialTokens[remote] = nil
        case .invite, .contact: routing.remove(.shared(number))
        }
    }

    func unregister(tombstone conversation: ConversationID) {
        for number in endings[conversation].routes.values {
            routeTargets[number] = nil
            routing.remove(.knockOnly(number))
        }
        endings[conversation].routes = [:]
    }

    func unregisterAll(_ inbox: Inbox) {
        inbox.owedRoutes = []
        for route in inbox.routes.keys { unregister(inbox, route) }
    }

    func register(tombstone record: ExplodeStateMachine.Record) {
        var knockers: [(RouteTarget.Knocker, [UInt8])] = record.members.compactMap { member in
            record.memberKnocks[member].map { (.member(member), $0) }
        }
        knockers += record.inviteKnocks.enumerated().map { (.invite($0), $1) }
        for (knocker, secret) in knockers {
            guard let secret = KnockSecret(bytes: secret) else { continue }
            let number =
                endings[record.conversation].routes[knocker]
                ?? takeRouteNumber(.tombstone(record.conversation, knocker))
            endings[record.conversation].routes[knocker] = number
            routing.addKnockOnly(number, secret: secret)
        }
    }

    /// Where the counters of an inbox's tokens stand.
    func counters(of inbox: Inbox) -> [InboxSnapshot.Counters] {
        var result: [InboxSnapshot.Counters] = []
        for (route, number) in inbox.routes {
            guard case .member(let remote) = route else { continue }
            // One that is being loaded may not have its dialer yet.
            let dial =
                inbox.dialTokens[remote]?.counters ?? inbox.savedCounters.first { $0.remote == remote }?.dial
                ?? DialCounters()
            let accept = routing.counters(ofMember: number)
            result.append(InboxSnapshot.Counters(remote: remote, dial: dial, accept: accept))
        }
        return result.sorted { $0.remote < $1.remote }
    }

    // MARK: Links

    private func linkOpened(_ connection: PeerConnection) {
        let id = LinkID(connection.id)
        let weDialled = connection.role == .initiator
        let client: ClientID
        if weDialled {
            if guestLinkOpened(connection) { return }
            guard !store.isLocked else { return connection.abort() }
            guard let active = dials.removeValue(forKey: connection.route) else { return connection.abort() }
            client = active.client
            dialSucceeded(active, connection)
            if active.dial.route == .member {
                _ = inboxes[client]?.dialTokens[active.dial.remote]?.answered(connection.token)
                saveCounters(client)
            }
        } else {
            guard !store.isLocked, case .inbox(let target, let route)? = routeTargets[connection.route] else {
                return connection.abort()
            }
            client = target
            // First of all: the dialer has used the token up, whether we can wake or not.
            let hasMoved = routing.use(connection.token)
            if core.isSleeping(client) {
                // Who has nothing but an invite waits for its turn: waking takes the disk and some milliseconds.
                if case .invite = route, guestWakes.take(now: now) != nil { return connection.abort() }
                wakeIfPossible(client, .pushNotification)
                // As many as may be are in use: the member tries again.
                guard !core.isSleeping(client) else { return connection.abort() }
            }
            if hasMoved { saveCounters(client) }
        }
        if core.contact?.client == client, isBlocked(connection.peer.publicKey) { return connection.abort() }
        guard let inbox = inboxes[client] else { return connection.abort() }
        let link = ActiveLink(connection, inbox: inbox)
        links[id] = link
        inbox.add(link)
        note(.linkOpened(client, LinkDescription(connection)))
        if let number = inbox.routes[.member(connection.peer.publicKey)] { lan?.linked(number) }
        if !connection.isRelayed { dropRelays(of: client, to: connection.peer.publicKey) }
        if core.isSleeping(client) {
            // It fell asleep while it was dialling.
            transmit(.closing(asleep: true), on: id)
            return close(id)
        }
        turn {
            core.linkOpened(
                id,
                client: client,
                remote: connection.peer.publicKey,
                weDialled: weDialled,
                isRelayed: connection.isRelayed,
                &$0
            )
        }
        welcomeUnlessGuest(id)
    }

    /// Whoever has nothing but an invite or our card, and no business here yet, may not make us hold much.
    private func welcomeUnlessGuest(_ id: LinkID) {
        guard let connection = links[id]?.connection, !connection.isWelcome, !core.isGuest(id) else { return }
        connection.welcome()
    }

    /// Lazily, with the next commit: counters that a crash takes are within the window of the other side.
    func saveCounters(_ client: ClientID) {
        guard !store.isLocked, let record = core.record(client), let inbox = inboxes[client] else { return }
        try? store.saveState(inbox.row, StoredCodec.encode(record: snapshot(record, inbox)))
    }

    /// A member has shown so many tokens that were not finished that a crash would lose too many. A sleeping inbox is woken
    /// for it. Who shows tokens without end makes us write once a second at most.
    private func saveShownCounters(_ inbox: Inbox) {
        inbox.owesCounters = counterSaves.take(now: now) != nil
        guard !inbox.owesCounters else {
            owesCounters = true
            return
        }
        if core.isSleeping(inbox.client) { wakeIfPossible(inbox.client, .pushNotification) }
        saveCounters(inbox.client)
    }

    /// With each tick.
    func saveLateCounters() {
        guard owesCounters, !store.isLocked else { return }
        owesCounters = false
        for inbox in inboxes.all where inbox.owesCounters { saveShownCounters(inbox) }
    }

    private func receive(_ bytes: [UInt8], on connection: PeerConnection) {
        let id = LinkID(connection.id)
        guard let link = links[id] else { return receiveAsGuest(bytes, on: connection) }
        if link.isSilent {
            link.isSilent = false
            confirmToken(of: link)
        }
        let frame: Frame
        do throws(WireError) {
            frame = try FrameCodec.decode(bytes)
        } catch {
            log.debug("a peer sent a malformed frame", metadata: ["client": "\(link.client)", "reason": "\(error)"])
            return connection.abort(.protocolViolation)
        }
        if case .pong(let nonce) = frame { pongReceived(nonce, on: id) }
        count(frame, of: link.inbox, isSent: false)
        turn { core.receive(frame, on: id, verify: InviteSlug.verify, &$0) }
        welcomeUnlessGuest(id)
    }

    /// Its sender is too fast: the loop has time for the others, and what it has to say waits at its own end.
    func pauseForHaste(_ id: LinkID, _ time: Milliseconds) {
        pauseReading(id, .haste)
        loop.assumeIsolated().scheduleTask(in: .milliseconds(time)) {
            self.assumeIsolated { $0.resumeReading(id, .haste) }
        }
    }

    private func pauseReading(_ id: LinkID, _ reason: ReadingPauses.Reason) {
        links[id]?.pauses.add(reason)
        links[id]?.connection.pauseReading()
    }

    private func resumeReading(_ id: LinkID, _ reason: ReadingPauses.Reason) {
        guard links[id]?.pauses.remove(reason) ?? false else { return }
        links[id]?.connection.resumeReading()
    }

    private func linkClosed(_ connection: PeerConnection, _ reason: LinkCloseReason) {
        let id = LinkID(connection.id)
        noteLastHeard(id)
        guard let link = links[id] else { return guestLinkClosed(id) }
        forget(link)
        note(.linkClosed(link.client, LinkDescription(connection), reason))
        servedLinks.remove(id)
        lan?.stir()
        endStreams(on: id)
        turn { core.linkClosed(id, &$0) }
    }

    func forget(_ link: ActiveLink) {
        links[link.id] = nil
        link.inbox.remove(link)
    }

    func transmit(_ frame: Frame, on id: LinkID) {
        guard let link = links[id] else { return }
        switch frame {
        case .acknowledgement(let said):
            touchedLinks.insert(id)
            if link.said.merge(said) { return }
            acknowledge(on: link)
            link.said = said
            return
        case .contents: break
        // What a receipt says of a file counts behind the file's acknowledgement only, and nothing follows a `closing`.
        default: acknowledge(on: link)
        }
        send(frame, on: link)
    }

    func transmit(_ contents: [AgedContent], on link: LinkID) {
        guard let connection = links[link]?.connection else { return }
        for frame in ContentsCodec.frames(of: contents) { try? connection.send(frame) }
        touchedLinks.insert(link)
    }

    /// Sends what was said of contents since the last flush.
    private func acknowledge(on link: ActiveLink) {
        guard !link.said.isEmpty else { return }
        let said = link.said
        link.said = Acknowledgement()
        send(.acknowledgement(said), on: link)
    }

    private func send(_ frame: Frame, on link: ActiveLink) {
        count(frame, of: link.inbox, isSent: true)
        if case .ping(let nonce) = frame { peers.pings.sent(nonce, at: loop.now) }
        // A link that cannot take more is closed by the transport; the outbox sends again on the next.
        try? link.connection.send(FrameCodec.encode(frame))
        touchedLinks.insert(link.id)
    }

    /// Cuts the links of one of our inboxes to another one.
    func abortLinks(of client: ClientID, to remote: PublicKey) {
        for link in inboxes[client]?.links ?? [] where link.remote == remote { link.connection.abort() }
    }

    func close(_ link: LinkID) {
        guard let open = links[link] else { return }
        acknowledge(on: open)
        let isGuest = core.isGuest(link)
        open.connection.close()
        // A peer that does not close its side keeps a descriptor of ours for seconds: a member may, a flood of guests may not.
        guard isGuest, let victim = closingGuests.add(link) else { return }
        links[victim]?.connection.abort()
    }

    func flushLinks() {
        for id in touchedLinks.sorted() {
            guard let link = links[id] else { continue }
            acknowledge(on: link)
            link.connection.flush()
        }
        touchedLinks = []
        noteAcknowledgements()
    }

    /// The disk is slower than the peer: read on when it has caught up.
    func pauseLinks(of inbox: Inbox) {
        for link in inbox.links { pauseReading(link.id, .disk) }
    }

    func resumeLinks(of inbox: Inbox) {
        for link in inbox.links { resumeReading(link.id, .disk) }
    }
}
