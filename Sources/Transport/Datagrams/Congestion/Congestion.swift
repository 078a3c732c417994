import Cryptography

/// Congestion control of one path: BBR version 3 (draft-ietf-ccwg-bbr-06). The inputs are the path's delivery rate, its
/// minimum RTT and its losses.
/// DatagramLinks.md, "This program's measures", has the states.
///
/// Rates are in bytes per microsecond, volumes in bytes.
struct Congestion: Hashable, Sendable {
    enum State: Hashable, CaseIterable, Sendable { case startup, drain, down, cruise, refill, up, probeRTT }

    /// The phase of a bandwidth probe that acknowledgements report on (section 2.14: BBR.ack_phase).
    enum Feedback: Hashable, Sendable { case none, refilling, starting, probing, stopping }

    /// Tolerated loss beyond noise, in probes and between them. The draft has 2 % in probes (section 2.8:
    /// BBR.LossThresh) and none between them. But TCP commonly runs BBR version 1, which ignores loss. Beside it the
    /// draft's values reach two fifths of its rate.
    static let lossThreshold = 0.03
    /// Section 2.8: BBR.Beta, BBR.Headroom.
    static let beta = 0.7
    static let headroom = 0.15
    /// BBR.MinPipeCwnd, in datagrams.
    static let leastDatagrams = 4.0
    /// Pace slightly below the rate, so that queues shrink (BBR.PacingMarginPercent).
    static let margin = 0.99
    /// Granularity of the shell's timer: this much of the rate leaves in one burst (section 5.6.3).
    static let tick: Microseconds = 1_000

    let largestWindow: Double
    let seed: UInt64
    /// Bytes of a full datagram.
    var datagram: Double
    /// Bytes allowed in flight.
    var window: Double
    var pacingRate = 0.0
    var hasRoundTrip = false

    var state = State.startup
    var delivery = DeliveryRate()
    var roundTrip: MinimumRoundTrip
    var aggregation: AckAggregation
    var fullPipe = FullPipe()
    var noise = LossNoise()
    /// The pipe was full once (BBR.full_bw_reached).
    var wasFull = false

    // Rounds (section 5.5.1).
    var round: UInt64 = 0
    var roundEnd = 0
    var roundStarts = false
    var quiet = QuietRound()

    // Maximum rate of this cycle and the previous one (section 5.5.2).
    var rates = WindowedMaximum()
    var cycle: UInt64 = 0

    // Latest round and short-term bounds (section 5.5.10.3).
    var losses = LossRound()
    var latestRate = 0.0
    var latestVolume = 0
    var shortTermRate = Double.infinity
    var shortTermVolume = Double.infinity

    // Long-term bound and bandwidth probes (section 5.3.3).
    var longTermVolume = Double.infinity
    var feedback = Feedback.none
    var isProbeSample = false
    var wentTooHigh = false
    var wasPrecautionary = false
    var raiseEvery = Double.infinity
    var raiseRounds = 0
    var acknowledgedSinceRaise = 0.0
    var roundsSinceUp: UInt64 = 0
    var cycleStart: Microseconds
    var probeWait: Microseconds = 0
    var chance: SplitMix64
    var slowStart: UInt64 = 0

    // ProbeRTT (section 5.3.4) and restarts after idle times (section 5.4).
    var probeRTTEnd: Microseconds?
    var probeRTTRoundDone = false
    var windowBefore = 0.0
    var isRestarting = false

    /// The window was full in this round, and in the previous one (C.is_cwnd_limited).
    var isFullInRound = false
    var wasFullInRound = false

    /// - Parameters:
    ///   - largestWindow: bytes.
    ///   - seed: random, so that paths do not probe in step.
    ///   - estimate: of the RTT, measured or assumed.
    init(datagramByteCount: Int, largestWindow: Int, seed: UInt64, _ estimate: RoundTripTime, at now: Microseconds) {
        datagram = Double(datagramByteCount)
        self.largestWindow = Double(largestWindow)
        self.seed = seed
        chance = SplitMix64(state: seed)
        window = Self.initialWindow(datagramByteCount)
        roundTrip = MinimumRoundTrip(at: now)
        aggregation = AckAggregation(at: now)
        cycleStart = now
        startPacing(estimate, at: now)
    }

    /// RFC 9002, section 7.2.
    static func initialWindow(_ datagramByteCount: Int) -> Double {
        Double(min(10 * datagramByteCount, max(14_720, 2 * datagramByteCount)))
    }

    /// Changes the datagram size. The window keeps its bytes, but holds an initial flight until the pipe was full.
    mutating func setDatagram(_ byteCount: Int) {
        datagram = Double(byteCount)
        let least = wasFull ? Self.leastDatagrams * datagram : Self.initialWindow(byteCount)
        window = max(window, min(least, largestWindow))
    }

    /// A packet that counts toward the window was sent, with `inFlight` bytes before it.
    mutating func sent(_ byteCount: Int, inFlight: Int, at now: Microseconds) -> PacketDelivery {
        if inFlight == 0, delivery.isApplicationLimited { restart(at: now) }
        return delivery.sent(byteCount, inFlight: inFlight, at: now)
    }

    mutating func windowIsFull() { isFullInRound = true }

    mutating func ranDry(inFlight: Int) { delivery.markApplicationLimited(inFlight: inFlight) }

