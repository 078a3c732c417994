import Cryptography
import Messaging
import TestSupport

/// Bound of the work for one input.
private let longLimit = 12_000

/// Nodes whose frames cross as bytes.
extension World {
    static func joined(_ count: Int) throws -> World {
        var all = fuzzed(count)
        all.create()
        for node in 1..<count {
            all.ask(node, by: try all.invite(), as: "p\(node)")
            all.run(for: 5 * .second)
        }
        guard (0..<count).allSatisfy({ all.machine($0)?.currentMembers.count == count - 1 }) else {
            throw FuzzFailure("the members do not come together")
        }
        return all
    }

    /// A joiner whose request is on its way.
    static func halfJoined() throws -> World {
        var all = fuzzed(2)
        all.create()
        all.ask(1, by: try all.invite(), as: "p1")
        all.dial()
        guard !all.links.isEmpty else { throw FuzzFailure("the joiner does not dial") }
        return all
    }

    static func contacts() -> World {
        var all = fuzzed(2)
        for node in 0..<2 {
            let client = all.clients[node]
            all.step(node) { core, turn in core.makeContact(client, &turn) }
        }
        all.open(0, to: 1)
        return all
    }

    private static func fuzzed(_ count: Int) -> World {
        var manner = Manner()
        (manner.farewell, manner.checksFrames) = (nil, true)
        manner.verdict = { $0.bytes[0] & 1 == 0 }
        manner.mail = { $0.mail($1, $2, from: $3) }
        manner.sliceCount = 4
        let now = Timestamp(milliseconds: 1_795_247_146_133)
        var all = World(count, keys: FuzzKeys.all, now: now, manner)
        all.limit = longLimit
        return all
    }

    /// Until a dial has opened a link; frames on it are lost.
    mutating func dial() {
        for _ in 0..<64 where links.isEmpty { tick(until: now + .second) }
        wire.removeAll()
    }

    func endpoint(_ node: Int) -> Endpoint { Endpoint(host: endpoints[node], port: 1) }

    mutating func deliver(_ bytes: [UInt8], to node: Int, on link: LinkID) {
        guard let frame = try? FrameCodec.decode(bytes) else { return }
        receive(frame, node, on: link)
    }

    /// - Parameter sessionGoesOn: no session ends.
    mutating func restart(sessionGoesOn: Bool = false) {
        links.removeAll()
        wire.removeAll()
        for node in nodes.indices {
            guard let record = saved[node] else { continue }
            let bytes = StoredCodec.encode(record: record)
            guard let read = try? StoredCodec.decode(InboxRecord.self, bytes), read == record else {
                failure = failure ?? "a record of our own does not come back"
                continue
            }
            nodes[node] = NodeStateMachine()
            for var record in tombstones[node].values.sorted(by: { $0.conversation < $1.conversation }) {
                record.openInvites = []
                let tombstone = try? StoredCodec.decodeTombstone(StoredCodec.encode(tombstone: record, byteLimit: .max))
                if tombstone != record { failure = failure ?? "a tombstone of our own does not come back" }
                step(node) { core, turn in core.load(record, &turn) }
            }
            let key = keys[node]
            step(node) { core, turn in core.load(read, key: key, sessionGoesOn: sessionGoesOn, &turn) }
        }
    }

    func check() throws {
        if let failure { throw FuzzFailure(failure) }
        try expect(count < longLimit, "one input makes the nodes do \(count) things and no end")
    }
}
