import Crypto
import NIOCore

/// The order in which the ways to one inbox are tried, and which of them are tried at a time: the next one when the last has
/// failed or has been silent for a while (RFC 8305, section 5). The first link that opens wins.
///
///     waiting ──its turn──▶ under way ──link──▶ won: the others are given up
///                               └──failed──▶ out; the next one begins at once
///     nothing waits, nothing is under way ──▶ failed
///     TCP has failed everywhere ──``TransportLimits/datagramPatience`` of silence over UDP──▶ failed
struct DialRace: Sendable {
    /// One way: an address and what the link would run over.
    struct Attempt: Hashable, Sendable {
        let endpoint: Endpoint
        let carrier: PeerConnection.Carrier
    }

    enum Action: Hashable, Sendable {
        case start(Attempt)
        case cancel(Attempt)
        /// The last that is heard of the race.
        case fail(DialFailure)
    }

    private enum State: Hashable, Sendable {
        case ready
        /// `nextAt`: when the next one begins whatever the others do; `giveUpAt`: when what is left is given up.
        case running(nextAt: NIODeadline, giveUpAt: NIODeadline?)
        case ended
    }

    /// ``TransportLimits/dialStagger`` and ``TransportLimits/datagramPatience``.
    private let stagger: TimeAmount
    private let datagramPatience: TimeAmount
    /// ``TransportLimits/datagramHeadStart``, where UDP comes first.
    private let headStart: TimeAmount?
    private var isPunching = false
    private var state = State.ready
    private var waiting: [Attempt]
    private var underWay: [Attempt] = []
    /// Somebody has answered there over UDP: the handshake has limits of its own.
    private var answered: Attempt?
    private var failure: DialFailure?

    /// - Parameters:
    ///   - endpoints: the best first; names as well as addresses.
    ///   - hasDatagrams: whether UDP is tried, too.
    ///   - prefersDatagrams: UDP is tried everywhere before TCP, which waits for it a while.
    init(
        _ endpoints: [Endpoint], hasDatagrams: Bool, prefersDatagrams: Bool = false,
        limits: TransportLimits = TransportLimits()
    ) {
        stagger = limits.dialStagger
        datagramPatience = limits.datagramPatience
        headStart = hasDatagrams && prefersDatagrams ? limits.datagramHeadStart : nil
        let endpoints = Self.interleaved(endpoints)
        let tcp = endpoints.map { Attempt(endpoint: $0, carrier: .tcp) }
        let udp = hasDatagrams ? endpoints.map { Attempt(endpoint: $0, carrier: .udp) } : []
        let both = prefersDatagrams ? udp + tcp : tcp.indices.flatMap { [tcp[$0]] + udp.dropFirst($0).prefix(1) }
        var seen: Set<Attempt> = []
        waiting = both.filter { seen.insert($0).inserted }
    }

    /// A race through NATs that are just learning to let both sides in: over UDP, to all addresses at once.
    init(punching endpoints: [Endpoint], limits: TransportLimits = TransportLimits()) {
        stagger = limits.dialStagger
        datagramPatience = limits.punchPatience
        headStart = nil
        isPunching = true
        var seen: Set<Attempt> = []
        waiting = endpoints.prefix(Self.punchCount).map { Attempt(endpoint: $0, carrier: .udp) }.filter {
            seen.insert($0).inserted
        }
    }

    /// Addresses through which a way is tried at a time, those that the other side turns out to have included.
    private static let punchCount = 8

    /// The families in turns, that of the first one first (RFC 8305, section 4).
    private static func interleaved(_ endpoints: [Endpoint]) -> [Endpoint] {
        guard let first = endpoints.first else { return [] }
        var same: [Endpoint] = []
        var other: [Endpoint] = []
        for endpoint in endpoints {
            if isIPv6(endpoint) == isIPv6(first) { same.append(endpoint) } else { other.append(endpoint) }
        }
        var result: [Endpoint] = []
        for index in 0..<max(same.count, other.count) {
            if index < same.count { result.append(same[index]) }
            if index < other.count { result.append(other[index]) }
        }
        return result
    }

    private static func isIPv6(_ endpoint: Endpoint) -> Bool { endpoint.host.utf8.contains(UInt8(ascii: ":")) }

    /// When ``advance(now:)`` has something to do.
    var nextDeadline: NIODeadline? {
        guard case .running(let nextAt, let giveUpAt) = state else { return nil }
        return waiting.isEmpty ? answered == nil ? giveUpAt : nil : nextAt
    }

    mutating func begin(now: NIODeadline) -> [Action] {
        guard case .ready = state else { return [] }
        guard !waiting.isEmpty else {
            state = .ended
            return [.fail(.unresolvable)]
        }
        return isPunching ? startAll(now: now) : startNext(now: now)
    }

    /// The next one begins when it is time; what is left is given up when that is.
    mutating func advance(now: NIODeadline) -> [Action] {
        guard case .running(let nextAt, let giveUpAt) = state else { return [] }
        if !waiting.isEmpty { return nextAt <= now ? startNext(now: now) : [] }
        guard answered == nil, let giveUpAt, giveUpAt <= now else { return [] }
        return end(with: failure ?? .timedOut)
    }

    /// The other side has answered over UDP, and the link is not open yet.
    mutating func answered(_ attempt: Attempt) {
        if case .running = state, underWay.contains(attempt) { answered = attempt }
    }