    /// Processes one acknowledgement, after ``DeliveryRate/acknowledged(_:_:number:sentAt:at:)`` and
    /// ``lost(_:_:number:at:)`` for its packets (section 5.2.3).
    /// - Parameters:
    ///   - inFlight: after it.
    ///   - latest: the RTT of the newest packet, if this acknowledgement shows it.
    mutating func update(inFlight: Int, latest: Microseconds?, _ estimate: RoundTripTime, at now: Microseconds) {
        startPacing(estimate, at: now)
        guard var sample = delivery.sample(leastInterval: estimate.minimum) else { return }
        sample.roundTrip = latest
        let inFlight = Double(inFlight)

        updateLatest(sample)
        updateRound(sample)
        updateRate(sample)
        if losses.ends { respondToLosses() }
        aggregation.update(
            sample.newlyAcknowledged, rate: rate, window: window, round: round, isKnown: wasFull, at: now)
        fullPipe.update(sample, endsRound: roundStarts)
        if fullPipe.isFull { wasFull = true }
        leaveStartupOrDrain(inFlight, at: now)
        if wasFull { cycle(sample, inFlight, at: now) }
        roundTrip.update(sample.roundTrip, at: now)
        probeRoundTrip(sample, inFlight, at: now)
        if losses.ends {
            latestRate = sample.rate
            latestVolume = sample.delivered
            losses.start(delivered: delivery.delivered)
        }
        setPacingRate(pacingGain)
        setWindow(sample)
    }

    /// Restarts after persistent congestion (RFC 9002, section 7.6).
    mutating func collapse(_ estimate: RoundTripTime, at now: Microseconds) {
        let old = self
        self = Congestion(
            datagramByteCount: Int(old.datagram), largestWindow: Int(old.largestWindow), seed: old.seed &+ 1, estimate,
            at: now)
        // Packets in flight refer to these counts.
        delivery = old.delivery
        roundEnd = delivery.delivered
        losses.start(delivered: delivery.delivered)
        quiet = QuietRound(delivered: delivery.delivered, lost: delivery.lost)
        window = 2 * datagram
        hasRoundTrip = false
        startPacing(estimate, at: now)
    }
}

/// Pacing rate and window from the model (draft-ietf-ccwg-bbr-06, section 5.6).
extension Congestion {
    var pacingGain: Double {
        switch state {
        case .startup: 2.77
        case .drain: 0.5
        case .down: 0.9
        case .cruise, .refill, .probeRTT: 1
        case .up: 1.25
        }
    }

    var windowGain: Double {
        switch state {
        case .startup, .drain, .down, .cruise, .refill: 2
        case .up: 2.25
        case .probeRTT: 0.5
        }
    }

    /// Section 5.6.2: InitPacingRate. Before the first RTT sample, uses the assumed RTT.
    mutating func startPacing(_ estimate: RoundTripTime, at now: Microseconds) {
        guard !hasRoundTrip else { return }
        hasRoundTrip = estimate.hasSample
        pacingRate = pacingGain * window / Double(max(1, estimate.smoothed))
        if hasRoundTrip { roundTrip = MinimumRoundTrip(estimate.minimum, at: now) }
    }

    /// Section 5.6.2: SetPacingRateWithGain. Never falls before the pipe was full: samples may be application-limited.
    mutating func setPacingRate(_ gain: Double) {
        let next = gain * rate * Self.margin
        if next > 0, wasFull || next > pacingRate { pacingRate = next }
    }

    /// Bytes sent in one burst: a millisecond of the rate (section 5.6.3, without its bound of 64 KiB).
    var quantum: Double { quantum(pacingRate) }
    private func quantum(_ rate: Double) -> Double { max(rate * Double(Self.tick), 2 * datagram) }

    /// Target of bytes in flight (TargetInflight).
    var target: Double { min(product(rate) ?? window, window) }

    /// Bandwidth-delay product times gain, plus bursts queued at both ends (sections 5.6.4.2 and 5.5.8: Inflight).
    func volume(_ gain: Double, of rate: Double? = nil, extra: Double = 0) -> Double {
        let product = product(rate ?? self.rate).map { gain * $0 } ?? Self.initialWindow(Int(datagram))
        let least = max(3 * quantum(rate ?? self.rate), Self.leastDatagrams * datagram)
        return max(product + extra, least) + (state == .up ? 2 * datagram : 0)
    }

    /// The long-term bound less a share for other flows (InflightWithHeadroom).
    var withHeadroom: Double {
        guard longTermVolume != .infinity else { return .infinity }
        return max(longTermVolume - max(datagram, Self.headroom * longTermVolume), Self.leastDatagrams * datagram)
    }

    var probeRTTWindow: Double { max(windowGain * (product(rate) ?? 0), Self.leastDatagrams * datagram) }

    /// Section 5.6.4.6: SetCwnd.
    mutating func setWindow(_ sample: RateSample) {
        let most = volume(windowGain, extra: aggregation.extra)
        let grown = window + Double(sample.newlyAcknowledged)
        if wasFull {
            window = min(grown, most)
        } else if window < most || Double(delivery.delivered) < Self.initialWindow(Int(datagram)) {
            window = grown
        }
        let least = Self.leastDatagrams * datagram
        window = max(window, least)
        // Section 5.6.4.7: BoundCwndForModel.
        let bound: Double
        switch state {
        case .startup: bound = .infinity
        case .drain, .down, .refill, .up: bound = longTermVolume
        case .cruise: bound = withHeadroom
        case .probeRTT: bound = min(withHeadroom, probeRTTWindow)
        }
        window = min(window, max(min(bound, shortTermVolume), least), largestWindow)
    }
}
