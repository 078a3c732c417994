import Cryptography
import HeapModule
import Testing

@testable import Transport

/// Conditions of every path in the network.
struct Conditions {
    /// Losses per 1,000 datagrams.
    var lost = 0
    var duplicated = 0
    /// Per 1,000 datagrams, delayed by up to ``jitter``.
    var reordered = 0
    var delay: Microseconds = 20_000
    var jitter: Microseconds = 0
    /// Bytes per second of each direction, and the length of its queue in bytes; a full queue drops the newest
    /// datagram.
    var rate: Int?
    var queue = 64 << 10
    var largest = Int.max
    var isDark = false
}

/// Nodes and a network in virtual time, deterministic by seed.
final class SimulatedNetwork {
    private struct Arrival: Comparable {
        let time: Microseconds
        let order: UInt64
        let from: DatagramAddress
        let to: DatagramAddress
        let bytes: [UInt8]
        static func < (left: Arrival, right: Arrival) -> Bool { (left.time, left.order) < (right.time, right.order) }
        static func == (left: Arrival, right: Arrival) -> Bool { left.order == right.order }
    }

    var now: Microseconds = 1_000_000
    var conditions = Conditions()
    var nodes: [SimulatedNode] = []
    private var random: SplitMix64
    private var arrivals = Heap<Arrival>()
    private var order: UInt64 = 0
    /// When each sender's wire is free again.
    private var freeAt: [Int: Microseconds] = [:]
    /// All datagrams share one wire, a common bottleneck.
    var isShared = false
    /// Sees each datagram before it is sent; returns false to drop it.
    var tap: (DatagramAddress, DatagramAddress, inout [UInt8]) -> Bool = { _, _, _ in true }
    private(set) var datagrams = 0

    init(seed: UInt64) { random = SplitMix64(state: seed) }

    func chance(_ ofThousand: Int) -> Bool { Int.random(in: 0..<1_000, using: &random) < ofThousand }

    func makeNode(limits: DatagramLimits = DatagramLimits()) -> SimulatedNode {
        let node = SimulatedNode(index: nodes.count, seed: random.next(), limits: limits, network: self)
        nodes.append(node)
        return node
    }

    func inject(_ bytes: [UInt8], from: DatagramAddress, to: DatagramAddress, after: Microseconds = 0) {
        order += 1
        arrivals.insert(Arrival(time: now + after, order: order, from: from, to: to, bytes: bytes))
    }

    func send(_ transmit: DatagramTransmit, from node: SimulatedNode) {
        datagrams += 1
        var bytes = transmit.bytes
        guard tap(node.address, transmit.address, &bytes), !conditions.isDark, bytes.count <= conditions.largest else {
            return
        }
        var delay = conditions.delay
        if let rate = conditions.rate {
            let wire = isShared ? (node.isSource ? 0 : 1) : node.index
            let free = max(now, freeAt[wire, default: 0])
            let waiting = (free - now) * Microseconds(rate) / 1_000_000
            guard waiting + Microseconds(bytes.count) <= conditions.queue else { return }
            let sent = free + Microseconds(bytes.count) * 1_000_000 / Microseconds(rate)
            freeAt[wire] = sent
            delay += sent - now
        }
        guard !chance(conditions.lost) else { return }
        if conditions.jitter > 0, chance(conditions.reordered) {
            delay += Microseconds.random(in: 0...conditions.jitter, using: &random)
        }
        inject(bytes, from: node.address, to: transmit.address, after: delay)
        if chance(conditions.duplicated) {
            let later = Microseconds.random(in: 0...(conditions.jitter + 1_000), using: &random)
            inject(bytes, from: node.address, to: transmit.address, after: delay + later)
        }
    }

