import Cryptography

/// The format of stored messages:
///
///     2 (1) ‖ state (1) ‖ parts (1) ‖ arrival (8) ‖ [ sender (33) ] ‖ [ end (8) ] ‖ [ end once read (8) ]
///     ‖ deliveries (1) ‖ { member (33) ‖ state (1) ‖ time (8) } ‖ fields of `Content`, without an age
///
/// Times are milliseconds since the epoch; numbers are little-endian. Bits of `parts` name the optional parts. The end
/// once read is a time, or milliseconds after reading.
extension StoredCodec {
    /// Chunks of files begin with other bytes.
    private static let messageMark: UInt8 = 2

    private struct Parts: OptionSet {
        let rawValue: UInt8
        static let sender = Parts(rawValue: 1)
        static let end = Parts(rawValue: 2)
        static let endOnceRead = Parts(rawValue: 4)
        static let timeOnceRead = Parts(rawValue: 8)
        static let all: Parts = [.sender, .end, .endOnceRead, .timeOnceRead]
    }

    /// - Parameter arrivedAt: by our clock; messages are shown in this order.
    package static func encode(_ message: Message, arrivedAt: Timestamp) -> [UInt8] {
        var parts: Parts = []
        if message.sender != nil { parts.insert(.sender) }
        if message.expiresAt != nil { parts.insert(.end) }
        switch message.onReading {
        case nil: break
        case .until: parts.insert(.endOnceRead)
        case .after: parts.insert(.timeOnceRead)
        }
        var writer = ProtoWriter(capacity: 192 + message.content.payload.count)
        append(message, parts, arrivedAt: arrivedAt, to: &writer.bytes)
        message.content.write(age: 0, to: &writer)
        return writer.bytes
    }

    private static func append(_ message: Message, _ parts: Parts, arrivedAt: Timestamp, to bytes: inout [UInt8]) {
        bytes += [messageMark, code(message.state), parts.rawValue]
        bytes.append(number: arrivedAt.milliseconds)
        if let sender = message.sender { sender.value.append(to: &bytes) }
        if let end = message.expiresAt { bytes.append(number: end.milliseconds) }
        switch message.onReading {
        case nil: break
        case .until(let end): bytes.append(number: end.milliseconds)
        case .after(let time): bytes.append(number: time)
        }
        // A conversation has fewer members.
        let said = message.deliveries.prefix(Int(UInt8.max))
        bytes.append(UInt8(said.count))
        for delivery in said {
            delivery.member.value.append(to: &bytes)
            bytes.append(code(delivery.state))
            bytes.append(number: delivery.at.milliseconds)
        }
    }

    package static func decodeMessage(_ bytes: [UInt8]) throws(WireError) -> (Message, arrivedAt: Timestamp) {
        var reader = StoredReader(bytes)
        guard try reader.byte() == messageMark else { throw .malformed("message") }
        guard let state = try reader.state() else { throw .malformed("message.state") }
        let parts = Parts(rawValue: try reader.byte())
        guard parts.isSubset(of: .all), !parts.isSuperset(of: [.endOnceRead, .timeOnceRead]) else {
            throw .malformed("message.parts")
        }
        let arrivedAt = Timestamp(milliseconds: try reader.number())
        let sender = parts.contains(.sender) ? try reader.key() : nil
        let end = parts.contains(.end) ? Timestamp(milliseconds: try reader.number()) : nil
        var onReading: Retention.OnReading?
        if parts.contains(.endOnceRead) { onReading = .until(Timestamp(milliseconds: try reader.number())) }
        if parts.contains(.timeOnceRead) { onReading = .after(try reader.number()) }
        var said: [Delivery] = []
        for _ in 0..<(try reader.byte()) {
            let member = try reader.key()
            guard let state = try reader.state() else { throw .malformed("delivery.state") }
            said.append(Delivery(member: member, state: state, at: Timestamp(milliseconds: try reader.number())))
        }
        var message = Message(
            content: try Content(stored: bytes, from: reader.position), sender: sender, state: state, expiresAt: end,
            onReading: onReading)
        message.deliveries = said
        return (message, arrivedAt)
    }
}

extension [UInt8] {
    mutating func append(number: Int64) { Swift.withUnsafeBytes(of: number.littleEndian) { append(contentsOf: $0) } }
}

/// Reads records that we sealed ourselves, so keys are not validated again. Numbers are little-endian.
package struct StoredReader {
    private let bytes: [UInt8]
    package private(set) var position = 0

    package init(_ bytes: [UInt8]) { self.bytes = bytes }

    package var isAtEnd: Bool { position == bytes.count }

    package mutating func byte() throws(WireError) -> UInt8 { try number() }

    package mutating func number<Value: FixedWidthInteger>() throws(WireError) -> Value {
        try value(MemoryLayout<Value>.size) { Value(littleEndian: $0.loadUnaligned(as: Value.self)) }
    }

    package mutating func key() throws(WireError) -> PublicKey {
        try value(PublicKey.byteCount) { PublicKey(unchecked: $0) }.known("record.key")
    }

    mutating func message() throws(WireError) -> MessageID {
        MessageID(try value(MessageID.byteCount) { Bytes16(copying: $0) })
    }

    mutating func state() throws(WireError) -> DeliveryState? {
        let code = Int(try byte())
        guard code < StoredCodec.states.count else { throw .malformed("record.state") }
        return StoredCodec.states[code]
    }

    package mutating func value<Value>(_ count: Int, _ read: (UnsafeRawBufferPointer) -> Value) throws(WireError)
        -> Value
    {
        guard count <= bytes.count - position else { throw .malformed("record") }
        defer { position += count }
        return bytes.withUnsafeBytes { read(UnsafeRawBufferPointer(rebasing: $0[position..<position + count])) }
    }
}
