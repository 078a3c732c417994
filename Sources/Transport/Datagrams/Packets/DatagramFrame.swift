/// A frame of a sealed packet, after RFC 9000, section 19 (DatagramLinks.md, "Frames").
enum DatagramFrame: Hashable {
    enum Kind: UInt8 { case padding, ping, acknowledgement, data, lastData, credit, challenge, response, close }

    case ping
    case acknowledgement(Acknowledgement)
    /// The bytes are given by their indices in the packet.
    case data(offset: UInt64, Range<Int>, isLast: Bool)
    case credit(UInt64)
    case challenge(UInt64)
    case response(UInt64)
    case close(UInt8)

    struct Acknowledgement: Hashable {
        static let maximumRanges = 64
        /// Newest first, with gaps between them.
        var ranges: [ClosedRange<UInt64>]
        var delay: UInt64
    }

    /// Whether the frame is ack-eliciting.
    var asksForAcknowledgement: Bool {
        switch self {
        case .ping, .data, .credit, .challenge, .response: true
        case .acknowledgement, .close: false
        }
    }

    /// The error of an authentic but malformed packet, which ends the link.
    enum Malformed: Error { case truncated, unknownKind, badValue }

    /// The next frame; `nil` at the end.
    static func read(_ reader: inout ByteReader) throws(Malformed) -> DatagramFrame? {
        reader.skipZeros()
        guard let first = reader.byte() else { return nil }
        guard let kind = Kind(rawValue: first) else { throw .unknownKind }
        switch kind {
        case .padding: return nil
        case .ping: return .ping
        case .acknowledgement: return .acknowledgement(try acknowledgement(&reader))
        case .data, .lastData:
            let offset = try variable(&reader)
            let length = try variable(&reader)
            guard offset <= VariableInteger.maximum - length else { throw .badValue }
            guard let range = reader.range(length) else { throw .truncated }
            return .data(offset: offset, range, isLast: kind == .lastData)
        case .credit: return .credit(try variable(&reader))
        case .challenge, .response:
            guard let number = reader.number() else { throw .truncated }
            return kind == .challenge ? .challenge(number) : .response(number)
        case .close:
            guard let reason = reader.byte() else { throw .truncated }
            return .close(reason)
        }
    }

    private static func variable(_ reader: inout ByteReader) throws(Malformed) -> UInt64 {
        guard let value = reader.variable() else { throw .truncated }
        return value
    }

    private static func acknowledgement(_ reader: inout ByteReader) throws(Malformed) -> Acknowledgement {
        let largest = try variable(&reader)
        let delay = try variable(&reader)
        let further = try variable(&reader)
        guard further < UInt64(Acknowledgement.maximumRanges) else { throw .badValue }
        let first = try variable(&reader)
        guard first <= largest else { throw .badValue }
        var smallest = largest - first
        var ranges = [smallest...largest]
        for _ in 0..<further {
            let gap = try variable(&reader)
            let length = try variable(&reader)
            // The next range ends gap + 2 before this one starts (RFC 9000, section 19.3.1).
            guard smallest >= 2, gap <= smallest - 2 else { throw .badValue }
            let next = smallest - gap - 2
            guard length <= next else { throw .badValue }
            smallest = next - length
            ranges.append(smallest...next)
        }
        return Acknowledgement(ranges: ranges, delay: delay)
    }

    static func append(_ acknowledgement: Acknowledgement, to packet: inout [UInt8]) {
        guard let first = acknowledgement.ranges.first else { return }
        packet.append(Kind.acknowledgement.rawValue)
        VariableInteger.append(first.upperBound, to: &packet)
        VariableInteger.append(acknowledgement.delay, to: &packet)
        VariableInteger.append(UInt64(acknowledgement.ranges.count - 1), to: &packet)
        VariableInteger.append(first.upperBound - first.lowerBound, to: &packet)
        var smallest = first.lowerBound
        for range in acknowledgement.ranges.dropFirst() {
            VariableInteger.append(smallest - range.upperBound - 2, to: &packet)
            VariableInteger.append(range.upperBound - range.lowerBound, to: &packet)
            smallest = range.lowerBound
        }
    }

    /// The caller appends the bytes.
    static func appendDataHeader(offset: UInt64, length: Int, isLast: Bool, to packet: inout [UInt8]) {
        packet.append((isLast ? Kind.lastData : Kind.data).rawValue)
        VariableInteger.append(offset, to: &packet)
        VariableInteger.append(UInt64(length), to: &packet)
    }

    static func dataHeaderByteCount(offset: UInt64, length: Int) -> Int {
        1 + VariableInteger.byteCount(offset) + VariableInteger.byteCount(UInt64(max(0, length)))
    }

    static func appendCredit(_ offset: UInt64, to packet: inout [UInt8]) {
        packet.append(Kind.credit.rawValue)
        VariableInteger.append(offset, to: &packet)
    }

    static func append(_ kind: Kind, _ number: UInt64, to packet: inout [UInt8]) {
        packet.append(kind.rawValue)
        packet.appendBigEndian(number)
    }
}
