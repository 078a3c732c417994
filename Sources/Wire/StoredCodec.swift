import FoundationEssentials
import Messaging
import Primitives

/// What the store keeps, under its seals: messages as protobuf, records of inboxes and tombstones as JSON.
package enum StoredCodec {
    package static func encode(_ message: Message) -> [UInt8] {
        var proto = ProtoStoredMessage()
        proto.content = ProtoContent(message.content, age: 0)
        proto.sender = Data(message.sender?.bytes ?? [])
        proto.state = message.state.rawValue
        proto.expiresAt = message.expiresAt?.milliseconds ?? 0
        return serialized(proto)
    }

    package static func decodeMessage(_ bytes: [UInt8]) throws(WireError) -> Message {
        let proto = try parse(ProtoStoredMessage.self, bytes)
        guard let state = DeliveryState(rawValue: proto.state) else { throw .malformed("message.state") }
        return Message(
            content: try Content(proto.content),
            sender: proto.sender.isEmpty ? nil : try publicKey(proto.sender, "message.sender"),
            state: state,
            expiresAt: proto.expiresAt == 0 ? nil : Timestamp(milliseconds: proto.expiresAt)
        )
    }

    package static func encode(record: some Encodable) -> [UInt8] {
        guard let data = try? JSONEncoder().encode(record) else {
            preconditionFailure("a record of our own does not encode")
        }
        return Array(data)
    }

    package static func decode<Record: Decodable>(_ type: Record.Type, _ bytes: [UInt8]) throws(WireError) -> Record {
        do {
            return try JSONDecoder().decode(type, from: Data(bytes))
        } catch {
            throw .malformed("\(type)")
        }
    }
}
