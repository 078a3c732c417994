import Cryptography
import DequeModule
import Messaging
import NIOCore
import Store
import Transport

/// A dial requested by the core, with all its attempts: direct, and through rendezvous nodes if there is no direct link
/// soon. On the node's loop alone.
final class DialGroup {
    let number: UInt64
    let client: ClientID
    let dial: NodeAction.Dial
    /// Running attempts, the oldest first.
    var attempts: [DialAttempt] = []
    var guestDial: AnonymousLinks.Dial?
    var relays: [Messaging.Endpoint] = []
    /// The kind of token to show; see ``Dials/goOn(_:)``.
    var round = Round.first
    /// Evidence of the attempts about our token. A node that closed before act 2 may not know it. Over UDP such a
    /// node is silent, so there no answer counts too.
    var hearing = LinkTransport.TokenHearing.none
    /// Has failed or has a link. A direct attempt may continue beside a relayed link.
    var isOver = false

    enum Round {
        /// A member's counter token, or the daily token of a shared secret.
        case first
        /// A member's daily token, or an any-day token of a shared secret.
        case second
    }

    init(_ number: UInt64, _ client: ClientID, _ dial: NodeAction.Dial) {
        (self.number, self.client, self.dial) = (number, client, dial)
    }

    /// - Returns: whether the attempt was running.
    func remove(_ attempt: DialAttempt) -> Bool {
        guard let index = attempts.firstIndex(where: { $0 === attempt }) else { return false }
        attempts.remove(at: index)
        return true
    }

    func dropGuestDial() {
        guestDial?.cancel()
        guestDial = nil
    }

    var isIdle: Bool { attempts.isEmpty && guestDial == nil }
}

/// One attempt of a dial, with the token that all its addresses show until a node refuses it.
final class DialAttempt: DialOwner {
    private weak var dials: Dials?
    let group: DialGroup
    /// The transport's.
    var number: UInt64 = 0
    var shown: RoutingToken?

    init(_ dials: Dials, _ group: DialGroup) { (self.dials, self.group) = (dials, group) }

    func token() -> RoutingToken? {
        if shown == nil { shown = dials?.nextToken(of: group) }
        return shown
    }
    func answered(_ token: RoutingToken) { dials?.answered(group, token) }
    func tokenRefused() { shown = nil }
    func opened(_ connection: PeerConnection) { dials?.opened(self, connection) ?? connection.abort() }
    func failed(_ failure: DialFailure, _ hearing: LinkTransport.TokenHearing) { dials?.failed(self, failure, hearing) }
}

final class Dials: Part {
    /// Dials without a link or failure, and those with a direct attempt beside a relayed link.
    private var groups: [UInt64: DialGroup] = [:]
    private var nextGroup: UInt64 = 1
    /// Running dials that count toward the limit.
    private(set) var begun: Set<UInt64> = []
    /// Dials that wait for a free slot, in order. Joins and contacts go first: a user is waiting.
    private var waiting: Deque<DialGroup> = []
    private var waitingFirst: Deque<DialGroup> = []

    private var transport: LinkTransport? { shell.listening.transport }

    /// Dials a member, an invite's creator or a contact: directly, and after a head start also through its rendezvous
    /// nodes.
    func dial(_ client: ClientID, _ dial: NodeAction.Dial) {
        shell.routes.lan?.stir()
        guard let group = makeGroup(client, dial) else { return }
        if dial.route == .member, !dial.isUrgent { waiting.append(group) } else { waitingFirst.append(group) }
        beginWaiting()
    }

    /// Dials with NAT hole punching; other attempts continue.
    func dial(_ client: ClientID, _ dial: NodeAction.Dial, punchingWith nonce: PunchNonce) {
        guard let group = makeGroup(client, dial) else { return }
        attempt(group, LinkTransport.reachable(dial.endpoints)) { $0.dial($1, punchingWith: nonce.bytes) }
    }

    /// - Returns: `nil` after a failure at once.
    private func makeGroup(_ client: ClientID, _ dial: NodeAction.Dial) -> DialGroup? {
        let group = DialGroup(nextGroup, client, dial)
        nextGroup += 1
        guard transport != nil, let inbox = inboxes[client], let key = inbox.key, !key.isWiped,
            !inbox.isTroubled(now: now)
        else {
            failed(group)
            return nil
        }
        groups[group.number] = group
        return group
    }

    private func beginWaiting() {
        while begun.count < Limits.dialsUnderWay, !isStopped, let group = waitingFirst.popFirst() ?? waiting.popFirst()
        {
            guard !group.isOver else { continue }
            begun.insert(group.number)
            begin(group)
        }
    }

    /// Ends a dial, so that a waiting one may start.
    private func end(_ group: DialGroup) {
        group.isOver = true
        if group.attempts.isEmpty { groups[group.number] = nil }
        if begun.remove(group.number) != nil, !waiting.isEmpty || !waitingFirst.isEmpty {
            execute { self.beginWaiting() }
        }
    }

    private func begin(_ group: DialGroup) {
        // A dial to this node itself fails, and would count as a token unknown to the member.
        let direct = group.dial.endpoints.filter { $0.relay == nil && !shell.addresses.isOwn($0) }
        group.relays = group.dial.endpoints.filter { $0.relay != nil }
        if !direct.isEmpty { attempt(group, direct.map { Transport.Endpoint($0) }) { $0.dial($1) } }
        guard !group.relays.isEmpty else { return goOn(group) }
        after(direct.isEmpty ? 0 : Limits.relayHeadStart) { self.tryRelay(group) }
    }

