import Testing

@testable import Transport

/// Every state and event (draft-ietf-ccwg-bbr-06, section 5.3; test cases named as in appendix A).
@Suite struct StateTests {
    enum Event: CaseIterable {
        case acknowledgement
        case plateau
        case limitedPlateau
        /// A tenth of a flight is lost in scattered packets, and a round ends.
        case losses
        case drained
        case wait
        case stale
        case persistentCongestion
        /// All data is acknowledged, the link is idle for a while, and data follows.
        case idle
    }

    static let table: [Congestion.State: [Event: Congestion.State]] = [
        .startup: [
            .acknowledgement: .startup, .plateau: .drain, .limitedPlateau: .startup, .losses: .drain,
            .drained: .startup, .wait: .startup, .stale: .probeRTT, .persistentCongestion: .startup, .idle: .startup,
        ],
        .drain: [
            .acknowledgement: .drain, .plateau: .drain, .limitedPlateau: .drain, .losses: .drain, .drained: .cruise,
            .wait: .drain, .stale: .probeRTT, .persistentCongestion: .startup, .idle: .drain,
        ],
        .down: [
            .acknowledgement: .down, .plateau: .down, .limitedPlateau: .down, .losses: .down, .drained: .cruise,
            .wait: .refill, .stale: .probeRTT, .persistentCongestion: .startup, .idle: .down,
        ],
        .cruise: [
            .acknowledgement: .cruise, .plateau: .cruise, .limitedPlateau: .cruise, .losses: .cruise, .drained: .cruise,
            .wait: .refill, .stale: .probeRTT, .persistentCongestion: .startup, .idle: .cruise,
        ],
        .refill: [
            .acknowledgement: .refill, .plateau: .up, .limitedPlateau: .up, .losses: .up, .drained: .refill,
            .wait: .refill, .stale: .probeRTT, .persistentCongestion: .startup, .idle: .refill,
        ],
        .up: [
            .acknowledgement: .up, .plateau: .down, .limitedPlateau: .up, .losses: .down, .drained: .up, .wait: .up,
            .stale: .probeRTT, .persistentCongestion: .startup, .idle: .up,
        ],
        .probeRTT: [
            .acknowledgement: .probeRTT, .plateau: .probeRTT, .limitedPlateau: .probeRTT, .losses: .probeRTT,
            .drained: .probeRTT, .wait: .probeRTT, .stale: .probeRTT, .persistentCongestion: .startup, .idle: .probeRTT,
        ],
    ]

    @Test(arguments: Congestion.State.allCases, Event.allCases)
    func `each event leads from each state to the draft's next state`(state: Congestion.State, event: Event) throws {
        var bench = Bench(in: state)
        try #require(bench.congestion.state == state)
        switch event {
        case .acknowledgement: bench.more()
        case .plateau: for _ in 0..<3 { bench.round() }
        case .limitedPlateau: for _ in 0..<3 { bench.round(isLimited: true) }
        case .losses:
            bench.lose(7)
            bench.round()
        case .drained: bench.more(inFlight: 10_000)
        case .wait: bench.more(after: 3_100_000)
        case .stale: bench.more(after: 5_100_000, roundTrip: 50_000)
        case .persistentCongestion: bench.congestion.collapse(bench.estimate, at: bench.now)
        case .idle:
            bench.congestion.ranDry(inFlight: 0)
            bench.now += 1_000_000
            _ = bench.congestion.sent(1_000, inFlight: 0, at: bench.now)
        }
        let expected = try #require(Self.table[state]?[event])
        #expect(bench.congestion.state == expected)
        // Every state permits sending.
        #expect(bench.congestion.window >= 2_000 && bench.congestion.pacingRate > 0)
    }

    @Test func `each state has the gains of the draft's table`() {
        let table: [(Congestion.State, Double, Double)] = [
            (.startup, 2.77, 2), (.drain, 0.5, 2), (.down, 0.9, 2), (.cruise, 1, 2), (.refill, 1, 2), (.up, 1.25, 2.25),
            (.probeRTT, 1, 0.5),
        ]
        for (state, pacing, window) in table {
            let bench = Bench(in: state)
            #expect(bench.congestion.pacingGain == pacing && bench.congestion.windowGain == window)
        }
        // The rate is 1 % below the measured one, and the window is a multiple of the bytes that fill the path.
        for state in [.drain, .cruise, .up] as [Congestion.State] {
            var bench = Bench(in: state)
            for _ in 0..<3 { bench.more() }
            let congestion = bench.congestion
            #expect(abs(congestion.pacingRate - congestion.pacingGain * 0.99 * congestion.rate) < 1e-9)
            #expect(abs(congestion.rate - 1) < 0.08)
        }
    }
}
