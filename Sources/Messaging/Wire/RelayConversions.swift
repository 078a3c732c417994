import FoundationEssentials

extension ProtoRelayRequest {
    init(_ request: RelayRequest) {
        switch request {
        case .reserve(let labels): reserve.labels = Data(labels.flatMap(\.bytes))
        case .withdraw(let labels): withdraw.labels = Data(labels.flatMap(\.bytes))
        case .release: release = true
        case .open(let reservation): `open` = Data(reservation.bytes)
        case .stream(let number, let frame): stream = ProtoRelayStream(number, frame)
        }
    }
}

extension RelayRequest {
    /// - Returns: `nil` for one of a later version.
    static func read(_ proto: ProtoRelayRequest) throws(WireError) -> RelayRequest? {
        switch proto.body {
        case .reserve(let list): return .reserve(try labels(list, "relay_request.reserve"))
        case .withdraw(let list): return .withdraw(try labels(list, "relay_request.withdraw"))
        case .release(let isRelease):
            guard isRelease else { throw .malformed("relay_request.release") }
            return .release
        case .open(let reservation): return .open(try identifier(reservation, "relay_request.open"))
        case .stream(let stream):
            return try RelayStreamFrame.read(stream).map { .stream(RelayStreamID(stream.number), $0) }
        case nil: return nil
        }
    }

    private static func labels(_ proto: ProtoRelayLabels, _ field: String) throws(WireError) -> [RelayLabel] {
        let bytes = Array(proto.labels)
        guard bytes.count.isMultiple(of: RelayLabel.byteCount) else { throw .malformed(field) }
        guard bytes.count <= Limits.relayLabelCount * RelayLabel.byteCount else { throw .tooLong(field) }
        return stride(from: 0, to: bytes.count, by: RelayLabel.byteCount).map {
            RelayLabel(unchecked: Array(bytes[$0..<$0 + RelayLabel.byteCount]))
        }
    }
}

extension ProtoRelayAnswer {
    init(_ answer: RelayAnswer) {
        switch answer {
        case .reserved(let grant):
            reserved.reservations = UInt32(clamping: grant.reservationCount)
            reserved.streamsPerReservation = UInt32(clamping: grant.streamsPerReservation)
            reserved.streams = UInt32(clamping: grant.streamCount)
            reserved.byteRate = UInt32(clamping: grant.byteRate)
        case .refused(let refusal): refused = refusal.rawValue
        case .incoming(let stream, let reservation):
            incoming.number = stream.number
            incoming.reservation = Data(reservation.bytes)
        case .stream(let number, let frame): stream = ProtoRelayStream(number, frame)
        }
    }
}

extension RelayAnswer {
    /// - Returns: `nil` for one of a later version.
    static func read(_ proto: ProtoRelayAnswer) throws(WireError) -> RelayAnswer? {
        switch proto.body {
        case .reserved(let grant):
            return .reserved(
                RelayGrant(
                    reservationCount: Int(grant.reservations), streamsPerReservation: Int(grant.streamsPerReservation),
                    streamCount: Int(grant.streams), byteRate: Int(grant.byteRate)))
        case .refused(let reason): return .refused(RelayRefusal(rawValue: reason) ?? .other)
        case .incoming(let incoming):
            let reservation: ReservationID = try identifier(incoming.reservation, "relay_incoming.reservation")
            return .incoming(RelayStreamID(incoming.number), reservation)
        case .stream(let stream):
            return try RelayStreamFrame.read(stream).map { .stream(RelayStreamID(stream.number), $0) }
        case nil: return nil
        }
    }
}

extension ProtoRelayStream {
    init(_ number: RelayStreamID, _ frame: RelayStreamFrame) {
        self.number = number.number
        switch frame {
        case .data(let bytes): data = Data(bytes)
        case .credit(let count): credit = UInt32(clamping: count)
        case .end: end = true
        case .close(let reason): close = reason.rawValue
        }
    }
}

extension RelayStreamFrame {
    /// - Returns: `nil` for one of a later version.
    fileprivate static func read(_ proto: ProtoRelayStream) throws(WireError) -> RelayStreamFrame? {
        switch proto.body {
        case .data(let bytes):
            guard (1...Limits.relayPieceByteCount).contains(bytes.count) else { throw .malformed("relay_stream.data") }
            return .data(Array(bytes))
        case .credit(let count):
            guard (1...Limits.relayWindow).contains(Int(count)) else { throw .malformed("relay_stream.credit") }
            return .credit(Int(count))
        case .end(let isEnd):
            guard isEnd else { throw .malformed("relay_stream.end") }
            return .end
        case .close(let reason): return .close(RelayCloseReason(rawValue: reason) ?? .closed)
        case nil: return nil
        }
    }
}

extension ProtoPunch {
    init(_ message: PunchMessage) {
        self.init()
        step = UInt32(message.step.rawValue)
        nonce = Data(message.nonce.bytes)
        candidates = message.candidates.map(\.description)
    }
}

extension PunchMessage {
    /// `nil` for a step of a later version.
    static func read(_ proto: ProtoPunch) throws(WireError) -> PunchMessage? {
        guard let nonce = PunchNonce(Array(proto.nonce)) else { throw .malformed("punch.nonce") }
        guard proto.candidates.count <= Limits.punchCandidateCount else { throw .tooLong("punch.candidates") }
        guard let step = UInt8(exactly: proto.step).flatMap(Step.init(rawValue:)) else { return nil }
        let candidates = proto.candidates.compactMap { Endpoint($0) }.filter { $0.relay == nil }
        return PunchMessage(step: step, nonce: nonce, candidates: candidates)
    }
}
