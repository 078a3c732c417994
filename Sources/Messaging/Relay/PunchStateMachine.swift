import Crypto

/// What two members with a relayed link tell each other over it, to make a way through their NATs. The one with the smaller
/// key offers and dials, the other answers and punches.
///
///     offering:   idle ──start──▶ gathering ──candidates──▶ offered ──answer──▶ waiting ──half a round trip──▶ dial, idle
///     answering:  idle ──offer──▶ gathering ──candidates──▶ answered ──go──▶ punch, idle
///     any ──another link, a long silence──▶ idle
///
/// The dial leaves when `go` arrives at the other side: a packet that meets a closed NAT may leave a mark there that spoils
/// the way.
package struct PunchStateMachine: Hashable, Sendable {
    private enum State: Hashable, Sendable {
        case idle
        /// The shell finds out where we may be seen. `offer`: what is answered then; `nil` if we offer.
        case gathering(nonce: PunchNonce, offer: [Endpoint]?, since: Timestamp)
        case offered(nonce: PunchNonce, at: Timestamp)
        case waiting(nonce: PunchNonce, theirs: [Endpoint], dialAt: Timestamp)
        case answered(nonce: PunchNonce, theirs: [Endpoint], at: Timestamp)
    }

    package enum Action: Hashable, Sendable {
        /// Find out where we may be seen, and call ``gathered(_:now:)``.
        case gather
        case say(PunchMessage)
        case dial(PunchNonce, [Endpoint])
        case punch(PunchNonce, [Endpoint])
    }

    private let offers: Bool
    private var state = State.idle
    /// Offers that are answered: each makes us send packets to addresses of the other's choosing.
    private var bucket = TokenBucket(interval: Limits.punchInterval, burst: Limits.punchBurst)

    /// - Parameter offers: our key is the smaller one.
    package init(offers: Bool) { self.offers = offers }

    /// When ``advance(now:)`` has something to do.
    package var nextDeadline: Timestamp? {
        switch state {
        case .idle: nil
        case .gathering(_, _, let since): since + Limits.punchPatience
        case .offered(_, let at), .answered(_, _, let at): at + Limits.punchPatience
        case .waiting(_, _, let dialAt): dialAt
        }
    }

    /// A direct way is wanted.
    package mutating func start(now: Timestamp, random: inout some RandomNumberGenerator) -> [Action] {
        guard offers, case .idle = state else { return [] }
        state = .gathering(nonce: PunchNonce(random: &random), offer: nil, since: now)
        return [.gather]
    }

    /// Where we may be seen: addresses, ports of UDP.
    package mutating func gathered(_ endpoints: [Endpoint], now: Timestamp) -> [Action] {
        guard case .gathering(let nonce, let offer, _) = state else { return [] }
        let own = Array(endpoints.prefix(Limits.punchCandidateCount))
        guard let theirs = offer else {
            state = own.isEmpty ? .idle : .offered(nonce: nonce, at: now)
            return own.isEmpty ? [] : [.say(PunchMessage(step: .offer, nonce: nonce, candidates: own))]
        }
        // Without a place of our own we still say so: the other side gives up at once.
        state = own.isEmpty ? .idle : .answered(nonce: nonce, theirs: theirs, at: now)
        return [.say(PunchMessage(step: .answer, nonce: nonce, candidates: own))]
    }

    package mutating func receive(_ message: PunchMessage, now: Timestamp) -> [Action] {
        switch (message.step, state) {
        case (.offer, .idle), (.offer, .gathering), (.offer, .answered):
            guard !offers, !message.candidates.isEmpty, bucket.take(now: now) == nil else { return [] }
            state = .gathering(nonce: message.nonce, offer: message.candidates, since: now)
            return [.gather]
        case (.answer, .offered(message.nonce, let at)):
            guard !message.candidates.isEmpty else {
                state = .idle
                return []
            }
            state = .waiting(nonce: message.nonce, theirs: message.candidates, dialAt: now + max(0, now - at) / 2)
            return [.say(PunchMessage(step: .go, nonce: message.nonce, candidates: []))]
        case (.go, .answered(message.nonce, let theirs, _)):
            state = .idle
            return [.punch(message.nonce, theirs)]
        case (.offer, .offered), (.offer, .waiting), (.answer, _), (.go, _): return []
        }
    }

    package mutating func advance(now: Timestamp) -> [Action] {
        guard let deadline = nextDeadline, deadline <= now else { return [] }
        defer { state = .idle }
        if case .waiting(let nonce, let theirs, _) = state { return [.dial(nonce, theirs)] }
        return []
    }

    /// The link over which this was talked of is not in use any more.
    package mutating func linkChanged() { state = .idle }
}

/// Names one try of two members to make a way: 16 bytes, at random.
package struct PunchNonce: Hashable, Sendable {
    package let bytes: [UInt8]

    /// `nil` unless there are 16.
    package init?(_ bytes: [UInt8]) {
        guard bytes.count == 16 else { return nil }
        self.bytes = bytes
    }

    init(random: inout some RandomNumberGenerator) {
        bytes = (0..<16).map { _ in UInt8.random(in: 0...255, using: &random) }
    }
}

/// What is said over the relayed link.
package struct PunchMessage: Hashable, Sendable {
    package enum Step: UInt8, Hashable, Sendable, CaseIterable {
        case offer = 1
        case answer, go
    }

    package var step: Step
    package var nonce: PunchNonce
    /// Addresses where the sender may be seen; none in `go`.
    package var candidates: [Endpoint]

    package init(step: Step, nonce: PunchNonce, candidates: [Endpoint]) {
        self.step = step
        self.nonce = nonce
        self.candidates = candidates
    }
}

extension Limits {
    /// Addresses that a side names.
    package static let punchCandidateCount = 8
    /// Offers that a member's are answered: so many at once, and one more every 10 s.
    package static let punchInterval: Milliseconds = 10 * .second
    package static let punchBurst = 2
    /// How long the next word is waited for.
    package static let punchPatience: Milliseconds = 10 * .second
    /// How long the shell waits for those whom it has asked from where they see us.
    package static let observePatience: Milliseconds = 1_500
    /// And for the others once one has answered.
    package static let observeGrace: Milliseconds = 200
}
