import Crypto
import Logging
import Messaging
import NIOCore
import Transport

/// Members of our conversations that are on the same network are found without being told where (LanDiscovery.md): the
/// machine, its sockets and the one timer.
///
/// On the node's loop alone. A pair is called by the number of its route. It asks the node with
/// ``Events``.
final class LanSearch {
    /// Calls into the node.
    struct Events {
        let now: () -> Messaging.Timestamp
        /// Joins whose creators have no link to us.
        let missedCreators: (Messaging.Timestamp) -> [MissedCreator]
        /// Pairs whose members have no link to us.
        let missedMembers: (Messaging.Timestamp) -> [UInt64]
        /// A number that no route has.
        let takeNumber: () -> UInt64
        /// Where we take links under an address of ours.
        let listeningPort: (LanAddress) -> UInt16?
        /// The member of a pair, or the creator of a join, is there.
        let found: (UInt64, LinkName?, Messaging.Endpoint) -> Void
    }

    /// The creator of a conversation that an inbox of ours is joining.
    struct MissedCreator {
        let name: LinkName
        let invite: InviteID
    }

    private static let lookInterval: Int64 = 30_000
    /// An address that has just come may not be ready yet.
    private static let retryPause: Int64 = 1_000

    private var machine: LanDiscovery
    private var transport: LanTransport?
    private let network: any LanNetwork
    private let loop: any EventLoop
    private let log: Logger
    private let events: Events
    /// Names of the interfaces that are used; `nil` for all.
    private let names: Set<String>?
    /// Those that are not there now.
    private(set) var missing: Set<String> = []
    private var timer: Scheduled<Void>?
    private var timerDeadline: Int64?
    /// The interfaces are looked at then, whatever the system says of them.
    private var looksAt: Int64 = 0
    /// The creators of conversations that we are joining.
    private var creators: [UInt64: LinkName] = [:]

    /// Opens the sockets.
    init(
        _ network: any LanNetwork, port: UInt16, interfaces names: [String]?, loop: any EventLoop, log: Logger,
        events: Events
    ) {
        self.network = network
        self.loop = loop
        self.log = log
        self.events = events
        self.names = names.map(Set.init)
        machine = LanDiscovery(now: events.now().milliseconds)
        transport = LanTransport(
            loop: loop, network: network, port: port,
            receive: { [unowned self] source, bytes in receive(bytes, from: source) },
            troubled: { [unowned self] role, error in troubled(role, error) })
    }

    private var time: Int64 { events.now().milliseconds }

    func stop() {
        timer?.cancel()
        transport?.close()
        transport = nil
    }

    // MARK: Pairs

    /// A pair is looked for, or heard.
    func add(_ number: UInt64, listening: LanSecret, announcing: LanSecret?) {
        machine.add(number, listening: listening, announcing: announcing)
    }

    /// - Parameter invite: one of ours, by which a joiner looks for us.
    func add(_ number: UInt64, invite: InviteID) {
        machine.add(number, listening: Self.secret(invite), announcing: nil)
    }

    func remove(_ number: UInt64) { machine.remove(number) }

    /// Who sleeps looks for nobody.
    func silence(_ number: UInt64) { machine.setAnnouncing(number, nil) }

    /// A link has opened: should it be lost, that is news.
    func linked(_ number: UInt64) { machine.linked(number) }

    private static func secret(_ invite: InviteID) -> LanSecret {
        RoutingSecret.derive(shared: SecretBytes(copying: invite.bytes), purpose: "invite").lan
    }

    /// The creators of conversations that we are joining have no route of ours; they are looked for all the same.
    private func noteCreators(_ now: Messaging.Timestamp) {
        let missed = events.missedCreators(now)
        let clients = Set(missed.map(\.name.client))
        for (number, creator) in creators where !clients.contains(creator.client) {
            creators[number] = nil
            machine.remove(number)
        }
        let known = Set(creators.values.map(\.client))
        for join in missed where !known.contains(join.name.client) {
            let number = events.takeNumber()
            creators[number] = join.name
            machine.add(number, listening: nil, announcing: Self.secret(join.invite))
        }
    }

    /// Somebody may be missing now.
    func stir() {
        var random = Randomness.system
        machine.stir(now: time, using: &random)
        schedule()
    }

    // MARK: Time

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
        let now = events.now()
        noteCreators(now)
        var random = Randomness.system
        let actions = machine.advance(
            now: now.milliseconds, missing: { events.missedMembers(now) + creators.keys.sorted() }, using: &random)
        perform(actions)
        if looksAt <= now.milliseconds { look() }
        schedule()
    }

    // MARK: What is heard

    private func receive(_ bytes: [UInt8], from source: LanPlace) {
        guard transport != nil else { return }
        var random = Randomness.system
        perform(machine.receive(bytes, from: source, now: time, using: &random))
    }

    private func perform(_ actions: [LanDiscovery.Action]) {
        for action in actions {
            switch action {
            case .announce(let bytes, let place): transport?.announce(bytes, from: place)
            case .answer(let bytes, let place, let source): transport?.answer(bytes, from: place, to: source)
            case .found(let number, let source, let port):
                guard let host = source.address.host(interface: source.interface) else { continue }
                events.found(number, creators[number], Messaging.Endpoint(host: host, port: port))
            }
        }
    }

    // MARK: Interfaces

    /// They may have changed.
    func look() {
        guard let transport else { return }
        guard var interfaces = network.interfaces()?.near(named: names) else {
            looksAt = time + Self.retryPause
            return schedule()
        }
        if let names { noteMissing(names.subtracting(interfaces.map(\.name))) }
        for index in interfaces.indices {
            for other in interfaces[index].addresses.indices {
                let port = events.listeningPort(interfaces[index].addresses[other].address)
                interfaces[index].addresses[other].port = port
            }
        }
        var random = Randomness.system
        machine.setInterfaces(interfaces, now: time, using: &random)
        let isWell = transport.update(interfaces, places: machine.places)
        looksAt = time + (isWell ? Self.lookInterval : Self.retryPause)
        schedule()
    }

    /// One may come later, as one on a cable does.
    private func noteMissing(_ names: Set<String>) {
        for name in names.subtracting(missing).sorted() {
            let text = "LAN discovery: there is no such interface with an address now"
            log.notice("\(text)", metadata: ["interface": "\(name)"])
        }
        missing = names
    }

    private func troubled(_ role: LanSocketRole, _ error: (any Error)?) {
        guard let error else {
            log.info("LAN discovery: an interface can be used again", metadata: ["interface": "\(role.interface)"])
            var random = Randomness.system
            machine.placeOpened(now: time, using: &random)
            return schedule()
        }
        // Once for each, and again only after it was well: what comes back every minute fills a disk with words.
        log.notice(
            "LAN discovery: an interface cannot be used now, it is tried again",
            metadata: ["interface": "\(role.interface)", "error": "\((error as? IOError)?.errnoCode ?? 0)"])
        looksAt = min(looksAt, time + Self.retryPause)
        schedule()
    }
}
