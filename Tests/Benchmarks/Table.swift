import Control

enum Figure: String, CaseIterable {
    case rawSynchronize = "raw fdatasync of a 256-byte append"
    case rawPingPong = "raw TCP ping-pong of 200 bytes"
    case rawSpawn = "raw start and end of /bin/true"
    case startUp = "start-up to ready"
    case status = "mayfly status"
    case memory = "resident memory, idle node"
    case memoryPeak = "resident memory, idle node, peak"
    case identity = "create a conversation, its identity from the pool"
    case identityFresh = "create a conversation, back to back"
    case ephemeralMedian = "message RAM-only, p50"
    case ephemeralTail = "message RAM-only, p99"
    case durableMedian = "message durable, p50"
    case durableTail = "message durable, p99"
    case ephemeralRate = "messages RAM-only, 256 in flight"
    case durableRate = "messages durable, 256 in flight"
    case durableRateMany = "messages durable, 256 in flight, 16 conversations"
    case durableRateSingle = "messages durable, 256 in flight, a request each"
    case senderTime = "processor time of a durable message, sender"
    case receiverTime = "processor time of a durable message, receiver"
    case senderTimeSingle = "processor time, sender, a request each"
    case floorRate = "floor: messages durable, 256 in flight"
    case floorSenderTime = "floor: processor time, sender"
    case floorReceiverTime = "floor: processor time, receiver"
    case floorStored = "floor: message durable, p50"
    case floorMemory = "floor: message RAM-only, p50"
    case floorBulk = "floor: bulk"
    case explodeFew = "explode 10 messages"
    case explodeMany = "explode 10,000 messages"
    case explodeFewEverywhere = "explode 10 messages, other side's receipt"
    case explodeManyEverywhere = "explode 10,000 messages, other side's receipt"
    case read = "read the last 50 of 10,000 messages"
    case readMost = "read the last 50 of 1,000,000 messages"
    case memoryLoaded = "resident memory after 15,000 messages, sender"
    case storeAppend = "store alone: processor time of a message, append and commits of 100"
    case storeAppendWall = "store alone: messages stored in commits of 100"
    case storeChunks = "store alone: records of 60 KiB stored in commits of 32"
    case storeLastFew = "store alone: last 50 of 10,000, from the unlock"
    case storeLastMany = "store alone: last 50 of 1,000,000, from the unlock"
    case storeLastAgain = "store alone: last 50 of 1,000,000, again"
    case storeExplodeFew = "store alone: explode 10 messages"
    case storeExplodeMany = "store alone: explode 10,000 messages"
    case storeExplodeMost = "store alone: explode 1,000,000 messages"
    case storeExpireFew = "store alone: expire a bucket of 10 messages"
    case storeExpireMany = "store alone: expire a bucket of 10,000 messages"
    case storeReap = "store alone: open with 1,000 buckets overdue, until they are gone"
    case storeCollect = "store alone: longest step of removing them"
    case storeIndexTime = "store alone: first use of 1,000,000 messages"
    case storeIndexMemory = "store alone: index memory of a message"
    case storeUnlock = "store alone: open and unlock 10,000 inboxes"
    case storeInboxMemory = "store alone: memory of an unused inbox"
    case storeWake = "store alone: state, last message of an inbox"

    case file = "a file of 64 MiB, to delivered"
    case linkTCP = "64 MiB over a link, TCP"
    case linkUDP = "64 MiB over a link, UDP"
    case handshakes = "handshakes on one core, both ends"
    case wakeMedian = "wake a sleeping inbox, p50"
    case wakeTail = "wake a sleeping inbox, p99"
    case rebalanceFew = "rebalance 1,000 inboxes"
    case rebalanceMany = "rebalance 10,000 inboxes"
    case memoryAwake = "resident memory per awake inbox"
    case memoryAsleep = "resident memory per sleeping inbox"
    case startUpMany = "start-up to ready, 10,000 inboxes"
    case memoryMany = "resident memory after a start, 10,000 inboxes"
    case rateAlone = "messages durable, a request each, no other inbox"
    case rateNeighbours = "messages durable, a request each, 10,000 others"
    case medianAlone = "message durable, p50, no other inbox"
    case medianNeighbours = "message durable, p50, 10,000 others"
    case statusNeighbours = "mayfly status, 10,000 inboxes"
    case idleTick = "processor time of an idle node in 10 s, 10,000 inboxes"
    case mailboxIn = "mailbox: contents into 128 boxes"
    case mailboxOut = "mailbox: contents out of 128 boxes"
    case mailboxMemory = "mailbox: resident memory, 128 full boxes"
    case mailboxMemoryStart = "mailbox: resident memory after a start, all claimed"
    case mailboxStart = "mailbox: start-up to ready, 128 full boxes"
    case mailboxTaken = "mailbox: 256 slots listed, taken and overwritten"
    case mailboxShown = "mailbox: 256 waiting messages, first to last shown"
    case mailboxStartShown = "mailbox: 256 waiting messages, start to last shown"

