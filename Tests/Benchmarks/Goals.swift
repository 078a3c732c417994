import Control

/// Goals of the message path, each with the figure it is compared with in the same run.
enum Goal: CaseIterable {
    case rate, rateMany, senderTime, receiverTime, stored, memory, file, fileUDP, read, readMost, explode
    case storeExplode, idle, handshakes
    case rateNeighbours, medianNeighbours, statusNeighbours
    case mailboxIn, mailboxOut, mailboxTaken, mailboxShown, mailboxStartShown, mailboxMemory, mailboxMemoryStart,
        mailboxStart

    var figure: Figure {
        switch self {
        case .rate: .durableRate
        case .rateMany: .durableRateMany
        case .senderTime: .senderTime
        case .receiverTime: .receiverTime
        case .stored: .durableMedian
        case .memory: .ephemeralMedian
        case .file: .file
        case .fileUDP: .linkUDP
        case .read: .read
        case .readMost: .readMost
        case .explode: .explodeMany
        case .storeExplode: .storeExplodeMost
        case .idle: .memory
        case .handshakes: .handshakes
        case .rateNeighbours: .rateNeighbours
        case .medianNeighbours: .medianNeighbours
        case .statusNeighbours: .statusNeighbours
        case .mailboxIn: .mailboxIn
        case .mailboxOut: .mailboxOut
        case .mailboxTaken: .mailboxTaken
        case .mailboxShown: .mailboxShown
        case .mailboxStartShown: .mailboxStartShown
        case .mailboxMemory: .mailboxMemory
        case .mailboxMemoryStart: .mailboxMemoryStart
        case .mailboxStart: .mailboxStart
        }
    }

    /// `nil` when the figure has an absolute limit.
    var comparison: Figure? {
        switch self {
        case .rate: .floorRate
        case .rateMany: .durableRate
        case .stored: .floorStored
        case .memory: .floorMemory
        case .explode: .explodeFew
        case .storeExplode: .storeExplodeFew
        case .rateNeighbours: .rateAlone
        case .medianNeighbours: .medianAlone
        case .senderTime, .receiverTime, .file, .fileUDP, .read, .readMost, .idle, .handshakes, .mailboxIn, .mailboxOut,
            .mailboxTaken, .mailboxShown, .mailboxStartShown, .mailboxMemory, .mailboxMemoryStart, .mailboxStart,
            .statusNeighbours:
            nil
        }
    }

    /// Bound of the figure, or of its ratio to the comparison.
    var bound: Bound {
        switch self {
        case .rate: .atLeast(0.5)
        case .rateMany: .atLeast(0.8)
        case .senderTime, .receiverTime: .atMost(14)
        case .stored: .atMost(2)
        case .memory: .atMost(2.5)
        case .file, .fileUDP: .atLeast(200)
        case .read, .readMost: .atMost(1_000)
        case .explode, .storeExplode: .atMost(1.2)
        case .idle: .atMost(20)
        case .rateNeighbours: .atLeast(0.9)
        case .medianNeighbours: .atMost(1.1)
        case .statusNeighbours: .atMost(15)
        case .handshakes: .atLeast(3_000)
        case .mailboxIn, .mailboxOut: .atLeast(10_000)
        case .mailboxTaken, .mailboxShown: .atMost(50)
        case .mailboxMemory, .mailboxMemoryStart: .atMost(64)
        case .mailboxStart, .mailboxStartShown: .atMost(1_000)
        }
    }

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
