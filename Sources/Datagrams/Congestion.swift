/// How much may be in flight: CUBIC (RFC 9438) in the frame of RFC 9002, section 7, with HyStart++ (RFC 9406).
///
///     slow start ──round trips grow──▶ conservative slow start ──5 rounds──▶ avoidance
///         │  ▲                              │ (shrink: back)                    │
///         │  └──────────────────────────────┘                                   │
///         └──────────── loss ──▶ recovery (until a packet sent later is acknowledged) ──▶ avoidance
///     any ──persistent congestion──▶ slow start at two datagrams
struct Congestion: Hashable, Sendable {
    // RFC 9438, sections 4.1 and 4.6.
    private static let growth = 0.4
    private static let decrease = 0.7
    private static let reno = 3 * (1 - decrease) / (1 + decrease)

    private let largestWindow: Double
    /// Bytes of a full datagram.
    private(set) var datagram: Double
    /// Bytes that may be in flight.
    private(set) var window: Double
    private(set) var threshold = Double.infinity
    /// Losses of packets sent before are the same event.
    private var recoveryStart: Microseconds?

    // CUBIC; windows in datagrams.
    private var largestBefore = 0.0
    private var priorWindow = 0.0
    private var renoWindow = 0.0
    private var inflection = 0.0
    private var epochStart: Microseconds?
    private var lastGrowth: Microseconds = 0

    private var slowStart = SlowStart()

    init(datagramByteCount: Int, largestWindow: Int) {
        datagram = Double(datagramByteCount)
        self.largestWindow = Double(largestWindow)
        window = Congestion.initialWindow(datagramByteCount)
    }

    /// RFC 9002, section 7.2.
    static func initialWindow(_ datagramByteCount: Int) -> Double {
        Double(min(10 * datagramByteCount, max(14_720, 2 * datagramByteCount)))
    }

    private var smallestWindow: Double { 2 * datagram }
    var isInSlowStart: Bool { window < threshold }

    /// Larger or smaller datagrams get through from now on. The window stays as many bytes, but holds two of them.
    mutating func setDatagram(_ byteCount: Int) {
        datagram = Double(byteCount)
        if !isInSlowStart || recoveryStart != nil {
            window = max(window, smallestWindow)
        } else {
            window = max(window, min(Congestion.initialWindow(byteCount), largestWindow))
        }
    }

    /// A packet of ours has arrived.
    /// - Parameters:
    ///   - number: the packet's, and `nextNumber` the next we send: they count the rounds of slow start.
    ///   - isLimited: we have had too little to say for the window to be full (section 7.8).
    mutating func acknowledge(
        _ byteCount: Int,
        sentAt: Microseconds,
        number: UInt64,
        nextNumber: UInt64,
        isLimited: Bool,
        roundTrip: RoundTripTime,
        at now: Microseconds
    ) {
        if let recoveryStart, sentAt <= recoveryStart { return }
        if isInSlowStart {
            slowStart.acknowledge(number, nextNumber: nextNumber, roundTrip: roundTrip.latest)
            guard !isLimited else { return }
            window = min(largestWindow, window + Double(byteCount) / slowStart.divisor)
            if slowStart.isOver { threshold = window }
            return
        }
        guard !isLimited else {
            // Time in which nothing was tried does not count as growth (RFC 9438, section 5.8).
            if let start = epochStart { epochStart = start + max(0, now - max(lastGrowth, start)) }
            lastGrowth = now
            return
        }
        grow(Double(byteCount) / datagram, roundTrip.smoothed, now)
    }

    private mutating func grow(_ acknowledged: Double, _ roundTrip: Microseconds, _ now: Microseconds) {
        let current = window / datagram
        if epochStart == nil { startEpoch(current, now) }
        lastGrowth = now
        let start = epochStart ?? now
        let elapsed = seconds(now - start)
        // W_est as Reno would grow; with Reno's own slope once it has made up for its gentler decrease (section 4.3).
        let slope = renoWindow < priorWindow ? Self.reno : 1
        renoWindow += slope * acknowledged / current
        let next: Double
        if Self.cubic(elapsed, inflection, largestBefore) < renoWindow {
            next = max(current, renoWindow)
        } else {
            let target = Self.cubic(elapsed + seconds(roundTrip), inflection, largestBefore)
            next = current + (min(max(target, current), 1.5 * current) - current) / current * acknowledged
        }
        window = min(largestWindow, next * datagram)
    }

