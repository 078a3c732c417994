import Cryptography
import FuzzTargets
import Messaging
import Testing

@Suite struct InviteSlugTests {
    private func signed(_ fixtures: inout Samples) -> (Invite, SignedInvite) {
        let invite = fixtures.invite()
        return (invite, SignedInvite(payload: InviteSlug.encodePayload(invite), signedBy: fixtures.ann.secret))
    }

    @Test(arguments: ["", " ", "\u{200B}", "\u{2800}", "\u{3164}\u{202E}", "a\nb"])
    func `a name that no conversation may have is no name of an invite or invitation`(name: String) throws {
        var fixtures = Samples()
        var invite = signed(&fixtures).0
        invite.name = name
        #expect(try InviteSlug.decodePayload(InviteSlug.encodePayload(invite)).name == nil)
        let invitation = Frame.invitation(Invitation(id: .random(&fixtures.random), slug: "s", name: name))
        let read = try FrameCodec.decode(FrameCodec.encode(invitation))
        guard case .invitation(let known) = read else { return #expect(Bool(false), "\(read)") }
        #expect(known.name == nil)
    }

    @Test func `an invite keeps a conversation end at the beginning of time`() throws {
        var fixtures = Samples()
        var invite = fixtures.invite()
        invite.conversationExpiresAt = Timestamp(milliseconds: 0)
        #expect(try InviteSlug.decodePayload(InviteSlug.encodePayload(invite)) == invite)
    }

    @Test func `a slug is read without its prefix and across lines`() throws {
        var fixtures = Samples()
        let (invite, signed) = signed(&fixtures)
        let slug = InviteSlug.encode(signed)
        let bare = String(slug.dropFirst(InviteSlug.prefix.count))
        let wrapped = " \(bare.prefix(40))\n  \(bare.dropFirst(40)) \n"
        for text in [bare, wrapped, InviteSlug.prefix + wrapped] {
            #expect(try InviteSlug.decode(text).invite == invite)
        }
    }

    @Test func `an invite signed again by another key is refused`() throws {
        var fixtures = Samples()
        var invite = fixtures.invite()
        invite.name = "another room"
        let resigned = SignedInvite(payload: InviteSlug.encodePayload(invite), signedBy: fixtures.bob.secret)
        #expect(throws: InviteSlug.Failure.signature(.foreignSignature)) {
            try InviteSlug.decode(InviteSlug.encode(resigned))
        }
    }

    @Test func `a slug that is cut or changed at any character is refused`() throws {
        var fixtures = Samples()
        let slug = Array(InviteSlug.encode(signed(&fixtures).1).utf8)
        let head = InviteSlug.prefix.utf8.count
        for index in slug.indices {
            var changed = slug
            changed[index] = changed[index] == UInt8(ascii: "A") ? UInt8(ascii: "B") : UInt8(ascii: "A")
            for text in [Array(slug[..<index])] + (index < head ? [] : [changed]) {
                let text = String(decoding: text, as: UTF8.self)
                #expect(throws: InviteSlug.Failure.self) { try InviteSlug.decode(text) }
            }
        }
    }

    @Test func `a compressed invite beyond the size limit is refused`() {
        let bomb = [0x1f] + Deflate.compress([UInt8](repeating: 0, count: 1 << 20))
        #expect(throws: InviteSlug.Failure.tooLong) { try InviteSlug.decode(Base64URL.encode(bomb)) }
        let long = String(repeating: "A", count: InviteSlug.byteCountLimit + 1)
        #expect(throws: InviteSlug.Failure.tooLong) { try InviteSlug.decode(long) }
    }

    @Test(arguments: ["", "hello world", "https://example.org/", "mayfly:card/AQID", "mayfly:join/", "mayfly:join/***"])
    func `a text that is no invite is refused`(_ text: String) {
        #expect(throws: InviteSlug.Failure.self) { try InviteSlug.decode(text) }
    }
}
