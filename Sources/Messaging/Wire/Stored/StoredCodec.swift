import Crypto
import FoundationEssentials

/// Values that the store seals: messages and statuses as bytes, tombstones as protobuf, inbox records as JSON.
package enum StoredCodec {
    /// A chunk: a byte that says whether it is deflated, then its bytes. Messages begin with other bytes.
    package static func encode(_ chunk: AttachmentChunk) -> [UInt8] { [chunk.isDeflated ? 1 : 0] + chunk.bytes }

    package static func decodeChunk(_ bytes: [UInt8], message: MessageID, index: Int) throws(WireError)
        -> AttachmentChunk
    {
        guard let first = bytes.first, first <= 1 else { throw .malformed("chunk") }
        return AttachmentChunk(message: message, index: index, isDeflated: first == 1, bytes: Array(bytes.dropFirst()))
    }

    /// - Parameter byteLimit: the size of a page of the store. A name that does not fit is left out.
    package static func encode(tombstone record: ExplosionRecord, byteLimit: Int) -> [UInt8] {
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
            if let time = record.confirmed[key] { member.confirmedAt = time.milliseconds }
            member.knock = Data(record.memberKnocks[key] ?? [])
            member.isCreator = key == record.creator
            return member
        }
        // A creator that has left is no member, but still waits for our receipt.
        if let creator = record.creator, !record.members.contains(creator) { proto.creator = Data(creator.bytes) }
        proto.inviteKnocks = Data(record.inviteKnocks.flatMap { $0 })
        if let statement = record.statement {
            proto.tag = statement.tag.description
            proto.statedAt = statement.timestamp.milliseconds
            proto.statement = Data(statement.signature.bytes)
        }
        proto.isPrepared = record.isPrepared
        proto.isTraceless = record.isTraceless
        proto.relaySeeds = Data(record.relaySeeds.flatMap(\.bytes))
        proto.earlierCopies = record.earlierCopies.map { copy in
            var earlier = ProtoTombstone.EarlierCopy()
            earlier.key = Data(copy.receipt.member.bytes)
            earlier.destroyedAt = copy.receipt.destroyedAt.milliseconds
            earlier.signature = Data(copy.receipt.signature.bytes)
            earlier.knock = Data(copy.knock ?? [])
            return earlier
        }
        proto.name = record.name ?? ""
        let whole = serialized(proto)
        guard whole.count > byteLimit else { return whole }
        proto.name = ""
        return serialized(proto)
    }

    package static func decodeTombstone(_ bytes: [UInt8]) throws(WireError) -> ExplosionRecord {
        let proto = try parse(ProtoTombstone.self, bytes)
        var record = ExplosionRecord(
            conversation: try identifier(proto.conversation, "tombstone.conversation"),
            role: proto.isCreator ? .creator : .member, explodedAt: Timestamp(milliseconds: proto.explodedAt),
            keepUntil: Timestamp(milliseconds: proto.keepUntil), notice: Array(proto.notice),
            receipt: proto.receipt.isEmpty ? nil : Array(proto.receipt), members: [])
        guard record.notice.count == Limits.noticeByteCount else { throw .malformed("tombstone.notice") }
        for member in proto.members {
            let key = try publicKey(member.key, "tombstone.member")
            record.members.append(key)
            if member.hasConfirmedAt { record.confirmed[key] = Timestamp(milliseconds: member.confirmedAt) }
            if member.knock.count == secretByteCount { record.memberKnocks[key] = Array(member.knock) }
            if member.isCreator { record.creator = key }
        }
        if !proto.creator.isEmpty { record.creator = try publicKey(proto.creator, "tombstone.creator") }
        let secrets = Array(proto.inviteKnocks)
        record.inviteKnocks = stride(from: 0, to: secrets.count - secrets.count % secretByteCount, by: secretByteCount)
            .map { Array(secrets[$0..<$0 + secretByteCount]) }
        if let tag = InviteTag(proto.tag), !proto.statement.isEmpty {
            record.statement = ExpiredStatement(
                tag: tag, timestamp: Timestamp(milliseconds: proto.statedAt),
                signature: try signature(proto.statement, "tombstone.statement"))
        }
        record.isPrepared = proto.isPrepared
        record.isTraceless = proto.isTraceless
        record.name = proto.name.isEmpty ? nil : proto.name
        let seeds = Array(proto.relaySeeds)
        record.relaySeeds = stride(
            from: 0,
            to: min(seeds.count - seeds.count % RelaySeed.byteCount, Limits.tombstoneSeedCount * RelaySeed.byteCount),
            by: RelaySeed.byteCount
        ).map { RelaySeed(unchecked: Array(seeds[$0..<$0 + RelaySeed.byteCount])) }
        for earlier in proto.earlierCopies.prefix(Limits.departedCount) {
            let receipt = DeletionReceipt(
                conversation: record.conversation, member: try publicKey(earlier.key, "tombstone.earlierCopy"),
                destroyedAt: Timestamp(milliseconds: earlier.destroyedAt),
                signature: try signature(earlier.signature, "tombstone.earlierCopy"))
            let knock = earlier.knock.count == secretByteCount ? Array(earlier.knock) : nil
            record.earlierCopies.append(.init(receipt: receipt, knock: knock))
        }
        return record
    }

    /// Length of a knock's secret.
    private static let secretByteCount = 32

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
