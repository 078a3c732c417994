import Crypto
import DequeModule
import Messaging
import NIOCore
import Transport

/// One attempt of a dial requested by the core.
struct ActiveDial {
    var client: ClientID
    var dial: NodeAction.Dial
    var group: UInt64
    let shown: ShownToken
}

/// The token of a dial, shared by all attempts until a node refuses it. On the node's loop alone.
final class ShownToken { var token: RoutingToken? }

/// A dial requested by the core, with all its attempts: direct, and through rendezvous nodes if there is no direct link
/// soon.
struct DialGroup {
    var client: ClientID
    var dial: NodeAction.Dial
    /// The transport's numbers of running attempts.
    var numbers: Set<UInt64> = []
    var guestDial: UInt64?
    var relays: [Messaging.Endpoint] = []
    /// The kind of token to show; see ``Dials/goOn(_:)``.
    var round = Round.first
    /// What the attempts have shown about our token. A node that closed before act 2 may not know it. Over UDP such a
    /// node is silent, so there no answer counts too.
    var hearing = LinkTransport.TokenHearing.none

    enum Round {
        /// A member's counter token, or the daily token of a shared secret.
        case first
        /// A member's daily token, or an any-day token of a shared secret.
        case second
    }

    init(client: ClientID, dial: NodeAction.Dial) {
        self.client = client
        self.dial = dial
    }

    mutating func hear(_ hearing: LinkTransport.TokenHearing) {
        if self.hearing != .unknown, hearing != .none { self.hearing = hearing }
    }

    var isIdle: Bool { numbers.isEmpty && guestDial == nil }
}

final class Dials: Part {
    private var dials: [UInt64: ActiveDial] = [:]
    private var groups: [UInt64: DialGroup] = [:]
    private var nextGroup: UInt64 = 1
    /// Running dials that count toward the limit.
    private var begun: Set<UInt64> = []
    /// Dials that wait for a free slot, in order. Joins and contacts go first: a user is waiting.
    private var waiting: Deque<UInt64> = []
    private var waitingFirst: Deque<UInt64> = []

    private var transport: LinkTransport? { shell.listening.transport }

    /// Dials a member, an invite's creator or a contact: directly, and after a head start also through its rendezvous
    /// nodes.
    func dial(_ client: ClientID, _ dial: NodeAction.Dial) {
        shell.routes.lan?.stir()
        let group = DialGroup(client: client, dial: dial)
        guard transport != nil, isAbleToDial(client) else { return failed(group) }
        let number = nextGroup
        nextGroup += 1
        groups[number] = group
        if dial.route == .member, !dial.isUrgent { waiting.append(number) } else { waitingFirst.append(number) }
        beginWaiting()
    }

    private func beginWaiting() {
        while begun.count < Limits.dialsUnderWay, !isStopped, let number = waitingFirst.popFirst() ?? waiting.popFirst()
        {
            guard groups[number] != nil else { continue }
            begun.insert(number)
            begin(number)
        }
    }

    /// Removes a finished dial, so that a waiting one may start.
    private func takeOut(_ number: UInt64) -> DialGroup? {
        if begun.remove(number) != nil, !waiting.isEmpty || !waitingFirst.isEmpty { execute { self.beginWaiting() } }
        return groups.removeValue(forKey: number)
    }

    private func isAbleToDial(_ client: ClientID) -> Bool {
        guard let inbox = inboxes[client], let key = inbox.key else { return false }
        return !key.isWiped && !inbox.isTroubled(now: now)
    }

    private func begin(_ number: UInt64) {
        guard let dial = groups[number]?.dial else { return }
        // A dial to this node itself fails, and would count as a token unknown to the member.
        let direct = dial.endpoints.filter { $0.relay == nil && !shell.addresses.isOwn($0) }
        let relays = dial.endpoints.filter { $0.relay != nil }
        groups[number]?.relays = relays
        if !direct.isEmpty { attempt(number, endpoints: direct) }
        guard !relays.isEmpty else { return goOn(number) }
        after(direct.isEmpty ? 0 : Limits.relayHeadStart) { self.tryRelay(number) }
    }

    /// Dials with NAT hole punching; other attempts continue.
    func dial(_ client: ClientID, _ dial: NodeAction.Dial, punchingWith nonce: PunchNonce) {
        let group = DialGroup(client: client, dial: dial)
        guard let transport, isAbleToDial(client) else { return failed(group) }
        let number = nextGroup
        nextGroup += 1
        let active = ActiveDial(client: client, dial: dial, group: number, shown: ShownToken())
        guard let known = makeDial(active, []) else { return failed(group) }
        groups[number] = group
        let whole = LinkTransport.Dial(
            endpoints: LinkTransport.reachable(dial.endpoints), token: known.token, identity: known.identity,
            remote: known.remote)
        let name = transport.dial(whole, punchingWith: nonce.bytes)
        dials[name] = active
        groups[number]?.numbers.insert(name)
    }

    private func makeDial(_ active: ActiveDial, _ endpoints: [Messaging.Endpoint]) -> LinkTransport.Dial? {
        (inboxes[active.client]?.key).map { key in
            LinkTransport.Dial(
                endpoints: endpoints.map { Transport.Endpoint(host: $0.host, port: Int($0.port)) },
                token: { [unowned self] in token(for: active) }, identity: key, remote: active.dial.remote)
        }
    }

