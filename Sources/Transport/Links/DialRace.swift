import Cryptography
import NIOCore

/// Orders and staggers the dial attempts to one inbox: the next one starts when the last has failed or been silent for
/// a while (RFC 8305, section 5). The first open link wins.
struct DialRace: Sendable {
    struct Attempt: Hashable, Sendable {
        let endpoint: Endpoint
        let carrier: LinkCarrier
    }

    enum Action: Hashable, Sendable {
        case start(Attempt)
        case cancel(Attempt)
        case fail(DialFailure)
    }

    private enum State: Hashable, Sendable {
        case ready
        /// `nextAt`: when the next attempt starts at the latest; `giveUpAt`: when the remaining ones are cancelled.
        case running(nextAt: NIODeadline, giveUpAt: NIODeadline?)
        case ended
    }

    private let limits: TransportLimits
    /// ``TransportLimits/datagramHeadStart``, if UDP comes first.
    private let headStart: TimeAmount?
    /// When TCP starts after this head start; `nil` once it has.
    private var streamsAt: NIODeadline?
    private var isPunching = false
    private var state = State.ready
    private var waiting: [Attempt]
    private var underWay: [Attempt] = []
    /// An attempt whose peer answered over UDP: its handshake has limits of its own.
    private var answered: Attempt?
    private var failure: DialFailure?

    /// - Parameters:
    ///   - endpoints: the best first; names as well as addresses.
    ///   - hasDatagrams: whether UDP is tried, too.
    ///   - prefersDatagrams: UDP has a head start before TCP.
    init(
        _ endpoints: [Endpoint], hasDatagrams: Bool, prefersDatagrams: Bool = false,
        limits: TransportLimits = TransportLimits()
    ) {
        self.limits = limits
        headStart = hasDatagrams && prefersDatagrams ? limits.datagramHeadStart : nil
        let endpoints = Self.interleaved(endpoints)
        let tcp = endpoints.map { Attempt(endpoint: $0, carrier: .tcp) }
        let udp = hasDatagrams ? endpoints.map { Attempt(endpoint: $0, carrier: .udp) } : []
        // As many as start before TCP.
        let ahead = headStart.map { Int(($0.nanoseconds - 1) / limits.dialStagger.nanoseconds) + 1 } ?? 0
        let others = udp.dropFirst(ahead)
        let both = udp.prefix(ahead) + tcp.indices.flatMap { [tcp[$0]] + others.dropFirst($0).prefix(1) }
        var seen: Set<Attempt> = []
        waiting = both.filter { seen.insert($0).inserted }
    }

    /// A race for hole punching: over UDP, to all addresses at once.
    init(punching endpoints: [Endpoint], limits: TransportLimits = TransportLimits()) {
        self.limits = limits
        headStart = nil
        isPunching = true
        var seen: Set<Attempt> = []
        waiting = endpoints.prefix(Self.punchCount).map { Attempt(endpoint: $0, carrier: .udp) }.filter {
            seen.insert($0).inserted
        }
    }

    /// Concurrent attempts, including newly discovered addresses of the peer.
    private static let punchCount = 8

    /// Alternates the address families, starting with that of the first endpoint (RFC 8305, section 4).
    private static func interleaved(_ endpoints: [Endpoint]) -> [Endpoint] {
        guard let first = endpoints.first else { return [] }
        let same = endpoints.filter { isIPv6($0) == isIPv6(first) }
        let other = endpoints.filter { isIPv6($0) != isIPv6(first) }
        return endpoints.indices.flatMap { same.dropFirst($0).prefix(1) + other.dropFirst($0).prefix(1) }
    }

    private static func isIPv6(_ endpoint: Endpoint) -> Bool { endpoint.host.utf8.contains(UInt8(ascii: ":")) }

