import Crypto
import DequeModule
import Messaging
import NIOCore
import Transport

/// One way of a dial of the core's.
struct ActiveDial {
    var client: ClientID
    var dial: NodeAction.Dial
    /// The dial, by its number.
    var group: UInt64
    let shown: ShownToken
}

/// The token of a dial, the same over all ways, until a node has refused it. On the node's loop alone.
final class ShownToken { var token: RoutingToken? }

/// One dial of the core's, by all ways that there are: directly, and, when that does not come to a link at once, through
/// rendezvous nodes.
struct DialGroup {
    var client: ClientID
    var dial: NodeAction.Dial
    /// The transport's numbers of what is under way.
    var numbers: Set<UInt64> = []
    /// The dial of a rendezvous node that is under way.
    var guestDial: UInt64?
    /// Relays that were not tried yet.
    var relays: [Messaging.Endpoint] = []
    /// Which kind of token it shows; see ``Dials/goOn(_:)``.
    var round = Round.first
    /// What is known of our tokens: some node answered and did not know one, or somebody was silent, maybe because of one.
    var hearing = LinkTransport.TokenHearing.none

    enum Round {
        /// A member's counter, or the day's token of a shared secret.
        case first
        /// The day's token of a member, or one of any day of a shared secret.
        case second
    }

    init(client: ClientID, dial: NodeAction.Dial) {
        self.client = client
        self.dial = dial
    }

    mutating func hear(_ hearing: LinkTransport.TokenHearing) {
        if self.hearing != .unknown, hearing != .none { self.hearing = hearing }
    }

    /// Nothing is under way.
    var isIdle: Bool { numbers.isEmpty && guestDial == nil }
}

/// Dials of the core's, by all ways that there are.
final class Dials: CorePart {
    let core: ProtocolCore
    private let routes: Routes
    private let counters: TokenCounters
    private let streams: RelayStreams
    private let mailboxes: MailboxLinks
    private let listening: Listening
    private let addresses: OwnAddresses
    private var dials: [UInt64: ActiveDial] = [:]
    private var groups: [UInt64: DialGroup] = [:]
    private var nextGroup: UInt64 = 1
    /// Dials that have begun, of those that have a limit.
    private var begun: Set<UInt64> = []
    /// Dials that wait for others to end, in the order in which they were asked for. Those of joins and contacts go first:
    /// a user waits for them.
    private var waiting: Deque<UInt64> = []
    private var waitingFirst: Deque<UInt64> = []

    init(
        _ core: ProtocolCore, _ routes: Routes, _ counters: TokenCounters, _ streams: RelayStreams,
        _ mailboxes: MailboxLinks, _ listening: Listening, _ addresses: OwnAddresses
    ) {
        self.core = core
        self.routes = routes
        self.counters = counters
        self.streams = streams
        self.mailboxes = mailboxes
        self.listening = listening
        self.addresses = addresses
    }

    private var transport: LinkTransport? { listening.transport }