    /// Runs until `isDone`, or until `limit` of virtual time has passed. Returns whether it is done.
    @discardableResult func run(for limit: Microseconds, until isDone: () -> Bool = { false }) -> Bool {
        let end = now + limit
        for node in nodes { node.settle() }
        var idle = 0
        while !isDone() {
            let timer = nodes.compactMap { $0.endpoint.nextDeadline }.min()
            let arrival = arrivals.min?.time
            guard let next = [timer, arrival].compactMap({ $0 }).min(), next <= end else {
                now = end
                return isDone()
            }
            // An endpoint that asks to be polled again without time passing is defective.
            idle = next <= now ? idle + 1 : 0
            precondition(idle <= 200_000, "no time goes by")
            now = max(now, next)
            if let arrival, arrival <= next, let datagram = arrivals.popMin() {
                if let node = nodes.first(where: { $0.address == datagram.to }) {
                    node.receive(datagram.bytes, from: datagram.from)
                }
            } else {
                for node in nodes where (node.endpoint.nextDeadline ?? .max) <= now {
                    node.endpoint.timeout(at: now)
                    node.settle()
                }
            }
        }
        return true
    }
}

/// A node with one identity that accepts every event.
final class SimulatedNode {
    let index: Int
    var address: DatagramAddress
    let identity: IdentityKey
    let endpoint: DatagramEndpoint
    unowned let network: SimulatedNetwork
    /// Sends in the forward direction of a shared bottleneck.
    var isSource: Bool { index.isMultiple(of: 2) }

    var opened: [DatagramOpening] = []
    var closed: [UInt64: LinkCloseReason] = [:]
    var failures: [DatagramDialFailure] = []
    var rejections: [Rejection] = []
    var moves: [DatagramAddress] = []
    var knocks: [DatagramKnock] = []
    var knockAnswer: [UInt8]?
    var observed: [DatagramAddress?] = []
    var punched: [DatagramAddress] = []
    var knockAnswers: [[UInt8]?] = []
    var received: [[UInt8]] = []
    var receivedBytes = 0
    var keepsMessages = true
    var reads = true
    /// Messages to be sent as the window permits.
    var waiting: [[UInt8]] = []
    var writes = 0
    var closesWhenSent = false
    private let routes: Routes

    /// Tokens and ephemeral keys, captured by the closures of an endpoint.
    private final class Routes {
        var identity: IdentityKey?
        var known: [[UInt8]: PublicKey?] = [:]
        var random: SplitMix64
        var knocks: Set<[UInt8]> = []
        var keys = 0
        var asked = 0
        init(seed: UInt64) { random = SplitMix64(state: seed) }
    }

    init(index: Int, seed: UInt64, limits: DatagramLimits, network: SimulatedNetwork) {
        self.index = index
        self.network = network
        address = DatagramAddress(v4: 0x0a00_0001 + UInt32(index) << 8, port: 4_000)
        let routes = Routes(seed: seed)
        identity = IdentityKey(makeSecretKey(&routes.random))
        routes.identity = identity
        self.routes = routes
        endpoint = DatagramEndpoint(
            limits: limits, cookieKey: SecretBytes(copying: routes.random.bytes(32)),
            source: DatagramSource(
                randomBytes: { routes.random.bytes($0) },
                makeEphemeral: {
                    routes.keys += 1
                    return makeSecretKey(&routes.random)
                },
                route: { token in
                    routes.asked += 1
                    guard let identity = routes.identity, let remote = routes.known[token] else { return nil }
                    return RouteMatch(identity: identity, route: 7, remote: remote)
                }, isKnown: { routes.known[$0] != nil }, acceptsKnock: { routes.knocks.contains($0) }))
    }

    var keysDrawn: Int { routes.keys }
    var routesAsked: Int { routes.asked }
    func accept(_ token: [UInt8], from remote: PublicKey?) { routes.known[token] = .some(remote) }
    func acceptKnocks(_ token: [UInt8]) { routes.knocks.insert(token) }
    func forget(_ token: [UInt8]) { routes.known[token] = nil }

    func dial(_ other: SimulatedNode, token: [UInt8]) -> UInt64 {
        defer { settle() }
        return endpoint.dial(
            DatagramDial(
                address: other.address, token: token, identity: identity, remote: other.identity.publicKey, route: 3),
            at: network.now)
    }

    func knock(_ other: SimulatedNode, token: [UInt8], _ sealed: [UInt8]) {
        _ = endpoint.knock(sealed, token: token, at: other.address, now: network.now)
        settle()
    }

    var link: UInt64? { opened.last?.number }

    func receive(_ datagram: [UInt8], from address: DatagramAddress) {
        endpoint.receive(datagram, from: address, at: network.now)
        settle()
    }

