import Cryptography
import FoundationEssentials

/// Values that the store seals: messages and statuses as bytes, tombstones as protobuf, inbox records as JSON.
package enum StoredCodec {
    /// A chunk: a byte that says whether it is deflated, then its bytes. Messages begin with other bytes.
    package static func encode(_ chunk: AttachmentChunk) -> [UInt8] { [chunk.isDeflated ? 1 : 0] + chunk.bytes }

    package static func decodeChunk(_ bytes: consuming [UInt8], message: MessageID, index: Int) throws(WireError)
        -> AttachmentChunk
    {
        var bytes = bytes
        guard let first = bytes.first, first <= 1 else { throw .malformed("chunk") }
        bytes.removeFirst()
        return AttachmentChunk(message: message, index: index, isDeflated: first == 1, bytes: bytes)
    }

    /// - Parameter byteLimit: the size of a page of the store. A name that does not fit is left out.
    package static func encode(tombstone record: ExplosionRecord, byteLimit: Int) -> [UInt8] {
        let whole = record.serialized
        guard whole.count > byteLimit else { return whole }
        var unnamed = record
        unnamed.name = nil
        return unnamed.serialized
    }

    package static func decodeTombstone(_ bytes: [UInt8]) throws(WireError) -> ExplosionRecord {
        try ExplosionRecord(ProtoFields(bytes))
    }

    package static func encode(record: some Encodable) -> [UInt8] {
        guard let data = try? JSONEncoder().encode(record) else {
            preconditionFailure("a record of our own does not encode")
        }
        return Array(data)
    }

    package static func decode<Record: Decodable>(_ type: Record.Type, _ bytes: [UInt8]) throws(WireError) -> Record {
        do { return try JSONDecoder().decode(type, from: Data(bytes)) } catch { throw .malformed("\(type)") }
    }
}

/// Length of a knock's secret.
private let secretByteCount = 32

extension ExplosionRecord: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        writer.put(1, conversation)
        writer.put(2, role == .creator)
        writer.put(3, explodedAt)
        writer.put(4, keepUntil)
        writer.put(5, notice)
        writer.put(6, receipt ?? [])
        for key in members {
            writer.put(7) {
                $0.put(1, key)
                $0.put(2, optional: confirmed[key])
                $0.put(3, memberKnocks[key] ?? [])
                $0.put(4, key == creator)
            }
        }
        writer.put(9, inviteKnocks.flatMap { $0 })
        if let statement {
            writer.put(10, statement.tag.description)
            writer.put(11, statement.timestamp)
            writer.put(12, statement.signature)
        }
        writer.put(13, isPrepared)
        writer.put(14, isTraceless)
        // A creator that has left is no member, but still waits for our receipt.
        if let creator, !members.contains(creator) { writer.put(15, creator) }
        writer.put(16, joined: relaySeeds)
        for copy in earlierCopies {
            writer.put(17) {
                $0.put(1, copy.receipt.member)
                $0.put(2, copy.receipt.destroyedAt)
                $0.put(3, copy.receipt.signature)
                $0.put(4, copy.knock ?? [])
            }
        }
        writer.put(18, name)
    }

    init(_ fields: ProtoFields) throws(WireError) {
        self.init(
            conversation: try fields.id(1, "tombstone.conversation"), role: fields.flag(2) ? .creator : .member,
            explodedAt: fields.time(3), keepUntil: fields.time(4),
            notice: try fields.bytes(5, "tombstone.notice", count: Limits.noticeByteCount),
            receipt: fields.slice(6).isEmpty ? nil : fields.bytes(6), members: [])
        for member in try fields.all(7, "tombstone.members") {
            let key = try member.key(1, "tombstone.member")
            members.append(key)
            confirmed[key] = member.optionalTime(2)
            memberKnocks[key] = member.secret(3)
            if member.flag(4) { creator = key }
        }
        inviteKnocks = fields.whole(9, of: secretByteCount).map { Array($0) }
        let tag = InviteTag(try fields.text(10, "tombstone.tag"))
        if let tag, !fields.slice(12).isEmpty {
            statement = ExpiredStatement(
                tag: tag, timestamp: fields.time(11), signature: try fields.signature(12, "tombstone.statement"))
        }
        isPrepared = fields.flag(13)
        isTraceless = fields.flag(14)
        if !fields.slice(15).isEmpty { creator = try fields.key(15, "tombstone.creator") }
        relaySeeds = fields.whole(16, of: RelaySeed.byteCount).prefix(Limits.tombstoneSeedCount).map {
            RelaySeed(unchecked: Array($0))
        }
        for copy in try fields.all(17, "tombstone.earlier_copies").prefix(Limits.departedCount) {
            let receipt = DeletionReceipt(
                conversation: conversation, member: try copy.key(1, "tombstone.earlierCopy"), destroyedAt: copy.time(2),
                signature: try copy.signature(3, "tombstone.earlierCopy"))
            earlierCopies.append(.init(receipt: receipt, knock: copy.secret(4)))
        }
        name = try fields.optionalText(18, "tombstone.name")
    }
}

extension ProtoFields {
    fileprivate func secret(_ field: Int) -> [UInt8]? { slice(field).count == secretByteCount ? bytes(field) : nil }

    /// Values one behind the other, without an incomplete last one.
    fileprivate func whole(_ field: Int, of byteCount: Int) -> [ArraySlice<UInt8>] {
        let slice = slice(field)
        return (0..<slice.count / byteCount).map { slice.dropFirst($0 * byteCount).prefix(byteCount) }
    }
}
