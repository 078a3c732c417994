/// Hole punching between two members over their relayed link. The member with the smaller key offers and dials; the
/// other answers and punches.
///
///     offering:  idle ──start──▶ gathering ──candidates──▶ offered ──answer──▶ waiting ──half a round trip─▶ dial, idle
///     answering: idle ──offer──▶ gathering ──candidates──▶ answered ──go──▶ punch, idle
///     any ──another link, timeout──▶ idle
///
/// The dial starts when `go` reaches the other side: a packet that meets a closed NAT may create a state there that
/// blocks the path.
package struct PunchStateMachine: Hashable, Sendable {
    private enum State: Hashable, Sendable {
        case idle
        /// The shell gathers our candidates. `offer`: the other side's candidates, if we answer.
        case gathering(nonce: PunchNonce, offer: [Endpoint]?, since: Timestamp)
        case offered(nonce: PunchNonce, at: Timestamp)
        case waiting(nonce: PunchNonce, theirs: [Endpoint], dialAt: Timestamp)
        case answered(nonce: PunchNonce, theirs: [Endpoint], at: Timestamp)
    }

    package enum Action: Hashable, Sendable {
        /// Gather our candidates and call ``gathered(_:now:)``.
        case gather
        case say(PunchMessage)
        case dial(PunchNonce, [Endpoint])
        case punch(PunchNonce, [Endpoint])
    }

    private let offers: Bool
    private var state = State.idle
    /// Limits the offers that we answer: each makes us send packets to addresses that the other side names.
    private var bucket = TokenBucket(Limits.punchRate)

    /// - Parameter offers: our key is the smaller one.
    package init(offers: Bool) { self.offers = offers }

    package var nextDeadline: Timestamp? {
        switch state {
        case .idle: nil
        case .gathering(_, _, let since): since + Limits.punchPatience
        case .offered(_, let at), .answered(_, _, let at): at + Limits.punchPatience
        case .waiting(_, _, let dialAt): dialAt
        }
    }

    package mutating func start(now: Timestamp, random: inout some RandomNumberGenerator) -> [Action] {
        guard offers, case .idle = state else { return [] }
        state = .gathering(nonce: PunchNonce(random: &random), offer: nil, since: now)
        return [.gather]
    }

    /// Our candidates: addresses with UDP ports.
    package mutating func gathered(_ endpoints: [Endpoint], now: Timestamp) -> [Action] {
        guard case .gathering(let nonce, let offer, _) = state else { return [] }
        let own = Array(endpoints.prefix(Limits.punchCandidateCount))
        guard let theirs = offer else {
            state = own.isEmpty ? .idle : .offered(nonce: nonce, at: now)
            return own.isEmpty ? [] : [.say(PunchMessage(step: .offer, nonce: nonce, candidates: own))]
        }
        // An empty answer makes the other side give up at once.
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

    package mutating func linkChanged() { state = .idle }
}

/// Identifies one attempt: 16 random bytes.
package struct PunchNonce: Hashable, Sendable {
    package let bytes: [UInt8]

    package init?(_ bytes: [UInt8]) {
        guard bytes.count == 16 else { return nil }
        self.bytes = bytes
    }

    init(random: inout some RandomNumberGenerator) {
        bytes = (0..<16).map { _ in UInt8.random(in: 0...255, using: &random) }
    }
}

package struct PunchMessage: Hashable, Sendable {
    package enum Step: UInt8, Hashable, Sendable, CaseIterable {
        case offer = 1
        case answer, go
    }

    package var step: Step
    package var nonce: PunchNonce
    /// The sender's candidate addresses; none in `go`.
    package var candidates: [Endpoint]

    package init(step: Step, nonce: PunchNonce, candidates: [Endpoint]) {
        (self.step, self.nonce, self.candidates) = (step, nonce, candidates)
    }
}

extension Limits {
    /// Most candidates of one side.
    package static let punchCandidateCount = 8
    /// Offers of a member that are answered: a burst of two, then one each 10 s.
    package static let punchRate = Rate(every: 10 * .second, burst: 2)
    /// Timeout for the next message.
    package static let punchPatience: Milliseconds = 10 * .second
    /// How long the shell waits for peers to report our observed address.
    package static let observePatience: Milliseconds = 1_500
    /// How long it waits for the others after the first report.
    package static let observeGrace: Milliseconds = 200
}
