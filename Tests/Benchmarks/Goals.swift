struct Goal {
    let figure: Figure
    /// The figure of the same run that it is compared with; `nil` when the goal has an absolute limit.
    let comparison: Figure?
    /// Bound of the figure, or of its ratio to the comparison.
    let bound: Bound

    private init(_ figure: Figure, to comparison: Figure? = nil, _ bound: Bound) {
        (self.figure, self.comparison, self.bound) = (figure, comparison, bound)
    }

    /// The goals of a request for each message come first, because scripts do that most.
    static let all = [
        Goal(.durableRateSingle, to: .floorRate, .atLeast(0.45)), Goal(.durableRate, to: .floorRate, .atLeast(0.6)),
        Goal(.ephemeralRate, to: .durableRateSingle, .atLeast(1)),
        Goal(.durableRateMany, to: .durableRate, .atLeast(0.9)), Goal(.senderTimeSingle, .atMost(12)),
        Goal(.senderTime, .atMost(14)), Goal(.receiverTime, .atMost(14)),
        Goal(.durableMedian, to: .floorStored, .atMost(2)), Goal(.durableTail, to: .durableMedian, .atMost(1.5)),
        Goal(.ephemeralMedian, to: .floorMemory, .atMost(2.5)), Goal(.file, .atLeast(400)),
        Goal(.explodeMany, to: .explodeFew, .atMost(1.2)), Goal(.memory, .atMost(16)), Goal(.memoryAfter, .atMost(24)),
        Goal(.memoryPeak, .atMost(30)), Goal(.rateNeighbours, to: .rateAlone, .atLeast(0.9)),
        Goal(.medianNeighbours, to: .medianAlone, .atMost(1.1)), Goal(.statusNeighbours, .atMost(15)),
        Goal(.linkUDP, .atLeast(200)), Goal(.handshakes, .atLeast(1_600)), Goal(.read, .atMost(1_000)),
        Goal(.readMost, .atMost(1_000)), Goal(.storeExplodeMost, to: .storeExplodeFew, .atMost(1.2)),
        Goal(.identity, .atMost(1_000)), Goal(.status, .atMost(50)), Goal(.wakeTail, .atMost(5_000)),
        Goal(.rebalanceMany, .atMost(20_000)), Goal(.memoryAwake, .atMost(64)), Goal(.memoryAsleep, .atMost(8)),
        Goal(.storeAppend, .atMost(3)), Goal(.storeLastFew, .atMost(1_000)), Goal(.storeLastMany, .atMost(1_000)),
        Goal(.storeLastAgain, .atMost(1_000)), Goal(.storeInboxMemory, .atMost(2_048)),
        Goal(.storeWake, .atMost(1_000)), Goal(.storeReap, .atMost(2_000)), Goal(.mailboxIn, .atLeast(10_000)),
        Goal(.mailboxOut, .atLeast(10_000)), Goal(.mailboxTaken, .atMost(50)), Goal(.mailboxShown, .atMost(50)),
        Goal(.mailboxStartShown, .atMost(1_000)), Goal(.mailboxMemory, .atMost(64)),
        Goal(.mailboxMemoryStart, .atMost(64)), Goal(.mailboxStart, .atMost(1_000)), Goal(.startUpLinked, .atMost(300)),
        Goal(.startUpLinkedMany, .atMost(500)), Goal(.startTime, .atMost(500)), Goal(.idleLinked, .atMost(10_000)),
        Goal(.wakesLinked, .atMost(10)),
    ]

    enum Bound {
        case atLeast(Double)
        case atMost(Double)

        func isMet(by value: Double) -> Bool {
            switch self {
            case .atLeast(let bound): value >= bound
            case .atMost(let bound): value <= bound
            }
        }

        var text: String {
            switch self {
            case .atLeast(let bound): ">= \(Table.text(bound))"
            case .atMost(let bound): "<= \(Table.text(bound))"
            }
        }
    }
}
