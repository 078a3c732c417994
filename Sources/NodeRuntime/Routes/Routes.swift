import Cryptography
import DequeModule
import Messaging
import Store
import Transport

/// The routes to this node's inboxes and tombstones: routing numbers and their targets.
final class Routes: Part {
    /// Routes whose daily tokens are rotated per turn, and the pause between turns.
    private static let rollBatchCount = 64
    private static let rollPause: Milliseconds = 10

    private var table: RoutingTable
    private var targets: [UInt64: RouteTarget] = [:]
    private var next: UInt64 = 1
    /// `nil` if LAN discovery is off.
    private(set) var lan: LanSearch?

    override init(_ shell: Shell) {
        table = RoutingTable(day: shell.services.now.day)
        super.init(shell)
    }

    func match(_ token: RoutingToken) -> RoutingTable.Match? { table.match(token) }

    func isKnown(_ token: RoutingToken) -> Bool { table.match(token).map { !$0.isKnock } ?? false }

    func acceptsKnock(_ token: RoutingToken) -> Bool { table.match(token)?.isKnock ?? false }

    /// A member has shown this token.
    /// - Returns: whether so many tokens were shown that their counters must be saved.
    func show(_ token: RoutingToken) -> Bool { table.show(token) }

    /// A handshake with this token is complete.
    /// - Returns: whether the counters moved.
    func use(_ token: RoutingToken) -> Bool { table.use(token) }

    func target(of number: UInt64) -> RouteTarget? { targets[number] }

    func sharedToken(_ secret: RoutingSecret, isOfAnyDay: Bool) -> RoutingToken {
        var random = SystemRandomness()
        return secret.sharedToken(day: isOfAnyDay ? nil : now.day, using: &random)
    }

    /// At each tick: rotates some tokens to the new day.
    func roll(to day: UInt32) {
        if day != table.day { table.beginRoll(to: day) }
        if table.isRolling { table.continueRoll(routes: Self.rollBatchCount) }
    }

    /// The pause before the next ``roll(to:)``; `nil` when the rotation is complete.
    var rollPause: Milliseconds? { table.isRolling ? Self.rollPause : nil }

    func register(_ client: ClientID, _ route: NodeAction.Route) {
        guard let inbox = inboxes[client], let key = inbox.key else { return }
        guard !key.isWiped else { return retries.add(.register(client, route)) }
        let known = inbox.routes[route]
        let number = known ?? takeNumber(inbox, route)
        defer { listen(for: number) }
        switch route {
        case .member(let remote):
            guard let conversation = core.machine.conversationID(client) else { return }
            let saved = inbox.savedCounters.first { $0.remote == remote }
            if known == nil {
                let accept = RoutingSecret.derive(
                    own: key, remote: remote, conversation: conversation.bytes, role: .responder)
                table.addMember(number, secret: accept, counters: saved?.accept ?? ListenerCounters())
            }
            // A sleeping inbox does not dial.
            guard !core.machine.isSleeping(client), inbox.dialTokens[remote] == nil else { return }
            let dial = RoutingSecret.derive(
                own: key, remote: remote, conversation: conversation.bytes, role: .initiator)
            inbox.dialTokens[remote] =
                saved.map { DialTokens(secret: dial, saved: $0.dial) } ?? DialTokens(secret: dial)
        case .invite(let id):
            guard known == nil else { return }
            table.addShared(number, secret: .derive(invite: id))
        case .contact:
            guard let secret = core.machine.contact?.record.routingSecret else { return }
            table.addShared(number, secret: .derive(card: secret))
            execute { self.shell.network.contactRegistered() }
        }
    }

    func register(_ entry: InboxTableEntry, _ inbox: Inbox) {
        for route in entry.routes {
            let number = takeNumber(inbox, .member(route.remote))
            table.addMember(number, secret: RoutingSecret(SecretBytes(copying: route.secret)), counters: route.counters)
            listen(for: number)
        }
        for invite in entry.invites {
            let number = takeNumber(inbox, .invite(invite))
            table.addShared(number, secret: .derive(invite: invite))
            listen(for: number)
        }
    }

    func entries(of inbox: Inbox) -> (routes: [InboxTableEntry.Route], invites: [InviteID]) {
        var routes: [InboxTableEntry.Route] = []
        var invites: [InviteID] = []
        for (route, number) in inbox.routes.sorted(by: { $0.value < $1.value }) {
            switch route {
            case .member(let remote):
                guard let secret = table.secretBytes(ofMember: number) else { continue }
                let counters = table.counters(ofMember: number)
                routes.append(InboxTableEntry.Route(remote: remote, secret: secret, counters: counters))
            case .invite(let id): invites.append(id)
            case .contact: break
            }
        }
        return (routes, invites)
    }

    private func takeNumber(_ inbox: Inbox, _ route: NodeAction.Route) -> UInt64 {
        let number = takeNumber(.inbox(inbox.client, route))
        inbox.routes[route] = number
        return number
    }

    private func takeNumber(_ target: RouteTarget) -> UInt64 {
        let number = takeNumber()
        targets[number] = target
        return number
    }

    func takeNumber() -> UInt64 {
        defer { next += 1 }
        return next
    }

    func unregister(_ client: ClientID, _ route: NodeAction.Route) {
        if let inbox = inboxes[client] { unregister(inbox, route) }
    }

    private func unregister(_ inbox: Inbox, _ route: NodeAction.Route) {
        retries.remove(.register(inbox.client, route))
        guard let number = inbox.routes.removeValue(forKey: route) else { return }
        targets[number] = nil
        lan?.remove(number)
        switch route {
        case .member(let remote):
            table.remove(.member(number))
            inbox.dialTokens[remote] = nil
        case .invite, .contact: table.remove(.shared(number))
        }
    }

