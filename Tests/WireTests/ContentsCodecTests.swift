import Cryptography
import FuzzTargets
import Messaging
import Testing

@Suite("Codec of contents") struct ContentsCodecTests {
    @Test func `a frame with too many contents is refused`() throws {
        var samples = Samples()
        let content = AgedContent(samples.content(), age: 0)
        let bytes = FrameCodec.encode(.contents(Array(repeating: content, count: Limits.contentsCount + 1)))
        #expect(throws: WireError.tooLong("contents")) { try FrameCodec.decode(bytes) }
    }

    @Test func `a control message is refused as chat content, and a chat text as control`() throws {
        var samples = Samples()
        var content = samples.content()
        for type: ContentType in [
            .receipt, .systemMessage, .joinRequest, .welcome, .joinError, .deletionReceipt, .lifetimeProposal,
            .lifetimeAccept, .lifetimeReject, .lifetimeWithdraw, .invitation, .memberLeft, .joinCancelled,
            .groupUpdated, .profile, .lifetimeAgreement, .lifetimeEnded, ContentType("mayfly/receipt:1.7"),
        ] {
            content.type = type
            let bytes = FrameCodec.encode(.content(content, age: 0))
            #expect(throws: WireError.malformed("contents.type"), "\(type)") { try FrameCodec.decode(bytes) }
        }
        // The same fields as the body `content`.
        for (type, frame) in [("mayfly/text:1.0", nil), ("example.org/poll:2.1", Frame.unknown)] {
            let name = Array(type.utf8)
            let bytes: [UInt8] = [0x12, UInt8(name.count + 5), 0x0a, UInt8(name.count)] + name + [0x4a, 0x01, 0x78]
            if let frame {
                #expect(try FrameCodec.decode(bytes) == frame)
            } else {
                #expect(throws: WireError.malformed("content.type")) { try FrameCodec.decode(bytes) }
            }
        }
    }

    @Test func `many contents fill as few frames as possible, each within a link's limit`() throws {
        var samples = Samples()
        var content = samples.content(ContentType("example.org/poll:2.1"))
        let sizes = [0, 1, 100, 127, 128, 16_000, 30_000, 59_000, Limits.payloadByteCount]
        var random = Randomness.seeded(3)
        for _ in 0..<50 {
            let contents = (0..<300).map { _ in
                let bound = Int.random(in: 0..<4, using: &random) == 0 ? sizes.count : 5
                let size = sizes[Int.random(in: 0..<bound, using: &random)]
                content.payload = [UInt8](repeating: 7, count: size)
                return AgedContent(content, age: Milliseconds.random(in: 0..<1 << 40, using: &random))
            }
            let frames = ContentsCodec.frames(of: contents)
            var found: [AgedContent] = []
            var previous: [AgedContent]?
            for bytes in frames {
                #expect(bytes.count <= 65_535)
                guard case .contents(let decoded) = try FrameCodec.decode(bytes) else {
                    Issue.record("no contents")
                    return
                }
                // This frame's first content had no room in the frame before.
                if let previous, previous.count < Limits.contentsCount {
                    #expect(FrameCodec.encode(.contents(previous + [decoded[0]])).count > 65_535)
                }
                previous = decoded
                found += decoded
            }
            #expect(found == contents)
        }
        #expect(ContentsCodec.frames(of: []).isEmpty)
    }
}
