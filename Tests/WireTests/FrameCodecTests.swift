import Crypto
import FuzzTargets
import Messaging
import Testing

@Suite struct FrameCodecTests {
    @Test func `every frame is read back unchanged`() throws {
        var fixtures = Samples()
        for frame in fixtures.frames() { #expect(try FrameCodec.decode(FrameCodec.encode(frame)) == frame) }
    }

    @Test func `a field added by a later version is skipped`() throws {
        var fixtures = Samples()
        // Field 1000, a varint.
        let added: [UInt8] = [0xc0, 0x3e, 0x01]
        for frame in fixtures.frames() { #expect(try FrameCodec.decode(FrameCodec.encode(frame) + added) == frame) }
        #expect(try FrameCodec.decode(added) == .unknown)
    }

    @Test func `the largest text content fits a link`() throws {
        var fixtures = Samples()
        let largest = fixtures.content(.text, String(repeating: "x", count: Limits.textByteCount))
        #expect(FrameCodec.encode(.content(largest, age: .max)).count < 65_535)
    }

    @Test func `a frame cut at any byte is an error or another frame, never a trap`() throws {
        var fixtures = Samples()
        for frame in fixtures.frames() {
            let bytes = FrameCodec.encode(frame)
            for count in 0..<bytes.count {
                let decoded = try? FrameCodec.decode(Array(bytes[..<count]))
                #expect(decoded != frame)
            }
        }
    }

    @Test func `a frame with any bit flipped is an error or another frame, never a trap`() throws {
        var fixtures = Samples()
        for frame in fixtures.frames() {
            let bytes = FrameCodec.encode(frame)
            for index in bytes.indices {
                for bit in 0..<8 {
                    var changed = bytes
                    changed[index] ^= 1 << bit
                    _ = try? FrameCodec.decode(changed)
                }
            }
        }
    }

    @Test func `random bytes never trap the decoder`() {
        var random = Randomness.seeded(1)
        for _ in 0..<20_000 {
            let count = Int(random.next(upperBound: 200 as UInt64))
            _ = try? FrameCodec.decode(random.bytes(count))
        }
    }

    @Test func `a signed proposal still verifies after its way through JSON`() throws {
        var fixtures = Samples()
        let proposal = fixtures.proposal()
        guard case .proposal(let decoded) = try SeedJSON.decodeLifetimeMessage(SeedJSON.encode(proposal)) else {
            Issue.record("not a proposal")
            return
        }
        #expect(decoded.isSignatureValid && decoded.id == proposal.id)
    }

    @Test func `a proposal with an unknown lifetime is unsupported but keeps its id`() throws {
        let id = String(repeating: "ab", count: 32)
        let json = #"{"type":"lifetime_proposal","lifetime":"90d","id":"\#(id)"}"#
        #expect(try SeedJSON.decodeLifetimeMessage(Array(json.utf8)) == .unsupported(ProposalID(hex: id)))
    }

    @Test func `a mailbox consent survives JSON and an ended frame, and a no is not written`() throws {
        var fixtures = Samples()
        let original = fixtures.proposal()
        for mailbox in MailboxConsent.allCases {
            let written = mailbox == .no ? nil : #""mailbox":"\#(mailbox.rawValue)""#
            var proposal = original
            proposal.terms = LifetimeTerms(.oneDay, mailbox: mailbox)
            let json = String(decoding: SeedJSON.encode(proposal), as: UTF8.self)
            #expect(written.map { json.contains($0) } ?? !json.contains("mailbox"))
            #expect(try SeedJSON.decodeLifetimeMessage(Array(json.utf8)) == .proposal(proposal))
            let ended = Frame.lifetime(.ended(AgreementID(proposal.id), renewable: proposal.terms))
            #expect(try FrameCodec.decode(FrameCodec.encode(ended)) == ended)
        }
    }

    @Test(arguments: [
        #""lifetime":"1d","mailbox":"no""#, #""lifetime":"1d","mailbox":"""#, #""lifetime":"1d","mailbox":"tape""#,
        #""lifetime":"ephemeral","mailbox":"disk""#,
    ]) func `a proposal with an unknown or forbidden mailbox is unsupported but keeps its id`(_ terms: String) throws {
        let id = String(repeating: "ab", count: 32)
        let json = #"{"type":"lifetime_proposal",\#(terms),"id":"\#(id)"}"#
        #expect(try SeedJSON.decodeLifetimeMessage(Array(json.utf8)) == .unsupported(ProposalID(hex: id)))
    }

    @Test(arguments: ["1e400", "-1", "1e300", "99999999999999999999", "\"1\"", "null"])
    func `an accept with an invalid time is refused`(_ time: String) {
        let key = "02" + String(repeating: "ab", count: 32)
        let json = """
            {"type":"lifetime_accept","sessionId":"\(String(repeating: "00", count: 32))","lifetime":"1d",
            "proposal":"\(String(repeating: "00", count: 32))","acceptedAt":\(time),"acceptor":"\(key)",
            "signature":"\(String(repeating: "00", count: 64))"}
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
            FrameCodec.encode(
                .joinError(JoinError(errorType: $0, inviteTag: tag, timestamp: Timestamp(milliseconds: 0)))
            ).count
        }
        #expect(Set(sizes).count == 1)
    }

    @Test func `a too long text or fallback is refused`() throws {
        var fixtures = Samples()
        let long = String(repeating: "x", count: Limits.textByteCount + 1)
        #expect(throws: WireError.tooLong("text")) {
            try FrameCodec.decode(FrameCodec.encode(.content(fixtures.content(.text, long), age: 0)))
        }
        var fallback = fixtures.content(ContentType("a/b:1.0"))
        fallback.fallback = String(repeating: "x", count: Limits.fallbackByteCount + 1)
        #expect(throws: WireError.tooLong("content.fallback")) {
            try FrameCodec.decode(FrameCodec.encode(.content(fallback, age: 0)))
        }
    }

    @Test func `a text that is not UTF-8 is refused`() throws {
        var fixtures = Samples()
        var content = fixtures.content()
        content.payload = [0xff, 0xfe]
        #expect(throws: WireError.malformed("text")) {
            try FrameCodec.decode(FrameCodec.encode(.content(content, age: 0)))
        }
    }

    @Test func `a peer cannot send a system message`() throws {
        var fixtures = Samples()
        let message = fixtures.content(.systemMessage)
        #expect(throws: WireError.malformed("contents.type")) {
            try FrameCodec.decode(FrameCodec.encode(.content(message, age: 0)))
        }
        #expect(throws: WireError.malformed("content.type")) { try FrameCodec.decode(asControl(message)) }
    }

    /// A content of a later minor version, with changed bytes of `body`.
    private func later(_ type: String, _ body: ContentBody, _ change: ([UInt8]) -> [UInt8]) throws -> Frame {
        var fixtures = Samples()
        var original = fixtures.content(ContentType("x/y:1.0"), body: body)
        original.payload = []
        let known = Content(
            type: ContentType(type), id: original.id, sentAt: original.sentAt, lifetime: original.lifetime,
            agreement: original.agreement, fallback: "fallback", shouldPush: true, payload: [], body: body)
        guard case .contents(let contents) = try FrameCodec.decode(FrameCodec.encode(.content(known, age: 0))),
            let decoded = contents.first?.content
        else { throw WireError.malformed("test") }
        var changed = decoded
        changed.payload = change(decoded.payload)
        return try FrameCodec.decode(FrameCodec.encode(.content(changed, age: 0)))
    }

    @Test func `a content of a later minor version is read as ours and kept whole`() throws {
        var random = Randomness.seeded(1)
        let reply = Reply(replyTo: MessageID.random(&random), text: "ja")
        // Field 15, a number of a later version.
        let frame = try later("mayfly/reply:1.3", .reply(reply)) { $0 + [0x78, 0x01] }
        guard case .contents(let contents) = frame, let content = contents.first?.content else {
            Issue.record("no content")
            return
        }
        #expect(content.body == .reply(reply) && content.displayText == "ja")
        #expect(content.payload.suffix(2) == [0x78, 0x01])
    }

    @Test func `an unreadable content of a later minor version is shown by its fallback`() throws {
        var random = Randomness.seeded(1)
        let reply = Reply(replyTo: MessageID.random(&random), text: "ja")
        let frame = try later("mayfly/reply:1.3", .reply(reply)) { _ in [0xff, 0xff] }
        guard case .contents(let contents) = frame, let content = contents.first?.content else {
            Issue.record("no content")
            return
        }
        #expect(content.body == .opaque && content.displayText == "fallback" && content.isUnknown)
    }

    @Test func `a content of a later major version is unknown`() throws {
        var fixtures = Samples()
        let content = fixtures.content(ContentType("mayfly/text:2.0"), "\u{1}")
        guard case .contents(let contents) = try FrameCodec.decode(FrameCodec.encode(.content(content, age: 0))),
            let decoded = contents.first?.content
        else {
            Issue.record("no content")
            return
        }
        #expect(decoded == content && decoded.displayText == "a text" && decoded.isUnknown)
    }

    @Test func `a reply to an id of the wrong length is refused`() throws {
        var fixtures = Samples()
        // Field 1, the id, of one byte; field 2, the text.
        let frame = Frame.content(fixtures.content(.reply, "\u{0a}\u{01}\u{01}\u{12}\u{01}x"), age: 0)
        #expect(throws: WireError.self) { try FrameCodec.decode(FrameCodec.encode(frame)) }
    }

    @Test func `a content with a wrong field is refused`() throws {
        var fixtures = Samples()
        var random = Randomness.seeded(1)
        let id = MessageID.random(&random)
        var wrong: [(ContentType, ContentBody)] = [
            (.reply, .reply(Reply(replyTo: id, text: ""))),
            (.reply, .reply(Reply(replyTo: id, text: String(repeating: "x", count: 32_769)))),
            (.reaction, .reaction(Reaction(message: id, emoji: "a\nb", isRemoved: false))),
            (.reaction, .reaction(Reaction(message: id, emoji: String(repeating: "x", count: 65), isRemoved: false))),
        ]
        for change: (inout Messaging.Attachment) -> Void in [
            { $0.byteCount = -1 }, { $0.byteCount = .max }, { $0.hash = [1] },
            { $0.name = String(repeating: "x", count: 256) }, { $0.mediaType = String(repeating: "x", count: 128) },
            { $0.text = String(repeating: "x", count: 32_769) },
        ] {
            var attachment = fixtures.attachment()
            change(&attachment)
            wrong.append((.attachment, .attachment(attachment)))
        }
        for (type, body) in wrong {
            let frame = Frame.content(fixtures.content(type, body: body), age: 0)
            #expect(throws: WireError.self, "\(body)") { try FrameCodec.decode(FrameCodec.encode(frame)) }
        }
        let long = AttachmentChunk(message: id, index: 0, isDeflated: false, bytes: random.bytes(32_769))
        #expect(throws: WireError.self) { try FrameCodec.decode(FrameCodec.encode(.attachmentChunk(long))) }
        let receipt = Receipt(.read, [MessageID](repeating: id, count: 257))
        #expect(throws: WireError.self) { try FrameCodec.decode(FrameCodec.encode(.receipt(receipt))) }
    }

    @Test func `a full chunk and the longest contents fit a frame`() throws {
        var fixtures = Samples()
        var random = Randomness.seeded(1)
        let id = MessageID.random(&random)
        var attachment = fixtures.attachment()
        attachment.text = String(repeating: "x", count: Limits.textByteCount)
        attachment.name = String(repeating: "x", count: Limits.fileNameByteCount)
        for frame: Frame in [
            .attachmentChunk(AttachmentChunk(message: id, index: .max, isDeflated: false, bytes: random.bytes(32_768))),
            .content(fixtures.content(.attachment, body: .attachment(attachment)), age: .max),
            .receipt(Receipt(.read, [MessageID](repeating: id, count: Limits.receiptCount))),
        ] { #expect(FrameCodec.encode(frame).count < 65_535) }
    }

    /// A control message of one type with the payload of another.
    private func control(_ type: String, _ payload: [UInt8]) throws -> Frame {
        var fixtures = Samples()
        var content = fixtures.content(ContentType("x/y:1.0"))
        content = Content(
            type: ContentType(type), id: content.id, sentAt: content.sentAt, lifetime: .ephemeral, agreement: nil,
            fallback: "", shouldPush: true, payload: payload)
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
        var fixtures = Samples()
        let agreement = fixtures.agreement()
        let payloads: [(String, [UInt8])] = [
            ("mayfly/lifetime_proposal:1.0", SeedJSON.encode(agreement.proposal)),
            ("mayfly/lifetime_accept:1.0", SeedJSON.encode(agreement.accepts[0])),
            ("mayfly/lifetime_reject:1.0", SeedJSON.encodeRejection(of: agreement.proposal.id, .policy)),
            ("mayfly/lifetime_withdraw:1.0", SeedJSON.encodeWithdrawal(of: agreement.proposal.id)),
        ]
        for (type, _) in payloads {
            for (other, payload) in payloads {
                if type == other {
                    #expect(throws: Never.self) { try control(type, payload) }
                } else {
                    #expect(throws: WireError.malformed("lifetime.type"), "\(type) with \(other)") {
                        try control(type, payload)
                    }
                }
            }
        }
    }

    @Test func `an agreement with another message as its proposal is refused, one with unknown terms skipped`() throws {
        var fixtures = Samples()
        let agreement = fixtures.agreement()
        // Field 1, a byte string.
        func bundle(_ proposal: [UInt8]) -> [UInt8] {
            [0x0a, UInt8(proposal.count & 0x7f | 0x80), UInt8(proposal.count >> 7)] + proposal
        }
        let type = "mayfly/lifetime_agreement:1.0"
        let accept = SeedJSON.encode(agreement.accepts[0])
        #expect(throws: WireError.malformed("lifetime.type")) { try control(type, bundle(accept)) }
        let unknown = Array(
            #"{"type":"lifetime_proposal","lifetime":"90d","padding":"\#(String(repeating: "x", count: 90))"}"#.utf8)
        #expect(try control(type, bundle(unknown)) == .unknown)
    }

    @Test func `an empty text is refused`() throws {
        var fixtures = Samples()
        #expect(throws: WireError.malformed("text")) {
            try FrameCodec.decode(FrameCodec.encode(.content(fixtures.content(.text, ""), age: 0)))
        }
    }

    @Test func `a stream end with the value false is refused`() throws {
        let end = FrameCodec.encode(.relayAnswer(.stream(RelayStreamID(9), .end)))
        #expect(try FrameCodec.decode(end) == .relayAnswer(.stream(RelayStreamID(9), .end)))
        #expect(end.last == 1)
        #expect(throws: WireError.malformed("relay_stream.end")) { try FrameCodec.decode(end.dropLast() + [0]) }
    }
}