    /// - Returns: the transport's number; `nil` without a key.
    @discardableResult private func attempt(
        _ group: DialGroup, _ endpoints: [Transport.Endpoint] = [],
        by dial: (LinkTransport, LinkTransport.Dial) -> UInt64
    ) -> UInt64? {
        guard let transport, let key = inboxes[group.client]?.key else { return nil }
        let attempt = DialAttempt(self, group)
        group.attempts.append(attempt)
        attempt.number = dial(
            transport,
            LinkTransport.Dial(endpoints: endpoints, identity: key, remote: group.dial.remote, owner: attempt))
        return attempt.number
    }

    /// Tries the next rendezvous node, unless the dial has ended.
    private func tryRelay(_ group: DialGroup) {
        guard !isStopped, !group.isOver, group.guestDial == nil, !group.relays.isEmpty else { return }
        group.guestDial = shell.streams.open(
            at: group.relays.removeFirst(),
            opened: { [unowned self, weak group] socket, link in
                // The stream is open; the peer behind it has not answered yet.
                guard let group, !group.isOver else { return socket.fail() }
                group.guestDial = nil
                if let number = attempt(group, by: { $0.dial($1, over: .stream(socket)) }) {
                    shell.streams.setDial(number, over: link)
                } else {
                    socket.fail()
                    goOn(group)
                }
            },
            failed: { [unowned self, weak group] in
                guard let group else { return }
                group.guestDial = nil
                goOn(group)
            })
    }

    func nextToken(of group: DialGroup) -> RoutingToken? {
        let isSecond = group.round == .second
        switch group.dial.route {
        case .member:
            return inboxes[group.client]?.dialTokens[group.dial.remote]?.nextToken(day: isSecond ? now.day : nil)
        case .invite(let id): return shell.routes.sharedToken(.derive(invite: id), isOfAnyDay: isSecond)
        case .contact(let secret): return shell.routes.sharedToken(.derive(card: secret), isOfAnyDay: isSecond)
        }
    }

    func answered(_ group: DialGroup, _ token: RoutingToken) {
        guard group.dial.route == .member else { return }
        if inboxes[group.client]?.dialTokens[group.dial.remote]?.answered(token) ?? false {
            shell.counters.save(group.client)
        }
    }

    /// The first frame has arrived on a link.
    func confirmToken(of link: ActiveLink) {
        guard link.connection.role == .initiator else { return }
        if link.inbox.dialTokens[link.remote]?.confirmed(link.connection.token) ?? false {
            shell.counters.save(link.client)
        }
    }

    func failed(_ attempt: DialAttempt, _ failure: DialFailure, _ hearing: LinkTransport.TokenHearing) {
        let group = attempt.group
        guard group.remove(attempt), !isStopped else { return }
        services.counters.dialFailed(failure)
        note(.dialFailed(group.client, failure))
        if group.hearing != .unknown, hearing != .none { group.hearing = hearing }
        goOn(group)
    }

    /// Starts the next attempt when none is running. After the last one a second round tries all again with the other
    /// kind of token, if the listener may not have known the first. Then the dial fails.
    private func goOn(_ group: DialGroup) {
        guard group.isIdle else { return }
        guard !group.isOver else { return end(group) }
        guard group.relays.isEmpty else { return tryRelay(group) }
        if wantsSecondRound(group) {
            group.round = .second
            return begin(group)
        }
        end(group)
        failed(group)
    }

    private func wantsSecondRound(_ group: DialGroup) -> Bool {
        guard !isStopped, group.round == .first, group.hearing != .none else { return false }
        switch group.dial.route {
        case .member:
            return inboxes[group.client]?.dialTokens[group.dial.remote]?.wantsDay(wasRefused: group.hearing == .unknown)
                ?? false
        case .invite, .contact: return true
        }
    }

    func giveUp() {
        let all = groups.values.sorted { $0.number < $1.number }
        let running = all.filter { !$0.isOver }
        // Over first, so that no ended attempt starts a second round.
        for group in all { group.isOver = true }
        (groups, begun, waiting, waitingFirst) = ([:], [], [], [])
        for group in all { for attempt in group.attempts { transport?.cancelDial(attempt.number) } }
        for group in running {
            group.dropGuestDial()
            // A cancelled dial says nothing about our token.
            group.hearing = .none
            failed(group)
        }
    }

    private func failed(_ group: DialGroup) {
        guard !isStopped else { return }
        shell.routes.lan?.stir()
        // With an existing link, no tombstone needs to be asked.
        let isUnknownThere = group.hearing != .none && !group.dial.isUpgrade
        core.turn { core.machine.dialFailed(group.client, to: group.dial.remote, isUnknownThere: isUnknownThere, &$0) }
    }

    /// A direct link exists: stops trying relays.
    func dropRelays(of client: ClientID, to remote: PublicKey) {
        let all = groups.values.filter { !$0.isOver && $0.client == client && $0.dial.remote == remote }
        for group in all.sorted(by: { $0.number < $1.number }) {
            group.relays = []
            group.dropGuestDial()
            goOn(group)
        }
    }

    /// An attempt has opened a link: cancels the others. A direct attempt continues beside a relayed link.
    func opened(_ attempt: DialAttempt, _ connection: PeerConnection) {
        let group = attempt.group
        guard !store.isLocked, group.remove(attempt) else { return connection.abort() }
        if !group.isOver {
            group.dropGuestDial()
            if !connection.isRelayed {
                let others = group.attempts
                group.attempts = []
                for attempt in others { transport?.cancelDial(attempt.number) }
            }
        }
        end(group)
        if group.dial.route == .member {
            _ = inboxes[group.client]?.dialTokens[group.dial.remote]?.answered(connection.token)
            shell.counters.save(group.client)
        }
        shell.linkEvents.opened(connection, of: group.client)
    }
}
