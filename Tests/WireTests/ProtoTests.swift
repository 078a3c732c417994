import Cryptography
import FuzzTargets
import Messaging
import Testing

/// The reader and the writer of `mayfly.proto`, against SwiftProtobuf.
@Suite struct ProtoTests {
    private func agree(_ bytes: [UInt8]) {
        do { try ProtoOracle.compareFrame(bytes) } catch { Issue.record("\(bytes): \(error)") }
    }

    private func isRefused(_ bytes: [UInt8]) -> Bool { (try? FrameCodec.decode(bytes)) == nil }

    @Test func `fields in another order, and unknown ones between them, change nothing`() throws {
        var fixtures = Samples()
        let member = Member(
            profile: "ann", endpoints: [Endpoint(host: "example.org", port: 1)], version: 7, key: fixtures.ann,
            &fixtures.random)
        let fields: [[UInt8]] = [
            field(1, member.key.bytes), field(2, Array("ann".utf8)), field(3, Array(member.endpointTexts[0].utf8)),
            [0x20, 7], field(5, member.signature.bytes),
            // Of other wire types: a varint, 32 and 64 bits; and field 1000.
            [0x08, 1], [0x2d, 1, 2, 3, 4], [0x21, 1, 2, 3, 4, 5, 6, 7, 8], [0xc0, 0x3e, 0x01],
            // A group with a varint and a group inside.
            [0x93, 0x01, 0x08, 0x05, 0x1b, 0x1c, 0x94, 0x01],
        ]
        for _ in 0..<40 {
            let payload = fields.shuffled(using: &fixtures.random).flatMap { $0 }
            #expect(try FrameCodec.decode(ProtoOracle.frame(.profile, payload)) == .profile(member))
        }
    }

    @Test func `of a field that stands twice the last one counts`() throws {
        #expect(try FrameCodec.decode([0x20, 7, 0x20, 8]) == .ping(8))
        #expect(try FrameCodec.decode([0x20, 7, 0x28, 8]) == .pong(8))
        #expect(try FrameCodec.decode([0x28, 8, 0x20, 7]) == .ping(7))
        // A later body that is of another wire type, or unknown, is none.
        #expect(try FrameCodec.decode([0x20, 7, 0x2a, 0, 0x4a, 0]) == .ping(7))
        let ids = (1...2).map { [UInt8](repeating: $0, count: 16) }
        #expect(
            try FrameCodec.decode(field(22, ids[0]) + field(22, ids[1]))
                == .attachmentGone(MessageID(unchecked: ids[1])))
        // Message fields, too: nothing of the first one is left.
        let first = field(3, field(4, ids[0]) + field(5, ids[1]))
        let last = field(3, field(6, ids[1]))
        #expect(try FrameCodec.decode(first + last) == .expiredOnArrival(MessageID(unchecked: ids[1])))
    }

    @Test func `numbers are cut to their width`() throws {
        let id = [UInt8](repeating: 1, count: 16)
        let request = field(20, field(1, id) + [0x10] + varint(1 << 32 | 5) + [0x18] + varint(.max))
        let expected = Frame.attachmentRequest(MessageID(unchecked: id), first: 5, count: Int(UInt32.max))
        #expect(try FrameCodec.decode(request) == expected)
        agree(request)
        // The tenth byte has one bit; an eleventh is an error.
        let long = [UInt8](repeating: 0xff, count: 9)
        #expect(try FrameCodec.decode([0x20] + long + [0x7f]) == .ping(.max))
        agree([0x20] + long + [0x7f])
        #expect(isRefused([0x20] + long + [0xff, 0x01]))
        // `closing` is any number but 0.
        #expect(try FrameCodec.decode([0x30, 0x80, 0x01]) == .closing(asleep: false))
    }

    @Test func `messages and groups are nested eight deep, no deeper`() throws {
        for depth in 1...12 {
            let groups = [UInt8](repeating: 0x7b, count: depth) + [UInt8](repeating: 0x7c, count: depth)
            #expect(isRefused(groups) == (depth > 7), "\(depth) groups")
            agree(groups)
            // Below SessionStart.
            let inside = field(1, groups)
            #expect(isRefused(inside) == (depth > 6), "\(depth) groups in a message")
            agree(inside)
        }
        for wrong: [UInt8] in [[0x7b], [0x7c], [0x7b, 0x74], [0x7b, 0x7b, 0x7c], [0x7b, 0x0a, 0x05, 0x7c]] {
            #expect(isRefused(wrong), "\(wrong)")
            agree(wrong)
        }
    }

    @Test(
        arguments: [
            [0x00], [0x02, 0x00], [0x26], [0x27], [0x20], [0x20, 0x80], [0x42, 0x01], [0x0d, 1, 2, 3],
            [0x09, 1, 2, 3, 4, 5, 6, 7], [0x80], [0xff, 0xff, 0xff, 0xff, 0x7f, 0x00],
            // A tag of six bytes, alone and at the end of a group.
            [0xa0, 0x80, 0x80, 0x80, 0x80, 0x00, 7], [0x7b, 0xfc, 0x80, 0x80, 0x80, 0x80, 0x00],
            [0x42, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            [0x42, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
            // The same length of a content and of its payload.
            [0x42, 0x0d, 0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0, 0],
            [0x42, 0x0f, 0x0a, 0x0d, 0x4a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0, 0],
        ] as [[UInt8]]) func `bytes that are no frame are refused`(_ bytes: [UInt8])
    {
        #expect(isRefused(bytes))
        agree(bytes)
    }

    @Test func `a text that is not UTF-8 is refused, also where it is not used`() throws {
        let wrong: [UInt8] = [0xc3, 0x28]
        for type in [ContentType.joinCancelled, ContentType("mayfly/later:1.0")] {
            for number: UInt64 in [4, 7] {
                let bytes = field(2, field(1, Array(type.description.utf8)) + field(number, wrong))
                #expect(isRefused(bytes))
                agree(bytes)
            }
        }
        let terms = field(1, Array("later".utf8)) + field(4, wrong)
        #expect(isRefused(field(1, field(10, terms))))
        let punch = field(2, [UInt8](repeating: 1, count: 16)) + field(3, wrong)
        #expect(isRefused(field(32, punch)))
    }
}
