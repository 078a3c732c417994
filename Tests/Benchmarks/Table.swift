/// A figure's name, its unit, and the machine's own time for the unavoidable part.
enum Figure: String, CaseIterable {
    case rawSynchronize = "raw fdatasync of a 256-byte append|us"
    case startUp = "start-up to ready|ms"
    case status = "mayfly status|ms"
    case memory = "resident memory, idle node|MiB"
    case memoryPeak = "resident memory, idle node, peak|MiB"
    case identity = "create a conversation, its identity from the pool|us|fdatasync"
    case identityFresh = "create a conversation, back to back|us|fdatasync"
    case ephemeralMedian = "message RAM-only, p50|us"
    case ephemeralTail = "message RAM-only, p99|us"
    case durableMedian = "message durable, p50|us|fdatasync"
    case durableTail = "message durable, p99|us|fdatasync"
    case ephemeralRate = "messages RAM-only, 256 in flight|/s"
    case durableRate = "messages durable, 256 in flight|/s|fdatasync"
    case durableRateMany = "messages durable, 256 in flight, 16 conversations|/s|fdatasync"
    case durableRateSingle = "messages durable, 256 in flight, a request each|/s|fdatasync"
    case senderTime = "processor time of a durable message, sender|us"
    case receiverTime = "processor time of a durable message, receiver|us"
    case senderTimeSingle = "processor time, sender, a request each|us"
    case floorRate = "floor: messages durable, 256 in flight|/s"
    case floorSenderTime = "floor: processor time, sender|us"
    case floorReceiverTime = "floor: processor time, receiver|us"
    case floorStored = "floor: message durable, p50|us"
    case floorMemory = "floor: message RAM-only, p50|us"
    case floorBulk = "floor: bulk|MiB/s"
    case explodeFew = "explode 10 messages|us|fdatasync"
    case explodeMany = "explode 10,000 messages|us|fdatasync"
    case explodeFewEverywhere = "explode 10 messages, other side's receipt|us|fdatasync"
    case explodeManyEverywhere = "explode 10,000 messages, other side's receipt|us|fdatasync"
    case read = "read the last 50 of 10,000 messages|us|fdatasync"
    case readMost = "read the last 50 of 1,000,000 messages|us"
    case memoryLoaded = "resident memory after 15,000 messages, sender|MiB"
    case memoryAfter = "resident memory after 15,000 messages, a minute later|MiB"
    case storeAppend = "store alone: processor time of a message, append and commits of 100|us"
    case storeAppendWall = "store alone: messages stored in commits of 100|/s"
    case storeChunks = "store alone: records of 60 KiB stored in commits of 32|MiB/s"
    case storeLastFew = "store alone: last 50 of 10,000, from the unlock|us"
    case storeLastMany = "store alone: last 50 of 1,000,000, from the unlock|us"
    case storeLastAgain = "store alone: last 50 of 1,000,000, again|us"
    case storeExplodeFew = "store alone: explode 10 messages|us|fdatasync"
    case storeExplodeMany = "store alone: explode 10,000 messages|us|fdatasync"
    case storeExplodeMost = "store alone: explode 1,000,000 messages|us|fdatasync"
    case storeExpireFew = "store alone: expire a bucket of 10 messages|us|fdatasync"
    case storeExpireMany = "store alone: expire a bucket of 10,000 messages|us|fdatasync"
    case storeReap = "store alone: open with 1,000 buckets overdue, until they are gone|ms"
    case storeCollect = "store alone: longest step of removing them|us"
    case storeIndexTime = "store alone: first use of 1,000,000 messages|ms"
    case storeIndexMemory = "store alone: index memory of a message|bytes"
    case storeUnlock = "store alone: open and unlock 10,000 inboxes|ms"
    case storeInboxMemory = "store alone: memory of an unused inbox|bytes"
    case storeWake = "store alone: state, last message of an inbox|us"
    case file = "a file of 64 MiB, to delivered|MiB/s"
    case linkTCP = "64 MiB over a link, TCP|MiB/s"
    case linkUDP = "64 MiB over a link, UDP|MiB/s"
    case handshakes = "handshakes on one core, both ends|/s"
    case wakeMedian = "wake a sleeping inbox, p50|us|fdatasync"
    case wakeTail = "wake a sleeping inbox, p99|us|fdatasync"
    case rebalanceFew = "rebalance 1,000 inboxes|us"
    case rebalanceMany = "rebalance 10,000 inboxes|us"
    case memoryAwake = "resident memory per awake inbox|KiB"
    case memoryAsleep = "resident memory per sleeping inbox|KiB"
    case startUpMany = "start-up to ready, 10,000 inboxes|ms"
    case memoryMany = "resident memory after a start, 10,000 inboxes|MiB"
    case rateAlone = "messages durable, a request each, no other inbox|/s"
    case rateNeighbours = "messages durable, a request each, 10,000 others|/s"
    case medianAlone = "message durable, p50, no other inbox|us"
    case medianNeighbours = "message durable, p50, 10,000 others|us"
    case statusNeighbours = "mayfly status, 10,000 inboxes|ms"
    case startUpLinked = "start to `mayfly status`, 1,000 linked|ms"
    case startUpLinkedMany = "start to `mayfly status`, 2,000 linked|ms"
    case startTime = "10 s of a start, 1,000 linked, beyond handshakes|ms"
    case idleLinked = "processor time of an idle second, 1,000 linked|us"
    case wakesLinked = "wake-ups of an idle node, 1,000 linked|/s"
    case mailboxIn = "mailbox: contents into 128 boxes|/s"
    case mailboxOut = "mailbox: contents out of 128 boxes|/s"
    case mailboxMemory = "mailbox: resident memory, 128 full boxes|MiB"
    case mailboxMemoryStart = "mailbox: resident memory after a start, all claimed|MiB"
    case mailboxStart = "mailbox: start-up to ready, 128 full boxes|ms"
    case mailboxTaken = "mailbox: 256 slots listed, taken and overwritten|ms"
    case mailboxShown = "mailbox: 256 waiting messages, first to last shown|ms"
    case mailboxStartShown = "mailbox: 256 waiting messages, start to last shown|ms"

