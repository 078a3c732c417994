import FoundationEssentials
import Messaging
import Primitives

/// What the store keeps, under its seals: messages as protobuf, records of inboxes and tombstones as JSON.
package enum StoredCodec {
    /// - Parameter arrivedAt: when it came to be here, by our clock: the order in which messages are shown.
    package static func encode(_ message: Message, arrivedAt: Timestamp) -> [UInt8] {
        var proto = ProtoStoredMessage()
        proto.content = ProtoContent(message.content, age: 0)
        proto.sender = Data(message.sender?.bytes ?? [])
        proto.state = message.state.rawValue
        proto.expiresAt = message.expiresAt?.milliseconds ?? 0
        proto.arrivedAt = arrivedAt.milliseconds
        switch message.onReading {
        case nil: break
        case .until(let end): proto.readUntil = end.milliseconds
        case .after(let time): proto.readLifetime = time
        }
        return serialized(proto)
    }

    package static func decodeMessage(_ bytes: [UInt8]) throws(WireError) -> (Message, arrivedAt: Timestamp) {
        let proto = try parse(ProtoStoredMessage.self, bytes)
        guard let state = DeliveryState(rawValue: proto.state) else { throw .malformed("message.state") }
        let message = Message(
            content: try Content(proto.content),
            sender: proto.sender.isEmpty ? nil : try publicKey(proto.sender, "message.sender"),
            state: state,
            expiresAt: proto.expiresAt == 0 ? nil : Timestamp(milliseconds: proto.expiresAt),
            onReading: proto.readUntil != 0
                ? .until(Timestamp(milliseconds: proto.readUntil))
                : proto.readLifetime != 0 ? .after(proto.readLifetime) : nil
        )
        return (message, Timestamp(milliseconds: proto.arrivedAt))
    }

    /// Small enough for one page of the store.
    package static func encode(tombstone record: ExplodeStateMachine.Record) -> [UInt8] {
        var proto = ProtoTombstone()
        proto.conversation = Data(record.conversation.bytes)
        proto.isCreator = record.role == .creator
        proto.explodedAt = record.explodedAt.milliseconds
        proto.keepUntil = record.keepUntil.milliseconds
        proto.notice = Data(record.notice)
        proto.receipt = Data(record.receipt ?? [])
        proto.members = record.members.map { key in
            var member = ProtoTombstone.Member()
            member.key = Data(key.bytes)
            member.confirmedAt = record.confirmed[key]?.milliseconds ?? 0
            return member
        }
        proto.knockTokens = Data(record.knockTokens.flatMap { $0 })
        return serialized(proto)
    }

    package static func decodeTombstone(_ bytes: [UInt8]) throws(WireError) -> ExplodeStateMachine.Record {
        let proto = try parse(ProtoTombstone.self, bytes)
        var members: [PublicKey] = []
        var confirmed: [PublicKey: Timestamp] = [:]
        for member in proto.members {
            let key = try publicKey(member.key, "tombstone.member")
            members.append(key)
            if member.confirmedAt != 0 { confirmed[key] = Timestamp(milliseconds: member.confirmedAt) }
        }
        var record = ExplodeStateMachine.Record(
            conversation: try identifier(proto.conversation, "tombstone.conversation"),
            role: proto.isCreator ? .creator : .member,
            explodedAt: Timestamp(milliseconds: proto.explodedAt),
            keepUntil: Timestamp(milliseconds: proto.keepUntil),
            notice: Array(proto.notice),
            receipt: proto.receipt.isEmpty ? nil : Array(proto.receipt),
            members: members
        )
        record.confirmed = confirmed
        let tokens = Array(proto.knockTokens)
        record.knockTokens = stride(from: 0, to: tokens.count - tokens.count % 8, by: 8).map {
            Array(tokens[$0..<$0 + 8])
        }
        return record
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
