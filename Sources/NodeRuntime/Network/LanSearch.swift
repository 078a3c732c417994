import Cryptography
import Logging
import Messaging
import NIOCore
import Transport

/// Finds members on the same network without known addresses (Discovery.md): state machine, sockets and timer.
///
/// A pair is named by its routing number.
final class LanSearch: Part {
    private static let lookInterval: Int64 = 30_000
    /// A new address may not be usable yet.
    private static let retryPause: Int64 = 1_000

    private var machine: LanDiscovery
    private var transport: LanTransport?
    private let network: any LanNetwork
    /// Interfaces to use; `nil` for all.
    private let names: Set<String>?
    private(set) var missing: Set<String> = []
    private var timer: Scheduled<Void>?
    private var timerDeadline: Int64?
    /// When to check the interfaces even without a system notification.
    private var looksAt: Int64 = 0
    private var creators: [UInt64: LinkName] = [:]

    init(_ shell: Shell, _ network: any LanNetwork, interfaces names: [String]?) {
        self.network = network
        self.names = names.map(Set.init)
        machine = LanDiscovery(now: shell.services.now.milliseconds)
        super.init(shell)
        transport = LanTransport(
            loop: loop, network: network, port: options.lanPort,
            receive: { [unowned self] source, bytes in receive(bytes, from: source) },
            troubled: { [unowned self] interface, failure in troubled(interface, failure) })
    }

    private var time: Int64 { now.milliseconds }

    func stop() {
        timer?.cancel()
        transport?.close()
        transport = nil
    }

    /// Searches for the pair's member, and listens for it.
    func add(_ number: UInt64, listening: LanSecret, announcing: LanSecret?) {
        machine.add(number, listening: listening, announcing: announcing)
    }

    /// - Parameter invite: one of ours, by which a joiner searches for us.
    func add(_ number: UInt64, invite: InviteID) {
        machine.add(number, listening: RoutingSecret.derive(invite: invite).lan, announcing: nil)
    }

    func remove(_ number: UInt64) { machine.remove(number) }

    /// A sleeping inbox does not announce itself.
    func silence(_ number: UInt64) { machine.setAnnouncing(number, nil) }

    /// A link has opened; its loss restarts the search.
    func linked(_ number: UInt64) { machine.linked(number) }

    /// Adds the creators of conversations being joined, which have no link to us and no route.
    private func noteCreators(_ now: Messaging.Timestamp) {
        let missed = core.machine.missedCreators(now: now)
        let clients = Set(missed.map(\.client))
        for (number, creator) in creators where !clients.contains(creator.client) {
            creators[number] = nil
            machine.remove(number)
        }
        let known = Set(creators.values.map(\.client))
        for join in missed where !known.contains(join.client) {
            let number = shell.routes.takeNumber()
            creators[number] = LinkName(client: join.client, remote: join.creator)
            machine.add(number, listening: nil, announcing: RoutingSecret.derive(invite: join.invite).lan)
        }
    }

    /// Pairs whose members have no link to us.
    private func missedMembers(_ now: Messaging.Timestamp) -> [UInt64] {
        core.machine.missedMembers(now: now).compactMap { inboxes[$0.client]?.routes[.member($0.member)] }
    }

    /// Restarts the search, since a link may be missing.
    func stir() {
        machine.stir(now: time, using: &random)
        schedule()
    }

    private func schedule() {
        guard transport != nil else { return }
        let deadline = min(machine.nextDeadline ?? looksAt, looksAt)
        if timer != nil, let timerDeadline, timerDeadline <= deadline { return }
        timer?.cancel()
        timerDeadline = deadline
        timer = loop.assumeIsolated().scheduleTask(in: .milliseconds(max(1, deadline - time))) { [weak self] in
            self?.timer = nil
            self?.advance()
        }
    }

    private func advance() {
        guard transport != nil else { return }
        let now = now
        noteCreators(now)
        let actions = machine.advance(
            now: now.milliseconds, missing: { missedMembers(now) + creators.keys.sorted() }, using: &random)
        perform(actions)
        if looksAt <= now.milliseconds { look() }
        schedule()
    }

    private func receive(_ bytes: [UInt8], from source: LanPlace) {
        guard transport != nil else { return }
        perform(machine.receive(bytes, from: source, now: time, using: &random))
    }

    private func perform(_ actions: [LanDiscovery.Action]) {
        for action in actions {
            switch action {
            case .announce(let bytes, let place): transport?.announce(bytes, from: place)
            case .answer(let bytes, let place, let source): transport?.send(bytes, from: place, to: source)
            case .found(let number, let source, let port):
                guard let host = source.address.host(interface: source.interface) else { continue }
                found(number, at: Messaging.Endpoint(host: host, port: port))
            }
        }
    }

    /// The member of a pair, or the creator of a join, was found.
    private func found(_ number: UInt64, at endpoint: Messaging.Endpoint) {
        let (client, remote): (ClientID, PublicKey)
        if case .inbox(let inbox, .member(let member))? = shell.routes.target(of: number) {
            (client, remote) = (inbox, member)
        } else if let creator = creators[number] {
            (client, remote) = (creator.client, creator.remote)
        } else {
            // The found node is a joiner, which dials us.
            return
        }
        log.debug("a member is on this network", metadata: ["client": "\(client)"])
        core.turn { core.machine.found(client, remote, at: endpoint, &$0) }
    }

    /// Call this when the interfaces may have changed.
    func look() {
        guard let transport else { return }
        guard let found = network.interfaces()?.near(named: names) else {
            looksAt = time + Self.retryPause
            return schedule()
        }
        if let names { noteMissing(names.subtracting(found.map(\.name))) }
        let interfaces = shell.listening.withPorts(found)
        machine.setInterfaces(interfaces, now: time, using: &random)
        let isWell = transport.update(interfaces, places: machine.places)
        looksAt = time + (isWell ? Self.lookInterval : Self.retryPause)
        schedule()
    }

    /// A missing interface may appear later.
    private func noteMissing(_ names: Set<String>) {
        for name in names.subtracting(missing).sorted() {
            let text = "LAN discovery: the interface does not exist or has no address now"
            log.notice("\(text)", metadata: ["interface": "\(name)"])
        }
        missing = names
    }

    private func troubled(_ interface: UInt32, _ failure: ListenFailure?) {
        guard let failure else {
            log.info("LAN discovery: an interface can be used again", metadata: ["interface": "\(interface)"])
            machine.placeOpened(now: time, using: &random)
            return schedule()
        }
        // Logged once per failure, and again only after a recovery: a failure every minute must not fill the log.
        log.notice(
            "LAN discovery: an interface cannot be used now, it is tried again",
            metadata: ["interface": "\(interface)", "error": "\(failure.reason)"])
        looksAt = min(looksAt, time + Self.retryPause)
        schedule()
    }
}
