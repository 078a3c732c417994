import Cryptography
import FuzzTargets
import Messaging
import Testing

@Suite struct FrameCodecTests {
    private func comesBack(_ frame: Frame) throws { #expect(try FrameCodec.decode(FrameCodec.encode(frame)) == frame) }

    @Test func `every frame is read back unchanged, also with a field of a later version, as SwiftProtobuf writes it`()
        throws
    {
        var samples = Samples()
        // Field 1000, a varint.
        let added: [UInt8] = [0xc0, 0x3e, 0x01]
        let several = Frame.contents(samples.contents().map { AgedContent($0, age: .max) })
        for frame in try samples.frames() + [several] {
            try comesBack(frame)
            let bytes = FrameCodec.encode(frame)
            #expect(try FrameCodec.decode(bytes + added) == frame)
            #expect(throws: Never.self) { try ProtoOracle.checkWritten(bytes) }
        }
        #expect(try FrameCodec.decode(added) == .unknown)
    }

    @Test func `a frame with a flipped bit or cut at any byte is an error or another frame, never a trap`() throws {
        var samples = Samples()
        for frame in try samples.frames() {
            let bytes = FrameCodec.encode(frame)
            let isOfMailbox =
                switch frame {
                case .mailboxRequest, .mailboxAnswer, .mailbox: true
                default: false
                }
            for index in bytes.indices {
                for bit in 0..<8 {
                    var changed = bytes
                    changed[index] ^= 1 << bit
                    _ = try? FrameCodec.decode(changed)
                }
                let cut = try? FrameCodec.decode(Array(bytes[..<index]))
                #expect(cut != frame && (cut == nil || !isOfMailbox || index == 0), "\(frame) cut at \(index)")
            }
        }
    }

    @Test func `the largest frame of each kind fits a link`() throws {
        var samples = Samples()
        let id = MessageID.random(&samples.random)
        let text = String(repeating: "x", count: Limits.textByteCount)
        var attachment = samples.attachment()
        (attachment.text, attachment.name) = (text, String(repeating: "x", count: Limits.fileNameByteCount))
        let body = samples.random.bytes(SlotSize.largest)
        let box = BoxID.random(&samples.random)
        let put = SlotPut(id: .random(&samples.random), kind: .notice, keeping: .fortyFiveDays, body: body)
        let chunk = samples.random.bytes(Limits.chunkByteCount)
        let contents: [Frame] = [
            .content(samples.content(.text, text), age: .max),
            .content(samples.content(.attachment, body: .attachment(attachment)), age: .max),
            .attachmentChunk(AttachmentChunk(message: id, index: .max, isDeflated: false, bytes: chunk)),
            .receipt(Receipt(.read, [MessageID](repeating: id, count: Limits.receiptCount))),
        ]
        let mailbox: [Frame] = [
            .mailboxRequest(.put(box, put)),
            .mailboxAnswer(.slot(box, .random(&samples.random), dwell: .max, isAnswer: false, body: body)),
        ]
        for frame in contents + mailbox + samples.mailboxLists(beyond: 0).map(\.frame) {
            // The link's seal adds a tag of 16 bytes.
            #expect(FrameCodec.encode(frame).count + 16 <= TransportState.maximumFrameByteCount)
        }
        for frame in mailbox { try comesBack(frame) }
    }

    @Test(arguments: [
        #""lifetime":"90d""#, #""lifetime":"1d","mailbox":"no""#, #""lifetime":"1d","mailbox":"""#,
        #""lifetime":"1d","mailbox":"tape""#, #""lifetime":"ephemeral","mailbox":"disk""#,
    ]) func `a proposal with an unknown lifetime is unsupported but keeps its id`(_ terms: String) throws {
        let id = String(repeating: "ab", count: 32)
        let json = #"{"type":"lifetime_proposal",\#(terms),"id":"\#(id)"}"#
        #expect(try SeedJSON.decodeLifetimeMessage(Array(json.utf8)) == .unsupported(ProposalID(hex: id)))
    }

    @Test(arguments: ["1e400", "-1", "1e300", "99999999999999999999", "\"1\"", "null"])
    func `an accept with an invalid time is refused`(_ time: String) {
        let (zeros, signature) = (String(repeating: "00", count: 32), String(repeating: "00", count: 64))
        let json = """
            {"type":"lifetime_accept","sessionId":"\(zeros)","lifetime":"1d","proposal":"\(zeros)",
            "acceptedAt":\(time),"acceptor":"02\(String(repeating: "ab", count: 32))","signature":"\(signature)"}
            """
        #expect(throws: WireError.self) { try SeedJSON.decodeLifetimeMessage(Array(json.utf8)) }
    }

    @Test func `a join error of a later version is kept by its name and counts as generic`() throws {
        let json = #"{"errorType":"room_on_fire","inviteTag":"ABCDEFGHIJ","timestamp":"2026-11-21T06:37:11Z"}"#
        let error = try SeedJSON.decodeJoinError(Array(json.utf8))
        #expect(error.errorType == .unknown("room_on_fire"))
        #expect(error.errorType.userFacingMessage == JoinErrorType.genericFailure.userFacingMessage)
    }

    @Test(arguments: ["", "{", "[]", "{}", #"{"errorType":1}"#]) func `a join error without its fields is refused`(
        _ json: String
    ) { #expect(throws: WireError.self) { try SeedJSON.decodeJoinError(Array(json.utf8)) } }

    @Test func `all join errors have one size`() throws {
        var random = Randomness.seeded(3)
        let tag = InviteTag.random(&random)
        let sizes = [JoinErrorType.conversationExpired, .genericFailure, .singleUseConsumed].map {
            let error = JoinError(errorType: $0, inviteTag: tag, timestamp: Timestamp(milliseconds: 0))
            return FrameCodec.encode(.joinError(error)).count
        }
        #expect(Set(sizes).count == 1)
    }

    /// Found by the fuzz targets `core-joining` and `join-error-json`: milliseconds were lost.
    @Test func `a join error keeps its time in whole seconds through JSON`() throws {
        var random = Randomness.seeded(1)
        let error = JoinError(
            errorType: .genericFailure, inviteTag: InviteTag.random(&random),
            timestamp: Timestamp(milliseconds: 1_795_247_146_133))
        #expect(error.timestamp.milliseconds == 1_795_247_146_000)
        #expect(try SeedJSON.decodeJoinError(SeedJSON.encode(error)) == error)
    }

    @Test func `a frame with a value beyond its limits is refused`() throws {
        var samples = Samples()
        let id = MessageID.random(&samples.random)
        func long(_ count: Int) -> String { String(repeating: "x", count: count) }
        var fallback = samples.content(ContentType("a/b:1.0"))
        fallback.fallback = long(Limits.fallbackByteCount + 1)
        var notUTF8 = samples.content()
        notUTF8.payload = [0xff, 0xfe]
        let exact: [(Content, WireError)] = [
            (samples.content(.text, long(Limits.textByteCount + 1)), .tooLong("text")),
            (fallback, .tooLong("content.fallback")), (notUTF8, .malformed("text")),
            (samples.content(.text, ""), .malformed("text")),
            // A peer cannot send a system message.
            (samples.content(.systemMessage), .malformed("contents.type")),
        ]
        for (content, error) in exact {
            #expect(throws: error, "\(content.type), \(content.payload.count) bytes") {
                try FrameCodec.decode(FrameCodec.encode(.content(content, age: 0)))
            }
        }
        let system = asControl(samples.content(.systemMessage))
        #expect(throws: WireError.malformed("content.type")) { try FrameCodec.decode(system) }

        var wrong: [(ContentType, ContentBody)] = [
            (.reply, .reply(Reply(replyTo: id, text: ""))), (.reply, .reply(Reply(replyTo: id, text: long(32_769)))),
            (.reaction, .reaction(Reaction(message: id, emoji: "a\nb", isRemoved: false))),
            (.reaction, .reaction(Reaction(message: id, emoji: long(65), isRemoved: false))),
        ]
        for change: (inout Messaging.Attachment) -> Void in [
            { $0.byteCount = -1 }, { $0.byteCount = .max }, { $0.hash = [1] }, { $0.name = long(256) },
            { $0.mediaType = long(128) }, { $0.text = long(32_769) },
        ] {
            var attachment = samples.attachment()
            change(&attachment)
            wrong.append((.attachment, .attachment(attachment)))
        }
        let chunk = AttachmentChunk(message: id, index: 0, isDeflated: false, bytes: samples.random.bytes(61_441))
        let frames: [Frame] =
            wrong.map { .content(samples.content($0, body: $1), age: 0) } + [
                // Field 1, the id, of one byte; field 2, the text.
                .content(samples.content(.reply, "\u{0a}\u{01}\u{01}\u{12}\u{01}x"), age: 0), .attachmentChunk(chunk),
                .receipt(Receipt(.read, [MessageID](repeating: id, count: 257))),
            ]
        for frame in frames {
            #expect(throws: WireError.self, "\(frame)") { try FrameCodec.decode(FrameCodec.encode(frame)) }
        }
    }

    private func decoded(_ content: Content) throws -> Content {
        guard case .contents(let contents) = try FrameCodec.decode(FrameCodec.encode(.content(content, age: 0))),
            let content = contents.first?.content
        else { throw WireError.malformed("test") }
        return content
    }

    @Test func `a content of a later minor version is read as ours, or shown by its fallback; a major one is unknown`()
        throws
    {
        var samples = Samples()
        let reply = ContentBody.reply(Reply(replyTo: MessageID.random(&samples.random), text: "ja"))
        var known = samples.content(ContentType("mayfly/reply:1.3"), body: reply)
        (known.payload, known.fallback) = ([], "fallback")
        known = try decoded(known)
        var longer = known
        // Field 15, a number of a later version.
        longer.payload += [0x78, 0x01]
        longer = try decoded(longer)
        #expect(longer.body == reply && longer.displayText == "ja" && longer.payload.suffix(2) == [0x78, 0x01])
        known.payload = [0xff, 0xff]
        known = try decoded(known)
        #expect(known.body == .opaque && known.displayText == "fallback" && known.isUnknown)
        let major = samples.content(ContentType("mayfly/text:2.0"), "\u{1}")
        #expect(try decoded(major) == major && major.displayText == "a text" && major.isUnknown)
    }

    /// A control message of one type with the payload of another.
    private func control(_ type: String, _ payload: [UInt8]) throws -> Frame {
        var samples = Samples()
        var content = samples.content(ContentType(type))
        (content.lifetime, content.agreement, content.fallback, content.payload) = (.ephemeral, nil, "", payload)
        return try FrameCodec.decode(asControl(content))
    }

    /// The content as the body `content` of a frame, which carries control messages.
    private func asControl(_ content: Content) -> [UInt8] {
        let bytes = FrameCodec.encode(.content(content, age: 0))
        // After the tag and the length of the body follow the content's tag, length and fields.
        let lengthByteCount = bytes.dropFirst().prefix { $0 > 0x7f }.count + 1
        return [0x12] + bytes.dropFirst(1 + lengthByteCount + 1)
    }

    @Test func `a lifetime message whose JSON is of another type is refused`() throws {
        var samples = Samples()
        let agreement = samples.agreement()
        let payloads: [(String, [UInt8])] = [
            ("mayfly/lifetime_proposal:1.0", SeedJSON.encode(agreement.proposal)),
            ("mayfly/lifetime_accept:1.0", SeedJSON.encode(agreement.accepts[0])),
            ("mayfly/lifetime_reject:1.0", SeedJSON.encodeRejection(of: agreement.proposal.id, .policy)),
            ("mayfly/lifetime_withdraw:1.0", SeedJSON.encodeWithdrawal(of: agreement.proposal.id)),
        ]
        for (type, right) in payloads {
            #expect(throws: Never.self) { try control(type, right) }
            for (other, payload) in payloads where other != type {
                #expect(throws: WireError.malformed("lifetime.type"), "\(type) with \(other)") {
                    try control(type, payload)
                }
            }
        }
    }

    @Test func `an agreement with another message as its proposal is refused, one with unknown terms skipped`() throws {
        var samples = Samples()
        // Field 1, a byte string.
        func bundle(_ proposal: [UInt8]) -> [UInt8] {
            [0x0a, UInt8(proposal.count & 0x7f | 0x80), UInt8(proposal.count >> 7)] + proposal
        }
        let type = "mayfly/lifetime_agreement:1.0"
        let accept = SeedJSON.encode(samples.agreement().accepts[0])
        #expect(throws: WireError.malformed("lifetime.type")) { try control(type, bundle(accept)) }
        let padding = String(repeating: "x", count: 90)
        let unknown = #"{"type":"lifetime_proposal","lifetime":"90d","padding":"\#(padding)"}"#
        #expect(try control(type, bundle(Array(unknown.utf8))) == .unknown)
    }

    @Test func `a stream end with the value false is refused`() throws {
        let end = FrameCodec.encode(.relayAnswer(.stream(RelayStreamID(9), .end)))
        #expect(try FrameCodec.decode(end) == .relayAnswer(.stream(RelayStreamID(9), .end)))
        #expect(end.last == 1)
        #expect(throws: WireError.malformed("end")) { try FrameCodec.decode(end.dropLast() + [0]) }
    }
}