    private mutating func startEpoch(_ current: Double, _ now: Microseconds) {
        epochStart = now
        renoWindow = current
        if priorWindow == 0 { priorWindow = current }
        if largestBefore <= current {
            // From slow start without a loss: there is nothing to come back to (section 4.10).
            largestBefore = current
            inflection = 0
        } else {
            inflection = Self.inflection(largestBefore, current)
        }
    }

    /// W_cubic (RFC 9438, figure 1), in datagrams and seconds.
    static func cubic(_ elapsed: Double, _ inflection: Double, _ largest: Double) -> Double {
        let distance = elapsed - inflection
        return growth * distance * distance * distance + largest
    }

    /// K (RFC 9438, figure 2), in seconds.
    static func inflection(_ largest: Double, _ current: Double) -> Double {
        cubeRoot((largest - current) / growth)
    }

    /// Newton's iteration: the standard library has no cube root.
    static func cubeRoot(_ value: Double) -> Double {
        guard value > 0 else { return 0 }
        var root = value > 1 ? value / 3 : 1
        for _ in 0..<128 {
            let next = (2 * root + value / (root * root)) / 3
            if abs(next - root) <= 1e-12 * next { return next }
            root = next
        }
        return root
    }

    private func seconds(_ time: Microseconds) -> Double { Double(time) / 1_000_000 }

    /// A packet is lost that was sent at `sentAt`.
    mutating func lose(sentAt: Microseconds, at now: Microseconds) {
        if let recoveryStart, sentAt <= recoveryStart { return }
        recoveryStart = now
        let current = window / datagram
        priorWindow = current
        // Fast convergence: who has less than before makes room for others (section 4.7).
        largestBefore = current < largestBefore ? current * (1 + Self.decrease) / 2 : current
        window = max(smallestWindow, window * Self.decrease)
        threshold = window
        epochStart = nil
    }

    /// Nothing has got through for so long that the path is as good as new (RFC 9002, section 7.6).
    mutating func collapse() {
        recoveryStart = nil
        epochStart = nil
        largestBefore = 0
        priorWindow = 0
        window = smallestWindow
        slowStart = SlowStart()
    }
}

/// When slow start is over, seen from the round trips before anything is lost (RFC 9406, section 4.2).
private struct SlowStart: Hashable, Sendable {
    private static let samplesPerRound = 8
    private static let conservativeRounds = 5
    private static let conservativeDivisor = 4.0

    private enum Phase: Hashable, Sendable {
        case fast
        /// Entered when round trips have grown; `baseline` is what they were.
        case conservative(baseline: Microseconds, rounds: Int)
        case over
    }
    private var phase = Phase.fast
    private var roundEnd: UInt64?
    private var lastMinimum = Microseconds.max
    private var currentMinimum = Microseconds.max
    private var samples = 0

    var divisor: Double {
        switch phase {
        case .fast, .over: 1
        case .conservative: Self.conservativeDivisor
        }
    }
    var isOver: Bool { phase == .over }

    mutating func acknowledge(_ number: UInt64, nextNumber: UInt64, roundTrip: Microseconds) {
        let end = roundEnd ?? nextNumber
        if roundEnd == nil { roundEnd = nextNumber }
        if number >= end {
            roundEnd = nextNumber
            lastMinimum = currentMinimum
            currentMinimum = .max
            samples = 0
            if case .conservative(let baseline, let rounds) = phase {
                phase =
                    rounds + 1 >= Self.conservativeRounds
                    ? .over : .conservative(baseline: baseline, rounds: rounds + 1)
            }
        }
        currentMinimum = min(currentMinimum, roundTrip)
        samples += 1
        guard samples >= Self.samplesPerRound else { return }
        switch phase {
        case .fast:
            guard lastMinimum != .max else { return }
            let tolerance = max(4_000, min(lastMinimum / 8, 16_000))
            if currentMinimum >= lastMinimum + tolerance { phase = .conservative(baseline: currentMinimum, rounds: 0) }
        case .conservative(let baseline, _):
            if currentMinimum < baseline { phase = .fast }
        case .over: break
        }
    }
}