    /// Dials a member, an invite's creator or a contact: directly, and through its rendezvous nodes when that takes long.
    func dial(_ client: ClientID, _ dial: NodeAction.Dial) {
        routes.lan?.stir()
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
            // It may have been given up meanwhile.
            guard groups[number] != nil else { continue }
            begun.insert(number)
            begin(number)
        }
    }

    /// Takes out a dial that is over; another one may begin.
    private func takeOut(_ number: UInt64) -> DialGroup? {
        if begun.remove(number) != nil, !waiting.isEmpty || !waitingFirst.isEmpty {
            loop.assumeIsolated().execute { self.beginWaiting() }
        }
        return groups.removeValue(forKey: number)
    }

    private func isAbleToDial(_ client: ClientID) -> Bool {
        guard let inbox = inboxes[client], let key = inbox.key else { return false }
        return !key.isWiped && !inbox.isTroubled(now: now)
    }

    private func begin(_ number: UInt64) {
        guard let dial = groups[number]?.dial else { return }
        // A dial to this node itself finds nobody, and would count as a token that the member does not know.
        let direct = dial.endpoints.filter { $0.relay == nil && !addresses.isOwn($0) }
        let relays = dial.endpoints.filter { $0.relay != nil }
        groups[number]?.relays = relays
        if !direct.isEmpty { attempt(number, endpoints: direct) }
        guard !relays.isEmpty else { return goOn(number) }
        loop.assumeIsolated().scheduleTask(in: .milliseconds(direct.isEmpty ? 0 : Limits.relayHeadStart)) {
            self.tryRelay(number)
        }
    }

    /// Dials through NATs. What else is under way goes on.
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

    /// Asks the next rendezvous node, unless there is a link by now.
    private func tryRelay(_ number: UInt64) {
        guard !isStopped, let group = groups[number], group.guestDial == nil, let endpoint = group.relays.first else {
            return
        }
        groups[number]?.relays.removeFirst()
        groups[number]?.guestDial = streams.open(
            at: endpoint,
            for: StreamPurpose(
                opened: { [unowned self] channel, link in attempt(number, over: channel, link) },
                redialled: { [unowned self] again in groups[number]?.guestDial = again },
                failed: { [unowned self] in streamFailed(number) }))
    }

    /// There is no stream.
    private func streamFailed(_ group: UInt64) {
        groups[group]?.guestDial = nil
        goOn(group)
    }

    /// There is a stream, whose other end has yet to answer.
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
        streams.setDial(number, over: link)
    }

    // MARK: Tokens

    /// The token of a dial: one for all its ways, and another one when a node has refused it.
    private func token(for active: ActiveDial) -> RoutingToken? {
        if let token = active.shown.token { return token }
        let isSecond = groups[active.group]?.round == .second
        let token: RoutingToken?
        switch active.dial.route {
        case .member:
            token = inboxes[active.client]?.dialTokens[active.dial.remote]?.nextToken(day: isSecond ? now.day : nil)
        case .invite(let id): token = routes.sharedToken(.derive(invite: id), isOfAnyDay: isSecond)
        case .contact(let secret):
            let shared = SecretBytes(copying: secret)
            token = routes.sharedToken(.derive(shared: shared, purpose: "card"), isOfAnyDay: isSecond)
        }
        active.shown.token = token
        return token
    }

    /// Of the transport: the listener has answered, and act 3 has not left yet.
    func dialAnswered(_ number: UInt64, _ token: RoutingToken) {
        guard let active = dials[number], active.dial.route == .member else { return }
        if inboxes[active.client]?.dialTokens[active.dial.remote]?.answered(token) ?? false {
            counters.save(active.client)
        }
    }

    /// The first frame has come over a link.
    func confirmToken(of link: ActiveLink) {
        guard link.connection.role == .initiator else { return }
        if link.inbox.dialTokens[link.remote]?.confirmed(link.connection.token) ?? false { counters.save(link.client) }
    }

    /// Of the transport: a node closed before act 2.
    func tokenRefused(_ number: UInt64) { dials[number]?.shown.token = nil }

    // MARK: Ends

    /// Of the transport: a way has come to nothing.
    func dialEnded(_ number: UInt64, _ failure: DialFailure, _ hearing: LinkTransport.TokenHearing) {
        guard !isStopped, !streams.dialEnded(number, hearing), !mailboxes.dialEnded(number, hearing),
            let active = dials.removeValue(forKey: number)
        else { return }
        services.counters.dialFailed(failure)
        note(.dialFailed(active.client, failure))
        groups[active.group]?.numbers.remove(number)
        groups[active.group]?.hear(hearing)
        goOn(active.group)
    }

    /// The next way is tried when nothing is under way. When there is none, all of them are tried once more with the other kind
    /// of token, if the listener may not have known the first; and that is the end.
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

    /// Ends all dials of inboxes.
    func giveUp() {
        // First of all, or a dial that ends has a second round.
        let all = groups
        groups = [:]
        begun = []
        (waiting, waitingFirst) = ([], [])
        for number in dials.keys.sorted() { transport?.cancelDial(number) }
        dials = [:]
        for number in all.keys.sorted() {
            guard var group = all[number] else { continue }
            if let guestDial = group.guestDial { streams.cancel(guestDial) }
            // Nothing that was heard so far says that it is unknown there.
            group.hearing = .none
            failed(group)
        }
    }

    private func failed(_ group: DialGroup) {
        guard !isStopped else { return }
        routes.lan?.stir()
        // Where there is a link, a tombstone need not be asked.
        let isUnknownThere = group.hearing != .none && !group.dial.isUpgrade
        core.turn { core.machine.dialFailed(group.client, to: group.dial.remote, isUnknownThere: isUnknownThere, &$0) }
    }

    /// There is a direct link, whoever has dialled: no relay is asked for another any more.
    func dropRelays(of client: ClientID, to remote: PublicKey) {
        for number in groups.keys.sorted() {
            guard let group = groups[number], group.client == client, group.dial.remote == remote else { continue }
            groups[number]?.relays = []
            groups[number]?.guestDial = nil
            if let guestDial = group.guestDial { streams.cancel(guestDial) }
            goOn(number)
        }
    }

    /// Of the transport: a dial has opened a link.
    /// - Returns: the dial; `nil` for one that was given up.
    func opened(_ connection: PeerConnection) -> ActiveDial? {
        guard let active = dials.removeValue(forKey: connection.route) else { return nil }
        succeeded(active, connection)
        return active
    }

    /// There is a link: what else is under way is given up. A direct way that is being dialled is still better than a
    /// relayed link.
    private func succeeded(_ active: ActiveDial, _ connection: PeerConnection) {
        guard let group = takeOut(active.group) else { return }
        if let guestDial = group.guestDial { streams.cancel(guestDial) }
        guard !connection.isRelayed else { return }
        for number in group.numbers.sorted() where number != connection.route {
            dials[number] = nil
            transport?.cancelDial(number)
        }
    }
}
