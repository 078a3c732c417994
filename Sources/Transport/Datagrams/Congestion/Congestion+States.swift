/// State changes (draft-ietf-ccwg-bbr-06, section 5.3).
extension Congestion {
    /// After this many rounds a remaining queue is another flow's. (For down, the draft waits for the next probe.)
    private static let slowRounds: UInt64 = 3
    /// Time between bandwidth probes (section 5.3.3.8): 2 s plus up to 1 s at random. A probe starts earlier
    /// after as many rounds as ``target`` has datagrams, at most 63, so that Reno and CUBIC keep their share.
    private static let probeWait: Microseconds = 2_000_000
    private static let probeChance: Microseconds = 1_000_000
    private static let probeRounds = 63.0
    /// BBR.ProbeRTTDuration
    private static let probeRTTDuration: Microseconds = 200_000

    mutating func leaveStartupOrDrain(_ inFlight: Double, at now: Microseconds) {
        if state == .startup, wasFull {
            state = .drain
            slowStart = round
        }
        if state == .drain, inFlight <= volume(1) || round > slowStart + Self.slowRounds { startDown(at: now) }
    }

    mutating func startDown(at now: Microseconds) {
        state = .down
        slowStart = round
        // ResetCongestionSignals
        losses.start(delivered: delivery.delivered)
        latestRate = 0
        latestVolume = 0
        raiseEvery = .infinity
        roundsSinceUp = UInt64.random(in: 0...1, using: &chance)
        probeWait = Self.probeWait + Microseconds.random(in: 0...Self.probeChance, using: &chance)
        cycleStart = now
        feedback = .stopping
        startRound()
    }

    private mutating func startRefill() {
        state = .refill
        forgetShortTerm()
        raiseRounds = 0
        acknowledgedSinceRaise = 0
        wasPrecautionary = false
        feedback = .refilling
        startRound()
    }

    private mutating func startUp(_ sample: RateSample) {
        state = .up
        isProbeSample = true
        feedback = .starting
        startRound()
        fullPipe.reset(sample.rate)
        raiseSlope()
    }

    /// Section 5.3.3.9: UpdateProbeBWCyclePhase.
    mutating func cycle(_ sample: RateSample, _ inFlight: Double, at now: Microseconds) {
        if adaptLongTerm(sample) { return }
        switch state {
        case .down:
            if isTimeToProbe(at: now) {
                startRefill()
            } else if inFlight <= min(withHeadroom, volume(1, of: greatestRate)) || round > slowStart + Self.slowRounds
            {
                state = .cruise
            }
        case .cruise: if isTimeToProbe(at: now) { startRefill() }
        case .refill: if roundStarts { startUp(sample) }
        case .up:
            if isTimeToGoDown(sample, inFlight) {
                wentTooHigh = false
                startDown(at: now)
            }
        case .startup, .drain, .probeRTT: break
        }
    }

    private func isTimeToProbe(at now: Microseconds) -> Bool {
        now > cycleStart + probeWait || Double(roundsSinceUp) >= min(target / datagram, Self.probeRounds)
    }

    private mutating func isTimeToGoDown(_ sample: RateSample, _ inFlight: Double) -> Bool {
        if wentTooHigh, inFlight >= longTermVolume {
            wasPrecautionary = true
            return true
        }
        if isLimitedByWindow, window >= longTermVolume {
            // The bound limits the rate, not the path.
            fullPipe.reset(sample.rate)
            return false
        }
        return fullPipe.isFull
    }

    private var isLimitedByWindow: Bool { isFullInRound || wasFullInRound }

    /// Section 5.3.3.9: AdaptLongTermModel. Returns whether the state changed.
    private mutating func adaptLongTerm(_ sample: RateSample) -> Bool {
        if feedback == .starting, roundStarts { feedback = .probing }
        if feedback == .stopping, roundStarts {
            isProbeSample = false
            feedback = .none
            if isCycling, !sample.isApplicationLimited { cycle += 1 }
            if isCycling, wasPrecautionary, !wentTooHigh {
                startRefill()
                return true
            }
        }
        let inFlight = Double(sample.inFlight)
        let most = noise.tolerated(in: inFlight, datagram: datagram, threshold: Self.lossThreshold)
        guard longTermVolume != .infinity, Double(sample.lost) <= most else { return false }
        longTermVolume = max(longTermVolume, inFlight)
        if state == .up { raiseLongTerm(sample) }
        return false
    }

    /// Section 5.3.3.9: ProbeInflightLongtermUpward, by 1, 2, 4 … datagrams a round.
    private mutating func raiseLongTerm(_ sample: RateSample) {
        guard isLimitedByWindow, window >= longTermVolume else { return }
        acknowledgedSinceRaise += Double(sample.newlyAcknowledged)
        if acknowledgedSinceRaise >= raiseEvery {
            let steps = (acknowledgedSinceRaise / raiseEvery).rounded(.down)
            acknowledgedSinceRaise -= steps * raiseEvery
            longTermVolume += steps * datagram
        }
        if roundStarts { raiseSlope() }
    }

    private mutating func raiseSlope() {
        raiseEvery = max(window / Double(1 << raiseRounds), datagram)
        raiseRounds = min(raiseRounds + 1, 30)
    }

    /// Section 5.3.4.3: CheckProbeRTT.
    mutating func probeRoundTrip(_ sample: RateSample, _ inFlight: Double, at now: Microseconds) {
        if state != .probeRTT, roundTrip.isStale, !isRestarting {
            state = .probeRTT
            windowBefore = window
            probeRTTEnd = nil
            feedback = .stopping
            startRound()
        }
        if state == .probeRTT {
            // The reduced window causes the low rates.
            delivery.markApplicationLimited(inFlight: Int(inFlight))
            if probeRTTEnd == nil, inFlight <= probeRTTWindow {
                probeRTTEnd = now + Self.probeRTTDuration
                probeRTTRoundDone = false
                startRound()
            } else if probeRTTEnd != nil {
                if roundStarts { probeRTTRoundDone = true }
                if probeRTTRoundDone { endProbeRTT(at: now) }
            }
        }
        if sample.delivered > 0 { isRestarting = false }
    }

    private mutating func endProbeRTT(at now: Microseconds) {
        guard let probeRTTEnd, now > probeRTTEnd else { return }
        roundTrip.probed(at: now)
        window = max(window, windowBefore)
        forgetShortTerm()
        if wasFull {
            startDown(at: now)
            state = .cruise
        } else {
            state = .startup
        }
    }

    /// Section 5.4.1: HandleRestartFromIdle.
    mutating func restart(at now: Microseconds) {
        isRestarting = true
        aggregation.restart(at: now)
        switch state {
        case .down, .cruise, .refill, .up: setPacingRate(1)
        case .probeRTT: endProbeRTT(at: now)
        case .startup, .drain: break
        }
    }
}