    func settle() {
        while true {
            while let event = endpoint.nextEvent() { take(event) }
            if let number = link, closed[number] == nil, let link = endpoint.link(number) {
                while writes < waiting.count, link.isWritable {
                    if (try? endpoint.send(waiting[writes], on: number, at: network.now)) == nil { break }
                    writes += 1
                }
                if closesWhenSent, writes == waiting.count {
                    closesWhenSent = false
                    endpoint.close(number, at: network.now)
                }
            }
            guard let transmit = endpoint.poll(at: network.now) else { break }
            network.send(transmit, from: self)
        }
        while let event = endpoint.nextEvent() { take(event) }
    }

    func readAll(_ number: UInt64) {
        while let message = endpoint.read(number, at: network.now) {
            receivedBytes += message.count
            if keepsMessages { received.append(message) }
        }
    }

    private func take(_ event: DatagramEvent) {
        switch event {
        case .opened(let opening):
            opened.append(opening)
            endpoint.welcome(opening.number)
        case .readable(let number): if reads { readAll(number) }
        case .writable, .answered: break
        case .pathChanged(_, let address): moves.append(address)
        case .closed(let number, let reason):
            if reads { readAll(number) }
            precondition(closed[number] == nil, "a link ends once")
            closed[number] = reason
        case .dialFailed(_, let failure): failures.append(failure)
        case .knocked(let knock):
            knocks.append(knock)
            endpoint.answer(knock, with: knockAnswer)
        case .knockEnded(_, let answer): knockAnswers.append(answer)
        case .observed(_, let address): observed.append(address)
        case .punched(_, let address): punched.append(address)
        case .rejected(let rejection): rejections.append(rejection)
        }
    }
}

func makeSecretKey(_ random: inout SplitMix64) -> SecretKey {
    while true { if let key = try? SecretKey(SecretBytes(copying: random.bytes(32))) { return key } }
}

/// Two nodes; `near` dials `far`.
struct Pair {
    let network: SimulatedNetwork
    let near: SimulatedNode
    let far: SimulatedNode
    static let token = [UInt8](repeating: 0x5a, count: 16)

    init(seed: UInt64, _ conditions: Conditions = Conditions(), limits: DatagramLimits = DatagramLimits()) {
        network = SimulatedNetwork(seed: seed)
        network.conditions = conditions
        near = network.makeNode(limits: limits)
        far = network.makeNode(limits: limits)
        far.accept(Self.token, from: near.identity.publicKey)
    }

    static func opened(
        _ seed: UInt64, _ conditions: Conditions = Conditions(), limits: DatagramLimits = DatagramLimits()
    ) throws -> Pair {
        let pair = Pair(seed: seed, conditions, limits: limits)
        try #require(pair.open())
        return pair
    }

    /// Dials up to twenty times until both sides are open.
    func open() -> Bool {
        for _ in 0..<20 {
            _ = near.dial(far, token: Self.token)
            let failed = near.failures.count
            network.run(for: 15_000_000) { near.opened.count > 0 || near.failures.count > failed }
            if !near.opened.isEmpty { return !far.opened.isEmpty }
        }
        return false
    }

    var diagnosis: String {
        [near, far].map { node in
            """
            \(node.index) at \(network.now), \(node.address): closed \(node.closed), received \(node.received.count), \
            moves \(node.moves.count), \(node.link.flatMap { node.endpoint.link($0) }?.fingerprint ?? "no link")
            """
        }.joined(separator: "; ")
    }

    var nearLink: DatagramLink? { near.link.flatMap { near.endpoint.link($0) } }
    var farLink: DatagramLink? { far.link.flatMap { far.endpoint.link($0) } }
}

/// Messages of many sizes. Each contains its own number.
func makeMessages(_ count: Int, seed: UInt64, largest: Int = 4_000) -> [[UInt8]] {
    var random = SplitMix64(state: seed)
    return (0..<count).map { index in
        let size = Int.random(in: 0..<8, using: &random) == 0 ? 0 : Int.random(in: 0...largest, using: &random)
        var message = bigEndian(UInt64(index))
        message += (0..<size).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ index) }
        return Int.random(in: 0..<50, using: &random) == 0 ? [] : message
    }
}