    enum Unit: String {
        case microseconds = "us"
        case milliseconds = "ms"
        case perSecond = "/s"
        case mebibytes = "MiB"
        case kibibytes = "KiB"
        case mebibytesPerSecond = "MiB/s"
        case bytes = "bytes"
    }

    var unit: Unit {
        switch self {
        case .rawSynchronize, .rawPingPong, .rawSpawn, .ephemeralMedian, .ephemeralTail, .durableMedian, .durableTail,
            .identity, .identityFresh, .explodeFew, .explodeMany, .explodeFewEverywhere, .explodeManyEverywhere, .read,
            .wakeMedian, .wakeTail, .rebalanceFew, .rebalanceMany, .storeAppend, .storeLastFew, .storeLastMany,
            .storeLastAgain, .storeExplodeFew, .storeExplodeMany, .storeExplodeMost, .storeCollect, .storeWake,
            .storeExpireFew, .storeExpireMany, .readMost, .senderTime, .receiverTime, .senderTimeSingle,
            .floorSenderTime, .floorReceiverTime, .floorStored, .floorMemory, .medianAlone, .medianNeighbours,
            .idleTick:
            .microseconds
        case .startUp, .status, .startUpMany, .storeReap, .storeIndexTime, .storeUnlock, .mailboxStart, .mailboxTaken,
            .mailboxShown, .mailboxStartShown, .statusNeighbours:
            .milliseconds
        case .memory, .memoryPeak, .memoryLoaded, .memoryMany, .mailboxMemory, .mailboxMemoryStart: .mebibytes
        case .memoryAsleep, .memoryAwake: .kibibytes
        case .file, .linkTCP, .linkUDP, .floorBulk, .storeChunks: .mebibytesPerSecond
        case .storeIndexMemory, .storeInboxMemory: .bytes
        case .ephemeralRate, .durableRate, .durableRateMany, .durableRateSingle, .floorRate, .handshakes,
            .storeAppendWall, .mailboxIn, .mailboxOut, .rateAlone, .rateNeighbours:
            .perSecond
        }
    }

    /// The machine's own time for the unavoidable part. A rate is compared with repetitions per second.
    var raw: Figure? {
        switch self {
        case .rawSynchronize, .rawPingPong, .rawSpawn, .memory, .memoryPeak, .memoryLoaded, .memoryMany, .memoryAsleep,
            .memoryAwake, .file, .rebalanceFew, .rebalanceMany, .storeCollect, .storeIndexTime, .storeIndexMemory,
            .storeUnlock, .storeInboxMemory, .storeWake, .storeReap, .storeAppend, .storeAppendWall, .storeChunks,
            .storeLastFew, .storeLastMany, .storeLastAgain, .readMost, .senderTime, .receiverTime, .senderTimeSingle,
            .floorRate, .floorSenderTime, .floorReceiverTime, .floorStored, .floorMemory, .floorBulk, .linkTCP,
            .linkUDP, .handshakes, .mailboxIn, .mailboxOut, .mailboxMemory, .mailboxMemoryStart, .mailboxTaken,
            .mailboxShown, .mailboxStartShown, .rateAlone, .rateNeighbours, .medianAlone, .medianNeighbours, .idleTick:
            nil
        case .storeExplodeFew, .storeExplodeMany, .storeExplodeMost, .storeExpireFew, .storeExpireMany: .rawSynchronize
        case .startUp, .status, .statusNeighbours, .startUpMany, .mailboxStart: .rawSpawn
        case .ephemeralMedian, .ephemeralTail, .ephemeralRate: .rawPingPong
        case .identity, .identityFresh, .durableMedian, .durableTail, .durableRate, .durableRateMany,
            .durableRateSingle, .explodeFew, .explodeMany, .explodeFewEverywhere, .explodeManyEverywhere, .read,
            .wakeMedian, .wakeTail:
            .rawSynchronize
        }
    }

    /// `value` in this figure's unit as a multiple of `raw` in its own.
    func ratio(_ value: Double, to raw: Double) -> Double {
        switch unit {
        case .microseconds, .mebibytes, .kibibytes, .bytes, .mebibytesPerSecond: value / raw
        case .milliseconds: value * 1_000 / raw
        case .perSecond: value * raw / 1_000_000
        }
    }

    /// Limit of the value or its ratio.
    var guide: (limit: Double, isRatio: Bool)? {
        switch self {
        case .identity: (1_000, false)
        case .memoryAwake: (64, false)
        case .durableMedian: (5, true)
        case .ephemeralMedian: (1_000, false)
        case .status: (50, false)
        case .memory: (40, false)
        case .wakeTail: (5_000, false)
        case .rebalanceMany: (20_000, false)
        case .memoryAsleep: (8, false)
        case .storeAppend: (3, false)
        case .storeLastFew, .storeLastMany, .storeLastAgain: (1_000, false)
        case .storeInboxMemory: (2_048, false)
        case .storeWake: (1_000, false)
        case .storeReap: (2_000, false)
        default: nil
        }
    }
}