    private var datagramPatience: TimeAmount { isPunching ? limits.punchPatience : limits.datagramPatience }

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
        streamsAt = headStart.map { now + $0 }
        return isPunching ? startAll(now: now) : startNext(now: now)
    }

    mutating func advance(now: NIODeadline) -> [Action] {
        guard case .running(let nextAt, let giveUpAt) = state else { return [] }
        if !waiting.isEmpty { return nextAt <= now ? startNext(now: now) : [] }
        guard answered == nil, let giveUpAt, giveUpAt <= now else { return [] }
        return end(with: failure ?? .timedOut)
    }

    /// A node under load accepts a TCP connection long before it answers. Only UDP to the same endpoint waits for that.
    mutating func connected(to endpoint: Endpoint, now: NIODeadline) {
        if case .running(let nextAt, let giveUpAt) = state, waiting.allSatisfy({ $0.endpoint == endpoint }) {
            state = .running(nextAt: max(nextAt, now + limits.answerPatience), giveUpAt: giveUpAt)
        }
    }

    /// The peer answered over UDP; the link is not open yet.
    mutating func answered(_ attempt: Attempt) {
        if case .running = state, underWay.contains(attempt) { answered = attempt }
    }

    mutating func opened(_ attempt: Attempt) -> [Action] {
        guard case .running = state, let index = underWay.firstIndex(of: attempt) else { return [] }
        underWay.remove(at: index)
        return end(with: nil)
    }

    mutating func failed(_ attempt: Attempt, _ reason: DialFailure, now: NIODeadline) -> [Action] {
        guard case .running(let nextAt, _) = state, let index = underWay.firstIndex(of: attempt) else { return [] }
        underWay.remove(at: index)
        if answered == attempt { answered = nil }
        // An unresolvable name or a missing carrier is the least informative failure.
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

    /// Replaces a resolved name by an attempt for each address, which come next.
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

    /// The peer's punch packets come from an unexpected address.
    mutating func found(_ endpoint: Endpoint, now: NIODeadline) -> [Action] {
        let attempt = Attempt(endpoint: endpoint, carrier: .udp)
        guard case .running = state, isPunching, underWay.count < Self.punchCount, !underWay.contains(attempt) else {
            return []
        }
        waiting.append(attempt)
        return startAll(now: now)
    }

    mutating func cancel() -> [Action] {
        if case .ended = state { return [] }
        return end(with: .cancelled)
    }

    /// TCP was closed before act 2, so a node rejected this dial: it would be silent over UDP.
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
        if next.carrier == .tcp { streamsAt = nil }
        let nextAt = waiting.first?.carrier == .tcp ? streamsAt ?? now + limits.dialStagger : now + limits.dialStagger
        state = .running(nextAt: nextAt, giveUpAt: isOverUDPAlone ? now + datagramPatience : nil)
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

/// A link that was lost, not closed on purpose.
package struct LinkLoss: Hashable, Sendable {
    package let carrier: LinkCarrier
    package let reason: LinkCloseReason
    let at: NIODeadline
}

/// The last loss of each peer's link. Its next dial prefers the other carrier: a path may drop only one.
struct LinkLosses: Sendable {
    private let limits: TransportLimits
    private var losses: [PublicKey: LinkLoss] = [:]

    init(limits: TransportLimits) { self.limits = limits }

    mutating func note(_ peer: PublicKey, _ carrier: LinkCarrier, _ reason: LinkCloseReason, now: NIODeadline) {
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

    func loss(of peer: PublicKey, now: NIODeadline) -> LinkLoss? {
        losses[peer].flatMap { now - $0.at < limits.lossMemory ? $0 : nil }
    }

    /// The machine's addresses changed, and so did the paths.
    mutating func forget() { losses = [:] }
}

/// A knock over TCP and over UDP: the first that arrives ends the race, with or without an answer.
final class KnockRace {
    private var completion: ((Result<[UInt8]?, DialFailure>) -> Void)?
    var startsDatagrams: (() -> Void)?
    var timer: Scheduled<Void>?
    var underWay = 1
    private var failure: DialFailure?

    init(_ completion: @escaping (Result<[UInt8]?, DialFailure>) -> Void) { self.completion = completion }

    func startDatagrams() {
        guard let startsDatagrams, completion != nil else { return }
        self.startsDatagrams = nil
        underWay += 1
        startsDatagrams()
    }

    func failed(_ failure: DialFailure) {
        if self.failure == nil { self.failure = failure }
        startDatagrams()
        underWay -= 1
        if underWay == 0 { end(.failure(self.failure ?? failure)) }
    }

    func end(_ result: Result<[UInt8]?, DialFailure>) {
        guard let completion else { return }
        self.completion = nil
        startsDatagrams = nil
        timer?.cancel()
        completion(result)
    }
}
