import Crypto

/// How fast a path is sent to, and how much of it may be in flight: BBR version 3 (draft-ietf-ccwg-bbr-06), from the rate
/// at which the path delivers, its shortest round trip, and what it loses.
///
///     startup ──no more to be had, or too much lost──▶ drain ──queue empty, or 3 rounds──▶ down
///        ┌──▶ down ──queue empty, or 3 rounds──▶ cruise ──2…3 s, or 63 rounds──▶ refill ──a round──▶ up ──┐
///        └───────────── no more to be had, or too much lost, or as far as is known to be safe ─────────────┘
///     any ──no short round trip for 5 s──▶ probeRTT ──200 ms and a round──▶ cruise; startup if it never was full
///     any ──persistent congestion──▶ startup at two datagrams
///
/// | state | pacing | window | bounds |
/// |---|---|---|---|
/// | startup | 2.77 | 2 | |
/// | drain | 0.5 | 2 | short term |
/// | down | 0.9 | 2 | short term, long term |
/// | cruise | 1 | 2 | short term, 0.85 of long term |
/// | refill | 1 | 2 | long term |
/// | up | 1.25 | 2.25 | long term, which it raises |
/// | probeRTT | 1 | 0.5 | short term, 0.85 of long term |
///
/// What the path is like is in the parts: ``DeliveryRate``, ``MinimumRoundTrip``, ``AckAggregation``, ``FullPipe``,
/// ``LossNoise``. Rates are in bytes per microsecond, volumes in bytes.
struct Congestion: Hashable, Sendable {
    enum State: Hashable, CaseIterable, Sendable { case startup, drain, down, cruise, refill, up, probeRTT }

    /// Of which part of a probe for more the acknowledgements tell (section 2.14: BBR.ack_phase).
    enum Feedback: Hashable, Sendable { case none, refilling, starting, probing, stopping }

    /// What may be lost beyond noise, in probes and between them. The draft has 2 % (section 2.8: BBR.LossThresh) and
    /// nothing at all; but the BBR that TCP commonly has is the first, which answers no loss, and beside it the draft's
    /// values have two fifths of its rate.
    static let lossThreshold = 0.03
    /// Section 2.8: BBR.Beta, BBR.Headroom.
    static let beta = 0.7
    static let headroom = 0.15
    /// BBR.MinPipeCwnd, in datagrams.
    static let leastDatagrams = 4.0
    /// The share of the rate that is paced, so that queues shrink rather than grow (BBR.PacingMarginPercent).
    static let margin = 0.99
    /// What the shell's timer can tell apart: so much of the rate leaves together (section 5.6.3).
    static let tick: Microseconds = 1_000

    let largestWindow: Double
    let seed: UInt64
    /// Bytes of a full datagram.
    var datagram: Double
    /// Bytes that may be in flight.
    var window: Double
    /// Bytes per microsecond.
    var pacingRate = 0.0
    var hasRoundTrip = false

    var state = State.startup
    var delivery = DeliveryRate()
    var roundTrip: MinimumRoundTrip
    var aggregation: AckAggregation
    var fullPipe = FullPipe()
    var noise = LossNoise()
    /// The path was filled once (BBR.full_bw_reached).
    var wasFull = false

    // Rounds (section 5.5.1).
    var round: UInt64 = 0
    var roundEnd = 0
    var roundStarts = false
    var quiet = QuietRound()

    // The greatest rate of this cycle and the one before (section 5.5.2).
    var rates = WindowedMaximum()
    var cycle: UInt64 = 0

    // Latest round and short-term bounds (section 5.5.10.3).
    var losses = LossRound()
    var latestRate = 0.0
    var latestVolume = 0
    var shortTermRate = Double.infinity
    var shortTermVolume = Double.infinity

    // Long-term bound and probes for more (section 5.3.3).
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
    /// The round in which drain or down began.
    var slowStart: UInt64 = 0

    // ProbeRTT (section 5.3.4) and restarts after idle times (section 5.4).
    var probeRTTEnd: Microseconds?
    var probeRTTRoundDone = false
    var windowBefore = 0.0
    var isRestarting = false

    /// The window was full in this round, and in the one before (C.is_cwnd_limited).
    var isFullInRound = false
    var wasFullInRound = false

    /// - Parameters:
    ///   - largestWindow: bytes.
    ///   - seed: random, so that paths do not probe for more in step.
    ///   - estimate: of the round trip, measured or assumed.
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

    /// Larger or smaller datagrams get through from now on. The window stays as many bytes, but holds a first flight of
    /// them as long as the path is not known.
    mutating func setDatagram(_ byteCount: Int) {
        datagram = Double(byteCount)
        let least = wasFull ? Self.leastDatagrams * datagram : Self.initialWindow(byteCount)
        window = max(window, min(least, largestWindow))
    }

    // MARK: Events

    /// A packet leaves that counts.
    /// - Parameter inFlight: before it.
    mutating func sent(_ byteCount: Int, inFlight: Int, at now: Microseconds) -> PacketDelivery {
        if inFlight == 0, delivery.isApplicationLimited { restart(at: now) }
        return delivery.sent(byteCount, inFlight: inFlight, at: now)
    }

    /// There was more to send than the window holds.
    mutating func windowIsFull() { isFullInRound = true }

    /// The owner has had too little to say.
    mutating func ranDry(inFlight: Int) { delivery.markApplicationLimited(inFlight: inFlight) }

    /// Packets have arrived, and all that is lost by that is told: ``DeliveryRate/acknowledged(_:_:number:sentAt:at:)``
    /// and ``lost(_:_:number:)`` come before (section 5.2.3).
    /// - Parameters:
    ///   - inFlight: after it.
    ///   - latest: the round trip of the newest packet, if this acknowledgement shows it.
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

    /// Nothing has got through for so long that the path is as good as new (RFC 9002, section 7.6).
    mutating func collapse(_ estimate: RoundTripTime, at now: Microseconds) {
        let old = self
        self = Congestion(
            datagramByteCount: Int(old.datagram), largestWindow: Int(old.largestWindow), seed: old.seed &+ 1, estimate,
            at: now)
        // What is in flight still refers to these counts.
        delivery = old.delivery
        roundEnd = delivery.delivered
        losses.start(delivered: delivery.delivered)
        quiet = QuietRound(delivered: delivery.delivered, lost: delivery.lost)
        window = 2 * datagram
        hasRoundTrip = false
        startPacing(estimate, at: now)
    }
}
