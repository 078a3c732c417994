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

    // MARK: Rate

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

    // MARK: Volume

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
