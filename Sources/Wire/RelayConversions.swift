import FoundationEssentials
import Messaging

extension ProtoRelayRequest {
    init(_ request: RelayRequest) {
        switch request {
        case .reserve: reserve = true
        case .release: reserve = false
        case .open(let reservation): `open` = Data(reservation.bytes)
        case .stream(let number, let frame): stream = ProtoRelayStream(number, frame)
        }
    }
}

extension RelayRequest {
    /// - Returns: `nil` for one of a later version.
    static func read(_ proto: ProtoRelayRequest) throws(WireError) -> RelayRequest? {
        switch proto.body {
        case .reserve(let isWanted): return isWanted ? .reserve : .release
        case .open(let reservation): return .open(try identifier(reservation, "relay_request.open"))
        case .stream(let stream):
            return try RelayStreamFrame.read(stream).map { .stream(RelayStreamID(stream.number), $0) }
        case nil: return nil
        }
    }
}

extension ProtoRelayAnswer {
    init(_ answer: RelayAnswer) {
        switch answer {
        case .reserved(let grant):
            reserved.reservation = Data(grant.reservation.bytes)
            reserved.streams = UInt32(clamping: grant.streamCount)
            reserved.byteRate = UInt32(clamping: grant.byteRate)
        case .refused(let refusal): refused = refusal.rawValue
        case .incoming(let stream): incoming = stream.number
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
                    reservation: try identifier(grant.reservation, "relay_grant.reservation"),
                    streamCount: Int(grant.streams),
                    byteRate: Int(grant.byteRate)
                )
            )
        case .refused(let reason): return .refused(RelayRefusal(rawValue: reason) ?? .other)
        case .incoming(let number): return .incoming(RelayStreamID(number))
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
        case .end: return .end
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