struct Table {
    private var values: [Figure: [Double]] = [:]

    mutating func add(_ figure: Figure, _ value: Double) { values[figure, default: []].append(value) }

    private struct Row {
        let figure: Figure
        let median: Double
        let minimum: Double
        let maximum: Double
        let ratio: Double?

        var meetsGuide: Bool? {
            figure.guide.map { guide in (guide.isRatio ? ratio ?? .infinity : median) < guide.limit }
        }
    }

    private var rows: [Row] {
        Figure.allCases.compactMap { figure in
            guard let all = values[figure], let minimum = all.min(), let maximum = all.max() else { return nil }
            let ratio = figure.raw.flatMap { values[$0] }.map { raw in
                zip(all, raw).map { figure.ratio($0, to: $1) }.median
            }
            return Row(figure: figure, median: all.median, minimum: minimum, maximum: maximum, ratio: ratio)
        }
    }

    func show(json: Bool) {
        if json {
            for row in rows { print(Self.object(row).text) }
            return
        }
        print(Self.line("name", "median", "min", "max", "unit", "ratio"))
        for row in rows {
            let ratio = row.ratio.map { Self.text($0) + " x " + (row.figure.raw?.shortName ?? "") } ?? "-"
            print(
                Self.line(
                    row.figure.rawValue, Self.text(row.median), Self.text(row.minimum), Self.text(row.maximum),
                    row.figure.unit.rawValue, ratio))
        }
        for row in rows {
            guard let guide = row.figure.guide, let isMet = row.meetsGuide else { continue }
            let limit =
                guide.isRatio
                ? "\(Self.text(guide.limit)) x raw" : "\(Self.text(guide.limit)) \(row.figure.unit.rawValue)"
            print("guide: \(row.figure.rawValue) < \(limit): \(isMet ? "met" : "MISSED")")
        }
    }

    /// Prints each goal and whether it was reached: the median of the runs, in which figure and comparison alternated.
    func showGoals(json: Bool) {
        for goal in Goal.allCases {
            guard let all = values[goal.figure] else { continue }
            var reached = all.median
            if let comparison = goal.comparison {
                guard let other = values[comparison] else { continue }
                reached = zip(all, other).map { $0 / $1 }.median
            }
            let isMet = goal.bound.isMet(by: reached)
            if json {
                let line: JSONValue = [
                    "goal": .string(goal.figure.rawValue), "bound": .string(goal.bound.text),
                    "comparedWith": goal.comparison.map { .string($0.rawValue) } ?? .null, "reached": .number(reached),
                    "met": .bool(isMet),
                ]
                print(line.text)
            } else {
                let unit = goal.comparison.map { " x \($0.rawValue)" } ?? " \(goal.figure.unit.rawValue)"
                let words = "\(goal.bound.text)\(unit): \(Self.text(reached))"
                print("goal: \(goal.figure.rawValue) \(words): \(isMet ? "met" : "MISSED")")
            }
        }
    }

    private static func object(_ row: Row) -> JSONValue {
        var members: [String: JSONValue] = [
            "name": .string(row.figure.rawValue), "median": .number(row.median), "min": .number(row.minimum),
            "max": .number(row.maximum), "unit": .string(row.figure.unit.rawValue),
        ]
        members["ratio"] = row.ratio.map(JSONValue.number)
        members["ratioTo"] = (row.figure.raw?.rawValue).map(JSONValue.string)
        members["meetsGuide"] = row.meetsGuide.map(JSONValue.bool)
        return .object(members)
    }

    private static func line(
        _ name: String, _ median: String, _ minimum: String, _ maximum: String, _ unit: String, _ ratio: String
    ) -> String {
        func left(_ text: String, _ width: Int) -> String {
            text + String(repeating: " ", count: max(0, width - text.count))
        }
        func right(_ text: String) -> String { String(repeating: " ", count: max(0, 10 - text.count)) + text }
        return left(name, 51) + right(median) + right(minimum) + right(maximum) + "  " + left(unit, 6) + ratio
    }

    /// Three significant digits, no exponent.
    static func text(_ value: Double) -> String {
        let digits = value < 10 ? 100.0 : value < 100 ? 10 : 1
        let scaled = Int64((value * digits).rounded())
        guard digits > 1 else { return String(scaled) }
        let fraction = String(scaled % Int64(digits))
        let width = digits == 100 ? 2 : 1
        return "\(scaled / Int64(digits))." + String(repeating: "0", count: width - fraction.count) + fraction
    }
}

extension Figure {
    fileprivate var shortName: String {
        switch self {
        case .rawSynchronize: "fdatasync"
        case .rawPingPong: "ping-pong"
        case .rawSpawn: "/bin/true"
        default: rawValue
        }
    }
}
