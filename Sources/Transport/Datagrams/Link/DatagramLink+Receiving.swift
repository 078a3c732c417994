import Cryptography

extension DatagramLink {
    /// Processes a packet; true if it is authentic and new. Any other changes only a counter.
    func receive(
        _ datagram: consuming [UInt8], epoch: UInt8, number: UInt64, from address: DatagramAddress, at now: Microseconds
    ) -> Bool {
        let byteCount = datagram.count
        guard state != .gone else { return false }
        let isFresh = replay.isFresh(number)
        guard isFresh,
            let opened = keys.open(&datagram, epoch: epoch, number: number, keepFor: 3 * probeTimeout, at: now)
        else {
            events.append(.rejected(isFresh ? .notAuthentic : .replayed))
            return false
        }
        let isLatest = number >= replay.next
        replay.mark(number)
        bytesIn += UInt64(byteCount)
        if opened == .newGeneration {
            rekeying.completed()
            // The dialer wipes the old keys when it sees the new ones.
            owesPing = true
        }
        if case .lingering = state {
            lingering(datagram)
            return true
        }
        lastReceivedAt = now
        if address != path.address, isLatest { moved(to: address, at: now) }
        if address == path.address {
            path.datagramReceived(byteCount)
            // The address was given up, but the peer still uses it.
            if !path.isProved, path.challengeDeadline == nil { path.startChallenge(at: now) }
        }
        process(datagram, number, from: address, at: now)
        return true
    }

    /// The peer does not know yet that the link is closed: repeats the close, ever less often.
    private func lingering(_ packet: [UInt8]) {
        var reader = ByteReader(packet, from: DatagramPacket.sealedHeaderByteCount)
        while let frame = try? DatagramFrame.read(&reader) { if case .close = frame { return closedByPeer() } }
        packetsWhileLingering += 1
        guard packetsWhileLingering >= 1 << min(closesSent, 20) else { return }
        packetsWhileLingering = 0
        owesClose = true
    }

    /// The peer's address has changed (RFC 9000, section 9).
    private func moved(to address: DatagramAddress, at now: Microseconds) {
        if let known = fallback, known.address == address {
            path = known
            fallback = nil
        } else {
            if path.isProved { fallback = path }
            path = newPath(address, isProved: false, at: now)
            path.startChallenge(at: now)
        }
        sent.timeouts = 0
        pacedUntil = nil
    }

    private func process(_ packet: [UInt8], _ number: UInt64, from address: DatagramAddress, at now: Microseconds) {
        var reader = ByteReader(packet, from: DatagramPacket.sealedHeaderByteCount)
        var asks = false
        var isWhole = true
        let hadMessage = inbound.hasMessage
        do throws(DatagramFrame.Malformed) {
            while let frame = try DatagramFrame.read(&reader) {
                asks = asks || frame.asksForAcknowledgement
                guard try apply(frame, packet, from: address, at: now) else {
                    isWhole = false
                    continue
                }
                guard state != .gone else { return }
            }
        } catch { return end(.protocolViolation, at: now) }
        // Treat a packet as lost if part of it could not be kept: the peer retransmits it.
        if isWhole { received.receive(number, asks: asks, at: now) }
        if !hadMessage, inbound.hasMessage { events.append(.readable) }
        if inbound.isEnded || inbound.isCutShort { _ = read(at: now) }
        endIfFinished(at: now)
    }

    /// - Returns: false if there is no room for the frame's contents.
    private func apply(_ frame: DatagramFrame, _ packet: [UInt8], from address: DatagramAddress, at now: Microseconds)
        throws(DatagramFrame.Malformed) -> Bool
    {
        switch frame {
        case .ping: break
        case .acknowledgement(let acknowledgement):
            guard let largest = acknowledgement.ranges.first?.upperBound, largest < nextNumber else { throw .badValue }
            acknowledged(acknowledgement, at: now)
        case .data(let offset, let range, let isLast):
            do throws(ReceiveStream.Malformed) {
                return try inbound.receive(packet[range], at: offset, isLast: isLast)
            } catch { throw .badValue }
        case .credit(let offset): outbound.allow(offset)
        case .challenge(let value): if responses.count < limits.pathResponses { responses.append((address, value)) }
        case .response(let value):
            if path.response(value) {
                fallback = nil
                events.append(.pathChanged(path.address))
            }
        case .close: closedByPeer()
        }
        return true
    }

    private func acknowledged(_ acknowledgement: DatagramFrame.Acknowledgement, at now: Microseconds) {
        path.noteDryness(at: now)
        acknowledgedScratch.removeAll(keepingCapacity: true)
        sent.acknowledge(acknowledgement.ranges, &acknowledgedScratch)
        guard let newest = acknowledgedScratch.last else { return }
        var latest: Microseconds?
        if newest.number == acknowledgement.ranges[0].upperBound, newest.path == path.number {
            let delay = Microseconds(min(acknowledgement.delay, UInt64(limits.acknowledgementDelay)))
            path.roundTrip.sample(now - newest.sentAt, delay: delay, at: now)
            latest = path.roundTrip.adjusted
        }
        sent.timeouts = 0
        probesDue = 0
        let base = outbound.base
        for packet in acknowledgedScratch {
            if let piece = packet.piece { outbound.acknowledge(piece) }
            if let number = packet.acknowledges { received.forget(through: number) }
            if packet.isSizeProbe {
                guard packet.path == path.number else { continue }
                if path.size.probeAcknowledged(packet.byteCount, at: now) {
                    path.congestion.setDatagram(path.size.current)
                }
                continue
            }
            if packet.path == path.number {
                path.acknowledged(packet, at: now)
            } else if packet.path == fallback?.number {
                fallback?.inFlight -= packet.byteCount
            }
        }
        if outbound.base > base { progressAt = now }
        detectLost(at: now)
        path.congestion.update(inFlight: path.inFlight, latest: latest, path.roundTrip, at: now)
        checkWritable()
    }

    func detectLost(at now: Microseconds) {
        lostScratch.removeAll(keepingCapacity: true)
        sent.detectLost(path.roundTrip, at: now, &lostScratch)
        var oldest: SentPacket?
        var newest: SentPacket?
        for packet in lostScratch {
            sendAgain(packet)
            if packet.isSizeProbe {
                if packet.path == path.number { path.size.probeLost(packet.byteCount, at: now) }
                continue
            }
            lostPackets += 1
            if packet.path == path.number {
                path.lost(packet, at: now)
                oldest = oldest ?? packet
                newest = packet
            } else if packet.path == fallback?.number {
                fallback?.inFlight -= packet.byteCount
            }
        }
        guard let oldest, let newest else { return }
        if isPersistent(oldest.sentAt, newest.sentAt) { path.congestion.collapse(path.roundTrip, at: now) }
    }

    /// Whether the lost time exceeds three probe timeouts (RFC 9002, section 7.6).
    private func isPersistent(_ first: Microseconds, _ last: Microseconds) -> Bool {
        guard last - first > 3 * probeTimeout, let measured = path.roundTrip.firstSampleAt, first > measured else {
            return false
        }
        return !acknowledgedScratch.contains { $0.sentAt > first && $0.sentAt < last }
    }
}
