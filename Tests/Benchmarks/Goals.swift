import Control

/// A goal of the message path.
struct Goal {
    let figure: Figure
    /// The figure of the same run that it is compared with; `nil` when the goal has an absolute limit.
    let comparison: Figure?
    /// Bound of the figure, or of its ratio to the comparison.
    let bound: Bound

    private init(_ figure: Figure, to comparison: Figure? = nil, _ bound: Bound) {
        (self.figure, self.comparison, self.bound) = (figure, comparison, bound)
    }

    static let all = [
        Goal(.durableRate, to: .floorRate, .atLeast(0.5)), Goal(.durableRateMany, to: .durableRate, .atLeast(0.8)),
        Goal(.senderTime, .atMost(14)), Goal(.receiverTime, .atMost(14)),
        Goal(.durableMedian, to: .floorStored, .atMost(2)), Goal(.ephemeralMedian, to: .floorMemory, .atMost(2.5)),
        Goal(.file, .atLeast(200)), Goal(.linkUDP, .atLeast(200)), Goal(.read, .atMost(1_000)),
        Goal(.readMost, .atMost(1_000)), Goal(.explodeMany, to: .explodeFew, .atMost(1.2)),
        Goal(.storeExplodeMost, to: .storeExplodeFew, .atMost(1.2)), Goal(.memory, .atMost(20)),
        Goal(.handshakes, .atLeast(3_000)), Goal(.rateNeighbours, to: .rateAlone, .atLeast(0.9)),
        Goal(.medianNeighbours, to: .medianAlone, .atMost(1.1)), Goal(.statusNeighbours, .atMost(15)),
        Goal(.mailboxIn, .atLeast(10_000)), Goal(.mailboxOut, .atLeast(10_000)), Goal(.mailboxTaken, .atMost(50)),
        Goal(.mailboxShown, .atMost(50)), Goal(.mailboxStartShown, .atMost(1_000)), Goal(.mailboxMemory, .atMost(64)),
        Goal(.mailboxMemoryStart, .atMost(64)), Goal(.mailboxStart, .atMost(1_000)),
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