    private func attempt(_ group: UInt64, endpoints: [Messaging.Endpoint]) {
        guard let transport, let known = groups[group] else { return }
        let active = ActiveDial(client: known.client, dial: known.dial, group: group, shown: ShownToken())
        guard let dial = makeDial(active, endpoints) else { return }
        let number = transport.dial(dial)
        dials[number] = active
        groups[group]?.numbers.insert(number)
    }

    /// Tries the next rendezvous node, unless the dial has ended.
    private func tryRelay(_ number: UInt64) {
        guard !isStopped, let group = groups[number], group.guestDial == nil, let endpoint = group.relays.first else {
            return
        }
        groups[number]?.relays.removeFirst()
        groups[number]?.guestDial = shell.streams.open(
            at: endpoint, opened: { [unowned self] channel, link in attempt(number, over: channel, link) },
            failed: { [unowned self] in
                groups[number]?.guestDial = nil
                goOn(number)
            })
    }

    /// A stream is open; the peer behind it has not answered yet.
    private func attempt(_ group: UInt64, over channel: StreamChannel, _ link: LinkID) {
        guard let transport, let known = groups[group] else { return channel.fail() }
        groups[group]?.guestDial = nil
        let active = ActiveDial(client: known.client, dial: known.dial, group: group, shown: ShownToken())
        guard let dial = makeDial(active, []) else {
            channel.fail()
            return goOn(group)
        }
        let number = transport.dial(dial, over: channel)
        dials[number] = active
        groups[group]?.numbers.insert(number)
        shell.streams.setDial(number, over: link)
    }

    // MARK: Tokens

    /// The token of a dial, shared by its attempts; a new one after a refusal.
    private func token(for active: ActiveDial) -> RoutingToken? {
        if let token = active.shown.token { return token }
        let isSecond = groups[active.group]?.round == .second
        let token: RoutingToken?
        switch active.dial.route {
        case .member:
            token = inboxes[active.client]?.dialTokens[active.dial.remote]?.nextToken(day: isSecond ? now.day : nil)
        case .invite(let id): token = shell.routes.sharedToken(.derive(invite: id), isOfAnyDay: isSecond)
        case .contact(let secret):
            let shared = SecretBytes(copying: secret)
            token = shell.routes.sharedToken(.derive(shared: shared, purpose: "card"), isOfAnyDay: isSecond)
        }
        active.shown.token = token
        return token
    }

    /// Transport event: the listener has answered, and act 3 is not sent yet.
    func dialAnswered(_ number: UInt64, _ token: RoutingToken) {
        guard let active = dials[number], active.dial.route == .member else { return }
        if inboxes[active.client]?.dialTokens[active.dial.remote]?.answered(token) ?? false {
            shell.counters.save(active.client)
        }
    }

    /// The first frame has arrived on a link.
    func confirmToken(of link: ActiveLink) {
        guard link.connection.role == .initiator else { return }
        if link.inbox.dialTokens[link.remote]?.confirmed(link.connection.token) ?? false {
            shell.counters.save(link.client)
        }
    }

    /// Transport event: the node closed before act 2.
    func tokenRefused(_ number: UInt64) { dials[number]?.shown.token = nil }

    // MARK: Ends

    /// Transport event: an attempt has failed.
    func dialEnded(_ number: UInt64, _ failure: DialFailure, _ hearing: LinkTransport.TokenHearing) {
        guard !isStopped, !shell.anonymousLinks.dialEnded(number, hearing),
            let active = dials.removeValue(forKey: number)
        else { return }
        services.counters.dialFailed(failure)
        note(.dialFailed(active.client, failure))
        groups[active.group]?.numbers.remove(number)
        groups[active.group]?.hear(hearing)
        goOn(active.group)
    }

    /// Starts the next attempt when none is running. After the last one a second round tries all again with the other
    /// kind of token, if the listener may not have known the first. Then the dial fails.
    private func goOn(_ number: UInt64) {
        guard let group = groups[number], group.isIdle else { return }
        guard group.relays.isEmpty else { return tryRelay(number) }
        if wantsSecondRound(group) {
            groups[number]?.round = .second
            return begin(number)
        }
        _ = takeOut(number)
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
        // Cleared first, so that no ended attempt starts a second round.
        let all = groups
        groups = [:]
        begun = []
        (waiting, waitingFirst) = ([], [])
        for number in dials.keys.sorted() { transport?.cancelDial(number) }
        dials = [:]
        for number in all.keys.sorted() {
            guard var group = all[number] else { continue }
            if let guestDial = group.guestDial { shell.anonymousLinks.cancel(guestDial) }
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
        for number in groups.keys.sorted() {
            guard let group = groups[number], group.client == client, group.dial.remote == remote else { continue }
            groups[number]?.relays = []
            groups[number]?.guestDial = nil
            if let guestDial = group.guestDial { shell.anonymousLinks.cancel(guestDial) }
            goOn(number)
        }
    }

    /// Transport event: a dial has opened a link.
    /// - Returns: the dial; `nil` if it was cancelled.
    func opened(_ connection: PeerConnection) -> ActiveDial? {
        guard let active = dials.removeValue(forKey: connection.route) else { return nil }
        succeeded(active, connection)
        return active
    }

    /// A link is open: cancels the other attempts. A direct attempt continues beside a relayed link.
    private func succeeded(_ active: ActiveDial, _ connection: PeerConnection) {
        guard let group = takeOut(active.group) else { return }
        if let guestDial = group.guestDial { shell.anonymousLinks.cancel(guestDial) }
        guard !connection.isRelayed else { return }
        for number in group.numbers.sorted() where number != connection.route {
            dials[number] = nil
            transport?.cancelDial(number)
        }
    }
}
