import FoundationEssentials
import Messaging
import SwiftProtobuf

/// What SwiftProtobuf makes of the messages of `mayfly.proto`, beside the reader and the writer of the node.
package enum ProtoOracle {
    package static func frame(_ bytes: [UInt8]) -> [UInt8]? { canonical(ProtoFrame.self, bytes) }
    package static func invite(_ bytes: [UInt8]) -> [UInt8]? { canonical(ProtoInvitePayload.self, bytes) }
    package static func signedInvite(_ bytes: [UInt8]) -> [UInt8]? { canonical(ProtoSignedInvite.self, bytes) }
    package static func tombstone(_ bytes: [UInt8]) -> [UInt8]? { canonical(ProtoTombstone.self, bytes) }

    /// A payload that is no message, and one of a later version, which is kept as it is: the same bytes.
    package static func payload(_ type: ContentType, _ bytes: [UInt8]) -> [UInt8]? {
        switch type {
        case .joinRequest: canonical(ProtoJoinRequest.self, bytes)
        case .welcome: canonical(ProtoWelcome.self, bytes)
        case .deletionReceipt: canonical(ProtoDeletionReceipt.self, bytes)
        case .invitation: canonical(ProtoInvitation.self, bytes)
        case .memberLeft: canonical(ProtoDeparture.self, bytes)
        case .groupUpdated: canonical(ProtoGroupUpdate.self, bytes)
        case .profile: canonical(ProtoMember.self, bytes)
        case .lifetimeAgreement: canonical(ProtoAgreement.self, bytes)
        case .lifetimeEnded: canonical(ProtoLifetimeEnded.self, bytes)
        case .receipt: canonical(ProtoReceipt.self, bytes)
        case .reply: canonical(ProtoReply.self, bytes)
        case .reaction: canonical(ProtoReaction.self, bytes)
        case .attachment: canonical(ProtoAttachment.self, bytes)
        default: bytes
        }
    }

    private static func canonical<Proto: SwiftProtobuf.Message>(_ type: Proto.Type, _ bytes: [UInt8]) -> [UInt8]? {
        var options = BinaryDecodingOptions()
        options.messageDepthLimit = 8
        options.discardUnknownFields = true
        return try? type.init(serializedBytes: bytes, options: options).serializedBytes()
    }

    package static func compareFrame(_ bytes: [UInt8]) throws {
        guard !hasReplacedBody(bytes) else { return }
        try compare(bytes, frame(bytes), FrameCodec.decode)
    }

    /// `decode` reads the bytes as it reads what SwiftProtobuf makes of them, and refuses what SwiftProtobuf refuses.
    /// Not compared: a message with a field that stands twice, where SwiftProtobuf reads the first one, too.
    package static func compare<Value: Equatable>(
        _ bytes: [UInt8], _ canonical: [UInt8]?, _ decode: ([UInt8]) throws -> Value
    ) throws {
        let value = try? decode(bytes)
        let expected = canonical.flatMap { try? decode($0) }
        guard value != expected, !hasFieldTwice(bytes[...]) else { return }
        throw FuzzFailure("\(bytes) is read as \(value as Any), by SwiftProtobuf as \(expected as Any)")
    }

    /// A `oneof` with two bodies, of which SwiftProtobuf reads the first one, too.
    private static func hasReplacedBody(_ bytes: [UInt8]) -> Bool {
        guard let bodies = fields(of: bytes[...]), let body = bodies.last else { return false }
        guard bodies.count == 1 else { return true }
        guard [30, 31, 40, 41, 42].contains(body.number), let inner = fields(of: body.bytes) else { return false }
        // The stream of a rendezvous node has a number and a body.
        let streams = inner.filter { [30: 3, 31: 4][body.number] == $0.number }
        return inner.count > 1 || streams.contains { fields(of: $0.bytes).map { $0.count > 2 } ?? false }
    }

    /// Also in what may be a message inside.
    private static func hasFieldTwice(_ bytes: ArraySlice<UInt8>, depth: Int = 0) -> Bool {
        guard depth < 8, let fields = fields(of: bytes) else { return false }
        return Set(fields.map(\.number)).count < fields.count
            || fields.contains { hasFieldTwice($0.bytes, depth: depth + 1) }
    }

    /// `nil` for what is no message.
    private static func fields(of bytes: ArraySlice<UInt8>) -> [(number: UInt64, bytes: ArraySlice<UInt8>)]? {
        var rest = bytes
        func varint() -> UInt64? {
            var value: UInt64 = 0
            for shift in stride(from: UInt64(0), to: 70, by: 7) {
                guard let byte = rest.popFirst() else { return nil }
                value |= UInt64(byte & 0x7f) << shift
                if byte < 0x80 { return value }
            }
            return nil
        }
        var found: [(number: UInt64, bytes: ArraySlice<UInt8>)] = []
        while !rest.isEmpty {
            guard let tag = varint() else { return nil }
            var inside: ArraySlice<UInt8> = []
            switch tag & 7 {
            case 0: guard varint() != nil else { return nil }
            case 1, 5: rest = rest.dropFirst(tag & 7 == 1 ? 8 : 4)
            case 2:
                guard let count = varint(), count <= UInt64(rest.count) else { return nil }
                inside = rest.prefix(Int(count))
                rest = rest.dropFirst(Int(count))
            default: break
            }
            found.append((tag >> 3, inside))
        }
        return found
    }

    /// A frame of ours is what SwiftProtobuf writes, with the payloads of its contents.
    package static func checkWritten(_ bytes: [UInt8]) throws {
        let proto = try ProtoFrame(serializedBytes: bytes)
        let contents = proto.contents.contents + (proto.content == ProtoContent() ? [] : [proto.content])
        for content in contents {
            let (type, payload) = (ContentType(content.type), Array(content.payload))
            try expect(self.payload(type, payload) == payload, "a payload is written otherwise: \(payload)")
        }
        try expect(frame(bytes) == bytes, "a frame is written otherwise: \(bytes)")
    }

    /// The body `content`, whatever the type.
    package static func frame(_ type: ContentType, _ payload: [UInt8]) -> [UInt8] {
        var proto = ProtoFrame()
        proto.content.type = type.description
        proto.content.id = Data(repeating: 1, count: 16)
        proto.content.sentAt = 1_795_247_146_133
        proto.content.lifetime = Lifetime.oneDay.rawValue
        proto.content.payload = Data(payload)
        return (try? proto.serializedBytes()) ?? []
    }

    package static func content(of frame: [UInt8]) throws -> (type: ContentType, payload: [UInt8]) {
        let proto = try ProtoFrame(serializedBytes: frame)
        return (ContentType(proto.content.type), Array(proto.content.payload))
    }
}