    /// A link has opened: the others are given up.
    mutating func opened(_ attempt: Attempt) -> [Action] {
        guard case .running = state, let index = underWay.firstIndex(of: attempt) else { return [] }
        underWay.remove(at: index)
        return end(with: nil)
    }

    mutating func failed(_ attempt: Attempt, _ reason: DialFailure, now: NIODeadline) -> [Action] {
        guard case .running(let nextAt, _) = state, let index = underWay.firstIndex(of: attempt) else { return [] }
        underWay.remove(at: index)
        if answered == attempt { answered = nil }
        // A name that means nothing, or a carrier that is not there, says the least.
        if failure == nil || reason != .unresolvable { failure = reason }
        var result: [Action] = []
        if reason == .closedBeforeActTwo { result += dropDatagrams(to: attempt.endpoint) }
        if let answered, !underWay.contains(answered) { self.answered = nil }
        if !waiting.isEmpty { return result + startNext(now: now) }
        guard !underWay.isEmpty else { return result + end(with: failure ?? reason) }
        if underWay.allSatisfy({ $0.carrier == .udp }), attempt.carrier == .tcp {
            state = .running(nextAt: nextAt, giveUpAt: now + datagramPatience)
        }
        return result
    }

    /// A name has been looked up: each of its addresses is a way of its own, and comes next.
    mutating func resolved(_ attempt: Attempt, as endpoints: [Endpoint], now: NIODeadline) -> [Action] {
        guard case .running = state, let index = underWay.firstIndex(of: attempt) else { return [] }
        let ways = Self.interleaved(endpoints).map { Attempt(endpoint: $0, carrier: attempt.carrier) }.filter {
            $0 != attempt && !underWay.contains($0) && !waiting.contains($0)
        }
        guard !ways.isEmpty else { return failed(attempt, .unresolvable, now: now) }
        underWay.remove(at: index)
        waiting.insert(contentsOf: ways, at: 0)
        return startNext(now: now)
    }

    /// The other side's packets come from an address that it did not know of.
    mutating func found(_ endpoint: Endpoint, now: NIODeadline) -> [Action] {
        let attempt = Attempt(endpoint: endpoint, carrier: .udp)
        guard case .running = state, isPunching, underWay.count < Self.punchCount, !underWay.contains(attempt) else {
            return []
        }
        waiting.append(attempt)
        return startAll(now: now)
    }

    /// The owner gives up.
    mutating func cancel() -> [Action] {
        if case .ended = state { return [] }
        return end(with: .cancelled)
    }

    /// A node was there and did not want this dial: over UDP it would say nothing.
    private mutating func dropDatagrams(to endpoint: Endpoint) -> [Action] {
        let attempt = Attempt(endpoint: endpoint, carrier: .udp)
        waiting.removeAll { $0 == attempt }
        guard let index = underWay.firstIndex(of: attempt) else { return [] }
        underWay.remove(at: index)
        return [.cancel(attempt)]
    }

    private mutating func startAll(now: NIODeadline) -> [Action] {
        var result: [Action] = []
        while !waiting.isEmpty { result += startNext(now: now) }
        return result
    }

    private mutating func startNext(now: NIODeadline) -> [Action] {
        let next = waiting.removeFirst()
        underWay.append(next)
        let isOverUDPAlone = waiting.isEmpty && underWay.allSatisfy { $0.carrier == .udp }
        let isLastOverUDP = next.carrier == .udp && waiting.first?.carrier == .tcp
        let wait = isLastOverUDP ? headStart ?? stagger : stagger
        state = .running(nextAt: now + wait, giveUpAt: isOverUDPAlone ? now + datagramPatience : nil)
        return [.start(next)]
    }

    private mutating func end(with reason: DialFailure?) -> [Action] {
        let others = underWay.map { Action.cancel($0) }
        state = .ended
        waiting = []
        underWay = []
        return others + (reason.map { [.fail($0)] } ?? [])
    }
}

/// A link that was lost, other than by somebody's will.
package struct LinkLoss: Hashable, Sendable {
    package let carrier: PeerConnection.Carrier
    package let reason: LinkCloseReason
    let at: NIODeadline
}

/// The last loss of each peer: its next dial begins with the other carrier. A path may carry the one and drop the other.
struct LinkLosses: Sendable {
    private let limits: TransportLimits
    private var losses: [PublicKey: LinkLoss] = [:]

    init(limits: TransportLimits) { self.limits = limits }

    mutating func note(
        _ peer: PublicKey, _ carrier: PeerConnection.Carrier, _ reason: LinkCloseReason, now: NIODeadline
    ) {
        switch reason {
        case .unacknowledged, .silent, .connectionLost: break
        case .requested, .duplicate, .protocolViolation, .shutDown, .closedByPeer, .rekeyOverdue, .notAuthentic,
            .outboundOverflow:
            return
        }
        if losses[peer] == nil, losses.count >= limits.lossCount {
            losses = losses.filter { now - $0.value.at < limits.lossMemory }
            if losses.count >= limits.lossCount { losses = [:] }
        }
        losses[peer] = LinkLoss(carrier: carrier, reason: reason, at: now)
    }

    /// `nil` when it was long ago.
    func loss(of peer: PublicKey, now: NIODeadline) -> LinkLoss? {
        losses[peer].flatMap { now - $0.at < limits.lossMemory ? $0 : nil }
    }

    /// The machine's addresses have changed, and the paths with them.
    mutating func forget() { losses = [:] }
}
