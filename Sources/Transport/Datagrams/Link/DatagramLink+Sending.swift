import Cryptography

extension DatagramLink {
    /// The next datagram to send now, or `nil`. Call until it returns `nil`.
    func poll(at now: Microseconds) -> DatagramTransmit? {
        switch state {
        case .gone: return nil
        case .lingering: return pollClose()
        case .open, .finishing: break
        }
        return pollResponse() ?? pollChallenge(at: now) ?? pollSizeProbe(at: now) ?? pollData(at: now)
    }

    private func pollClose() -> DatagramTransmit? {
        guard owesClose, path.allowance >= 64 else { return nil }
        owesClose = false
        closesSent += 1
        var packet = startPacket()
        packet.append(DatagramFrame.Kind.close.rawValue)
        packet.append(closeCode)
        return seal(packet, to: path.address)
    }

    private func pollResponse() -> DatagramTransmit? {
        guard !responses.isEmpty else { return nil }
        let response = responses.removeFirst()
        var packet = startPacket()
        // No longer than its challenge, so it needs no allowance at another address.
        if response.address == path.address, path.allowance < 64 { return nil }
        DatagramFrame.append(.response, response.value, to: &packet)
        return seal(packet, to: response.address)
    }

    private func pollChallenge(at now: Microseconds) -> DatagramTransmit? {
        guard let due = path.challengeDeadline, due <= now, !path.challengeIsHopeless(limits, at: now) else {
            return nil
        }
        let value = source.randomNumber()
        path.challengeSent(value, at: now)
        // A challenge without allowance counts as lost.
        guard path.allowance >= 64 else { return nil }
        var packet = startPacket()
        DatagramFrame.append(.challenge, value, to: &packet)
        // A full challenge also validates full datagrams. With little allowance several small ones are better.
        if path.allowance >= 3 * limits.datagramByteCount { pad(&packet, to: limits.datagramByteCount) }
        return record(packet, SentPacket(number: nextNumber, sentAt: now, path: path.number))
    }

    private func pollSizeProbe(at now: Microseconds) -> DatagramTransmit? {
        // Probe only a path that was measured and has no timeouts.
        guard path.isProved, path.roundTrip.hasSample, sent.timeouts == 0, let size = path.size.probe else {
            return nil
        }
        path.size.probeSent()
        var packet = startPacket(size)
        packet.append(DatagramFrame.Kind.ping.rawValue)
        pad(&packet, to: size)
        return record(packet, SentPacket(number: nextNumber, sentAt: now, path: path.number, isSizeProbe: true))
    }

    private var wantsToAsk: Bool { outbound.hasWork || owesCredit || inbound.owesCredit || owesPing || probesDue > 0 }

    private func pollData(at now: Microseconds) -> DatagramTransmit? {
        let mayAsk = wantsToAsk && mayAsk(at: now)
        guard mayAsk || received.isDue(at: now) else { return nil }
        let space = min(path.size.current, path.allowanceForData) - PacketCipher.overheadByteCount
        guard space >= DatagramPacket.sealedHeaderByteCount + 64 else { return nil }
        var packet = startPacket(path.size.current)
        var record = SentPacket(number: nextNumber, sentAt: now, path: path.number)
        var asks = false
        if received.isOwed || received.isDue(at: now) { appendAcknowledgement(&packet, &record, space, at: now) }
        if mayAsk {
            if owesCredit || inbound.owesCredit, packet.count + 9 <= space {
                DatagramFrame.appendCredit(inbound.writeCredit(path.roundTrip, at: now), to: &packet)
                owesCredit = false
                record.carriesCredit = true
                asks = true
            }
            if !outbound.isInFlight { progressAt = now }
            if let piece = outbound.next(space - packet.count) {
                outbound.append(piece, to: &packet)
                checkWritable()
                record.piece = piece
                asks = true
            }
            if owesPing || probesDue > 0, !asks, packet.count < space {
                packet.append(DatagramFrame.Kind.ping.rawValue)
                asks = true
            }
        }
        guard packet.count > DatagramPacket.sealedHeaderByteCount else { return nil }
        guard asks else { return seal(packet, to: path.address) }
        // Any ack-eliciting packet replaces a ping.
        owesPing = false
        probesDue = max(0, probesDue - 1)
        return self.record(packet, record)
    }

    /// Whether window and pacer allow an ack-eliciting packet; probes are always allowed.
    private func mayAsk(at now: Microseconds) -> Bool {
        guard probesDue == 0 else { return true }
        pacedUntil = nil
        guard path.inFlight + path.size.current <= Int(path.congestion.window) else {
            path.congestion.windowIsFull()
            return false
        }
        let next = path.pacer.next(path.congestion, at: now)
        guard next > now else { return true }
        pacedUntil = next
        return false
    }

    /// No more data may leave now.
    func pollEnded(at now: Microseconds) {
        let isPaced = pacedUntil.map { $0 > now } ?? false
        let isFull = path.inFlight + path.size.current > Int(path.congestion.window)
        path.pollEnded(isHeld: isPaced || isFull || outbound.awaitsCredit, at: now)
    }

    private func appendAcknowledgement(
        _ packet: inout [UInt8], _ record: inout SentPacket, _ space: Int, at now: Microseconds
    ) {
        var acknowledgement = received.written(at: now)
        // A range takes at most 16 bytes.
        let room = (space - packet.count - 32) / 16
        if acknowledgement.ranges.count > room {
            acknowledgement.ranges.removeLast(acknowledgement.ranges.count - max(1, room))
        }
        acknowledgement.delay = min(acknowledgement.delay, VariableInteger.maximum)
        DatagramFrame.append(acknowledgement, to: &packet)
        record.acknowledges = acknowledgement.ranges.first?.upperBound
    }

    private func startPacket(_ capacity: Int = 128) -> [UInt8] {
        keys.rotate(at: nextNumber, acknowledged: sent.largestAcknowledged)
        var packet: [UInt8] = []
        packet.reserveCapacity(capacity)
        packet.append(DatagramPacket.protocolByte)
        packet.append(DatagramPacket.version << 4 | DatagramPacket.Kind.sealed.rawValue)
        packet.append(keys.epoch)
        packet.appendBigEndian(remoteID)
        packet.appendBigEndian(nextNumber)
        return packet
    }

    private func pad(_ packet: inout [UInt8], to byteCount: Int) {
        let missing = byteCount - PacketCipher.overheadByteCount - packet.count
        if missing > 0 { packet += repeatElement(0, count: missing) }
    }

    private func seal(_ packet: consuming [UInt8], to address: DatagramAddress) -> DatagramTransmit {
        keys.seal(&packet, number: nextNumber)
        nextNumber += 1
        bytesOut += UInt64(packet.count)
        if address == path.address { path.datagramSent(packet.count) }
        return DatagramTransmit(address: address, bytes: packet)
    }

    private func record(_ packet: consuming [UInt8], _ record: SentPacket) -> DatagramTransmit {
        let transmit = seal(packet, to: path.address)
        var record = record
        record.byteCount = transmit.bytes.count
        if !record.isSizeProbe { record.delivery = path.sent(record.byteCount, at: record.sentAt) }
        lastAskedAt = record.sentAt
        sent.sent(record)
        return transmit
    }
}