    private var parts: [Substring] { rawValue.split(separator: "|") }
    var name: String { String(parts[0]) }
    var unit: String { String(parts[1]) }
    /// The time of the disk alone. A rate is compared with repetitions per second.
    var raw: Figure? { parts.count > 2 ? .rawSynchronize : nil }

    /// `value` in this figure's unit as a multiple of `raw` in its own.
    func ratio(_ value: Double, to raw: Double) -> Double { unit == "/s" ? value * raw / 1_000_000 : value / raw }
}

final class Table {
    private var values: [Figure: [Double]] = [:]

    func add(_ figure: Figure, _ value: Double) { values[figure, default: []].append(value) }

    /// The time of a call, in the figure's unit.
    @discardableResult func time<Result>(_ figure: Figure, _ body: () throws -> Result) rethrows -> Result {
        let start = ContinuousClock.now
        let result = try body()
        add(figure, (ContinuousClock.now - start) / (figure.unit == "ms" ? .milliseconds(1) : .microseconds(1)))
        return result
    }

    /// The median time of `count` calls, in microseconds.
    func addMedian(_ figure: Figure, _ count: Int, _ body: () throws -> Void) rethrows {
        add(figure, try (0..<count).map { _ in try microseconds(body) }.median)
    }

    func show() {
        print(Self.line("name", "median", "min", "max", "unit", "ratio"))
        for figure in Figure.allCases {
            guard let all = values[figure], let minimum = all.min(), let maximum = all.max() else { continue }
            let ratio = figure.raw.flatMap { values[$0] }.map { raw in
                Self.text(zip(all, raw).map { figure.ratio($0, to: $1) }.median) + " x fdatasync"
            }
            print(
                Self.line(
                    figure.name, Self.text(all.median), Self.text(minimum), Self.text(maximum), figure.unit,
                    ratio ?? "-"))
        }
    }

    /// Prints each goal, and whether it was reached: the median of the runs, in which figure and comparison alternated.
    func showGoals() {
        for goal in Goal.all {
            guard let all = values[goal.figure] else { continue }
            var reached = all.median
            if let comparison = goal.comparison {
                guard let other = values[comparison] else { continue }
                reached = zip(all, other).map { $0 / $1 }.median
            }
            let isMet = goal.bound.isMet(by: reached)
            let unit = goal.comparison.map { " x \($0.name)" } ?? goal.figure.unit
            print(
                Self.left(isMet ? "met" : "MISSED", 8) + Self.left(goal.figure.name, 51)
                    + Self.right(Self.text(reached)) + "  " + Self.left(goal.bound.text, 10) + unit)
        }
    }

    private static func line(
        _ name: String, _ median: String, _ minimum: String, _ maximum: String, _ unit: String, _ ratio: String
    ) -> String { left(name, 51) + right(median) + right(minimum) + right(maximum) + "  " + left(unit, 6) + ratio }

    private static func left(_ text: String, _ width: Int) -> String {
        text + String(repeating: " ", count: max(0, width - text.count))
    }

    private static func right(_ text: String) -> String {
        String(repeating: " ", count: max(0, 10 - text.count)) + text
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
