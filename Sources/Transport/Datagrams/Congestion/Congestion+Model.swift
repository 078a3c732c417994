/// The model of the path, and how acknowledgements and losses update it (draft-ietf-ccwg-bbr-06, section 5.5).
extension Congestion {
    /// The maximum over this cycle and the previous one (BBR.max_bw).
    var greatestRate: Double { rates.value }
    /// BBR.bw
    var rate: Double { min(greatestRate, shortTermRate) }

    /// The bandwidth-delay product (BBR.bdp).
    func product(_ rate: Double) -> Double? { roundTrip.value.map { rate * Double($0) } }

    var isProbing: Bool { state == .startup || state == .refill || state == .up }
    var isCycling: Bool {
        switch state {
        case .down, .cruise, .refill, .up: true
        case .startup, .drain, .probeRTT: false
        }
    }

    /// Section 5.5.10.3: UpdateLatestDeliverySignals.
    mutating func updateLatest(_ sample: RateSample) {
        latestRate = max(latestRate, sample.rate)
        latestVolume = max(latestVolume, sample.delivered)
        losses.ends = sample.priorDelivered >= losses.end
    }

    mutating func startRound() { roundEnd = delivery.delivered }

    /// Section 5.5.1: UpdateRound. The sampling of RTTs and losses ends with the round, too.
    mutating func updateRound(_ sample: RateSample) {
        quiet.note(sample.roundTrip)
        roundStarts = sample.priorDelivered >= roundEnd
        guard roundStarts else { return }
        startRound()
        round += 1
        roundsSinceUp += 1
        (wasFullInRound, isFullInRound) = (isFullInRound, false)
        learnNoise()
        quiet = QuietRound(delivered: delivery.delivered, lost: delivery.lost)
    }

    /// Losses are noise in a round without a queue in which we do not probe for more.
    private mutating func learnNoise() {
        let tries: Bool
        switch state {
        case .startup: tries = fullPipe.count > 0
        case .down, .cruise: tries = feedback != .none
        case .drain, .refill, .up, .probeRTT: tries = true
        }
        guard !tries, let least = roundTrip.value, quiet.isQuiet(least) else { return }
        let lost = Double(delivery.lost - quiet.lostBefore)
        noise.learn(lost: lost, sent: lost + Double(delivery.delivered - quiet.deliveredBefore))
    }

    /// Section 5.5.5: UpdateMaxBw. An application-limited sample counts only if it raises the maximum.
    mutating func updateRate(_ sample: RateSample) {
        guard sample.rate > 0, sample.rate >= greatestRate || !sample.isApplicationLimited else { return }
        rates.insert(sample.rate, at: cycle, length: 2)
    }

    /// Section 5.5.10.2: HandleLostPacket.
    mutating func lost(_ byteCount: Int, _ packet: PacketDelivery, number: UInt64, at now: Microseconds) {
        delivery.lost(byteCount)
        if losses.lost == 0 { losses.end = delivery.delivered }
        losses.note(byteCount, number)
        guard isProbeSample else { return }
        let inFlight = Double(packet.inFlight)
        let lost = Double(delivery.lost - packet.lost)
        let tolerated = noise.tolerated(in: inFlight, datagram: datagram, threshold: Self.lossThreshold)
        guard lost > tolerated, inFlight > 0 else { return }
        // InflightAtLoss: the byte of this packet at which the loss exceeded the tolerance.
        let share = min(tolerated / inFlight, 0.5)
        let (before, lostBefore) = (inFlight - Double(byteCount), lost - Double(byteCount))
        let volume = before + max(0, (share * before - lostBefore) / (1 - share))
        wentTooHigh(volume, isApplicationLimited: packet.isApplicationLimited, at: now)
    }

    /// Section 5.5.10.2: HandleInflightTooHigh.
    private mutating func wentTooHigh(_ volume: Double, isApplicationLimited: Bool, at now: Microseconds) {
        wentTooHigh = true
        // Once per probe.
        isProbeSample = false
        if !isApplicationLimited { longTermVolume = max(volume, target * Self.beta) }
        if state == .up { startDown(at: now) }
    }

    /// Handles losses at the end of a loss round. Loss beyond noise lowers the bounds while not probing (section
    /// 5.5.10.3: AdaptLowerBoundsFromCongestion), and ends startup (section 5.3.1.3).
    mutating func respondToLosses() {
        guard losses.lost > 0 else { return }
        let lost = Double(losses.lost)
        let sent = lost + Double(delivery.delivered - losses.deliveredBefore)
        let most = noise.tolerated(in: sent, datagram: datagram, threshold: Self.lossThreshold)
        if state == .startup, losses.isSpread, lost > most, !wasFull {
            wasFull = true
            longTermVolume = max(product(rate) ?? 0, Double(latestVolume))
        }
        guard !isProbing, lost > most else { return }
        if shortTermRate == .infinity { shortTermRate = greatestRate }
        if shortTermVolume == .infinity { shortTermVolume = window }
        shortTermRate = max(latestRate, Self.beta * shortTermRate)
        shortTermVolume = max(Double(latestVolume), Self.beta * shortTermVolume)
    }

    mutating func forgetShortTerm() {
        shortTermRate = .infinity
        shortTermVolume = .infinity
    }
}

/// The losses of a round: from the first loss until a packet sent after it is acknowledged (section 5.5.10.3).
struct LossRound: Hashable, Sendable {
    /// BBRStartupFullLossCnt
    private static let ranges = 6

    /// `delivered` at its end (BBR.loss_round_delivered).
    var end = 0
    /// The acknowledgement being processed ends it.
    var ends = false
    private(set) var lost = 0
    private(set) var deliveredBefore = 0
    private var rangeCount = 0
    private var last: UInt64?

    /// Losses in at least six ranges are not one burst.
    var isSpread: Bool { rangeCount >= Self.ranges }

    mutating func note(_ byteCount: Int, _ number: UInt64) {
        lost += byteCount
        if let last, number == last + 1 {} else { rangeCount += 1 }
        last = number
    }

    mutating func start(delivered: Int) {
        self = LossRound()
        end = delivered
        deliveredBefore = delivered
    }
}

/// The RTTs of a round, which show whether there was a queue.
struct QuietRound: Hashable, Sendable {
    /// A queue shorter than 1/8 of the minimum RTT, or than the timer's granularity, does not count.
    private static let share: Microseconds = 8

    var deliveredBefore = 0
    var lostBefore = 0
    private var sum: Microseconds = 0
    private var count: Microseconds = 0

    init(delivered: Int = 0, lost: Int = 0) {
        deliveredBefore = delivered
        lostBefore = lost
    }

    mutating func note(_ roundTrip: Microseconds?) {
        guard let roundTrip else { return }
        sum += roundTrip
        count += 1
    }

    func isQuiet(_ least: Microseconds) -> Bool {
        count > 0 && sum / count <= least + max(least / Self.share, Congestion.tick)
    }
}
