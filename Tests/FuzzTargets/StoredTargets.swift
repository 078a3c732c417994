import Crypto
import Messaging

/// Payloads that the layers above the store write.
let storedTargets: [FuzzTarget] = [
    FuzzTarget(
        "stored-message", byteCountLimit: 16_384,
        seeds: {
            var samples = Samples()
            var seeds: [[UInt8]] = []
            for (index, content) in samples.contents().enumerated() {
                var message = Message(
                    content: content, sender: index.isMultiple(of: 2) ? nil : samples.bob.publicKey,
                    state: [.queued, .received, .read, .receiving, .failed][index % 5],
                    expiresAt: index == 0 ? nil : samples.now + .day,
                    onReading: index == 1 ? .until(samples.now) : index == 2 ? .after(.hour) : nil)
                message.deliveries = [Delivery(member: samples.bob.publicKey, state: .read, at: samples.now)]
                seeds.append(StoredCodec.encode(message, arrivedAt: samples.now))
            }
            return seeds
        },
        run: { bytes in
            guard let (message, arrivedAt) = try? StoredCodec.decodeMessage(bytes) else { return }
            let again = try? StoredCodec.decodeMessage(StoredCodec.encode(message, arrivedAt: arrivedAt))
            try expect(again?.0 == message && again?.arrivedAt == arrivedAt, "\(message) does not come back")
        }),
    FuzzTarget(
        "stored-status", byteCountLimit: 4_096,
        seeds: {
            var samples = Samples()
            let said = [Delivery(member: samples.bob.publicKey, state: .failed, at: samples.now)]
            let statuses = (0..<3).map { index in
                MessageStatus(
                    message: MessageID.random(&samples.random), state: [.delivered, nil, .read][index],
                    said: index == 0 ? [] : said)
            }
            return [[0], StoredCodec.encode(statuses[...]).bytes]
        },
        run: { bytes in
            guard let statuses = try? StoredCodec.decodeStatuses(bytes) else { return }
            let (encoded, count) = StoredCodec.encode(statuses[...])
            let again = try? StoredCodec.decodeStatuses(encoded)
            try expect(again == Array(statuses.prefix(count)), "\(statuses) do not come back")
        }),
    FuzzTarget(
        "stored-chunk", byteCountLimit: 1_024,
        seeds: { [[0, 1, 2, 3], [1] + Deflate.compress([UInt8](repeating: 1, count: 100)), []] },
        run: { bytes in
            let id = MessageID(unchecked: [UInt8](repeating: 1, count: 16))
            guard let chunk = try? StoredCodec.decodeChunk(bytes, message: id, index: 7) else { return }
            try expect(StoredCodec.encode(chunk) == bytes, "a chunk does not come back")
            _ = chunk.plain(byteCount: bytes.count * 4)
        }),
    FuzzTarget(
        "stored-tombstone", byteCountLimit: 8_192,
        seeds: {
            var samples = Samples()
            return [StoredCodec.encode(tombstone: samples.tombstone(), byteLimit: .max)]
        },
        run: { bytes in
            try ProtoOracle.compare(bytes, ProtoOracle.tombstone(bytes), StoredCodec.decodeTombstone)
            guard let record = try? StoredCodec.decodeTombstone(bytes) else { return }
            let again = try? StoredCodec.decodeTombstone(StoredCodec.encode(tombstone: record, byteLimit: .max))
            try expect(again == record, "\(record) comes back as \(String(describing: again))")
            let node = NodeStateMachine()
            var turn = Turn(now: Timestamp(milliseconds: 1_795_247_146_133), random: .seeded(1))
            node.load(record, &turn)
        }),
]