    func unregisterAll(_ inbox: Inbox) {
        retries.removeRoutes(of: inbox.client)
        for route in inbox.routes.keys { unregister(inbox, route) }
    }

    /// Stops announcing and searching for a sleeping inbox on the LAN. Its dial tokens stay: a saved state would skip
    /// some at each wake, and the listener accepts only the next few.
    func silence(_ inbox: Inbox) { for number in inbox.routes.values { lan?.silence(number) } }

    func counters(of inbox: Inbox) -> [InboxSnapshot.Counters] {
        var result: [InboxSnapshot.Counters] = []
        for (route, number) in inbox.routes {
            guard case .member(let remote) = route else { continue }
            // During loading there may be no dialer yet.
            let dial =
                inbox.dialTokens[remote]?.counters ?? inbox.savedCounters.first { $0.remote == remote }?.dial
                ?? DialCounters()
            let accept = table.counters(ofMember: number)
            result.append(InboxSnapshot.Counters(remote: remote, dial: dial, accept: accept))
        }
        return result.sorted { $0.remote < $1.remote }
    }

    func register(tombstone record: ExplosionRecord) {
        var knockers: [(Knocker, [UInt8])] = record.members.compactMap { member in
            record.memberKnocks[member].map { (.member(member), $0) }
        }
        knockers += record.inviteKnocks.enumerated().map { (.invite($0), $1) }
        knockers += record.earlierCopies.enumerated().compactMap { index, copy in
            copy.knock.map { (.earlierCopy(index), $0) }
        }
        for (knocker, secret) in knockers {
            guard let secret = KnockSecret(bytes: secret) else { continue }
            let number =
                shell.endings[record.conversation].routes[knocker]
                ?? takeNumber(.tombstone(record.conversation, knocker))
            shell.endings[record.conversation].routes[knocker] = number
            table.addKnockOnly(number, secret: secret)
        }
    }

    func unregister(tombstone conversation: ConversationID) {
        for number in shell.endings[conversation].routes.values {
            targets[number] = nil
            table.remove(.knockOnly(number))
        }
        shell.endings[conversation].routes = [:]
    }

    /// The secret with which a member of an inbox knocks here; `nil` without a route.
    func knock(of member: PublicKey, _ inbox: Inbox) -> KnockSecret? {
        inbox.routes[.member(member)].flatMap { table.knock(ofMember: $0) }
    }

    /// Starts LAN discovery for members, if it is on.
    func startSearch() {
        guard lan == nil, !isStopped, case .lan(let names) = services.discovery ?? .off, let network = environment.lan
        else { return }
        lan = LanSearch(shell, network, interfaces: names)
        for number in targets.keys.sorted() { listen(for: number) }
        lan?.look()
    }

    func stopSearch() {
        lan?.stop()
        lan = nil
    }

    /// Adds a member's or an invite's route to the LAN discovery; a joiner searches by its invite.
    private func listen(for number: UInt64) {
        guard let lan, case .inbox(let client, let route)? = targets[number] else { return }
        switch route {
        case .member(let remote):
            guard let listening = table.lan(ofMember: number) else { return }
            let dial = core.machine.isSleeping(client) ? nil : inboxes[client]?.dialTokens[remote]
            lan.add(number, listening: listening, announcing: dial?.lan)
            lan.stir()
        case .invite(let id): lan.add(number, invite: id)
        // Cards may be public: a holder must not learn whether this node is near.
        case .contact: break
        }
    }
}

extension RoutingSecret {
    /// For links of a contact card's holders.
    static func derive(card secret: [UInt8]) -> RoutingSecret {
        derive(shared: SecretBytes(copying: secret), purpose: "card")
    }

    /// For links and knocks of an invite's holders.
    static func derive(invite: InviteID) -> RoutingSecret {
        derive(shared: SecretBytes(copying: invite.bytes), purpose: "invite")
    }
}

enum RouteTarget: Hashable {
    case inbox(ClientID, NodeAction.Route)
    case tombstone(ConversationID, Knocker)
}

enum Knocker: Hashable {
    case member(PublicKey)
    /// A holder of the tombstone's invite with this index.
    case invite(Int)
    /// The creator, at our earlier copy with this index.
    case earlierCopy(Int)
}

/// Saves the counters of routing tokens lazily: counters lost in a crash are within the peer's window.
final class TokenCounters: Part {
    /// Rate limit for writes caused by shown tokens.
    private var saves = TokenBucket(Limits.counterSaveRate)
    /// Inboxes whose counters are written at a tick.
    private var owing: Deque<Inbox> = []

    /// Saves the counters of an awake inbox.
    func save(_ client: ClientID) {
        guard !store.isLocked, let record = core.machine.record(client), let inbox = inboxes[client] else { return }
        shell.writer.saveCounters(of: record, inbox)
    }

    /// Saves the counters after many unfinished handshakes, before a crash would lose too many. Wakes a sleeping inbox
    /// for it. Endless tokens cause at most one write per second.
    func saveShown(_ inbox: Inbox) {
        guard saves.take(now: now) == nil else {
            if !inbox.owesCounters { owing.append(inbox) }
            inbox.owesCounters = true
            return
        }
        inbox.owesCounters = false
        if core.machine.isSleeping(inbox.client) { shell.sleep.wakeIfPossible(inbox.client, .pushNotification) }
        save(inbox.client)
    }

    func saveLate() {
        guard !store.isLocked else { return }
        while !owing.isEmpty, !saves.isSpent(now: now) {
            let inbox = owing.removeFirst()
            if inbox.owesCounters, inboxes[inbox.client] === inbox { saveShown(inbox) }
        }
    }
}
