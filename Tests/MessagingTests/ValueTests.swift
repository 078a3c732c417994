import Cryptography
import Foundation
import Testing

@testable import Messaging

@Suite struct Values {
    private var random = Randomness.seeded(1)

    @Test func `a token bucket gives its burst, then one per interval, and never saves up more`() {
        var bucket = TokenBucket(Rate(every: 1_000, burst: 2))
        #expect(bucket.take(now: noon) == nil && bucket.take(now: noon) == nil)
        #expect(bucket.take(now: noon) == 1_000 && bucket.take(now: noon + 400) == 600)
        #expect(bucket.take(now: noon + 1_000) == nil)
        let later = noon + Milliseconds.day
        #expect(bucket.take(now: later) == nil && bucket.take(now: later) == nil)
        #expect(bucket.take(now: later) == 1_000)
        // A clock that goes back takes no token away.
        var back = TokenBucket(Rate(every: 1_000, burst: 1))
        #expect(back.take(now: noon) == nil && back.take(now: noon - 500) == 1_500)
    }

    @Test func `timestamps stay between 1970 and 9999, also after additions`() throws {
        #expect(Timestamp(milliseconds: .min).milliseconds == 0 && Timestamp(milliseconds: .max) == .latest)
        #expect(Timestamp.latest + .max == .latest && Timestamp.latest + 1 == .latest)
        #expect(Timestamp(milliseconds: 0) - Milliseconds.max == Timestamp(milliseconds: 0))
        #expect(Timestamp(milliseconds: 0) - Milliseconds.min == .latest)
        #expect(Timestamp(milliseconds: 5) + .min == Timestamp(milliseconds: 0) && Timestamp.latest.day > 2_900_000)
        let decoded = try JSONDecoder().decode([Timestamp].self, from: Data("[-5, 9223372036854775807, 12]".utf8))
        #expect(decoded.map(\.milliseconds) == [0, Timestamp.latest.milliseconds, 12])
    }

    @Test func `lifetimes and policies are read as they are written`() {
        for lifetime in Lifetime.allCases { #expect(Lifetime(rawValue: lifetime.rawValue) == lifetime) }
        #expect(Lifetime.allCases.map(\.rawValue) == ["ephemeral", "1h", "6h", "1d", "7d", "30d"])
        #expect(Lifetime.allCases == Lifetime.allCases.sorted())
        for text in ["2h", "", "1D", "1d ", "ephemeral2"] { #expect(Lifetime(rawValue: text) == nil) }
        let policies: [LifetimePolicy] = [.ask, .refuse] + Lifetime.allCases.map { .acceptUpTo($0) }
        for policy in policies { #expect(LifetimePolicy(policy.text) == policy) }
        let caps = ["", "2h", "1d ", "1d:", "1d:no", "1d:floppy", "1d:ram:ram"].map { "accept-up-to:\($0)" }
        for text in caps + ["", "Ask"] { #expect(LifetimePolicy(text) == nil) }
    }

    @Test mutating func `our name and another member's have a visible character`() {
        let key = makeKey(&random)
        let blanks = "\u{ad}\u{115f}\u{1160}\u{200b}\u{200d}\u{202e}\u{2060}\u{2800}\u{3000}\u{3164}\u{fe0f}\u{feff}"
        for blank in (blanks + "\u{ffa0}\u{ffff}\u{13441}\u{16fe4}\u{1d159}\u{e0041}").unicodeScalars {
            for (name, isName) in [("\(blank)\(blank)", false), ("\(blank)a", true)] {
                #expect(((try? DisplayName.check(name)) != nil) == isName, "\(blank.value)")
                let member = Member(profile: name, endpoints: [], version: 1, key: key, &random)
                #expect(member.isValid == isName, "\(blank.value)")
            }
        }
    }

    @Test(arguments: [
        "tcp://192.0.2.1:7440", "tcp://host.example:1", "tcp://[2001:db8::1]:65535", "tcp://h:0",
        "tcp://[fe80::1%eth0]:9",
    ]) func `an endpoint is read as it is written`(text: String) { #expect(Endpoint(text)?.description == text) }

    @Test(arguments: [
        "", "tcp://", "tcp://:1", "tcp://host", "tcp://host:", "tcp://host:65536", "tcp://host:-1", "tcp://host:+1",
        "tcp://host:1x", "tcp://host:01", "udp://host:1", "tcp://2001:db8::1:7440", "tcp://[host]:1", "tcp://[::1:1",
        "tcp://ho st:1", "tcp://hö:1", "tcp://host\n:1", "tcp://a/b:1", "TCP://host:1", "tcp://[]:1",
        "tcp://" + String(repeating: "a", count: 300) + ":1",
    ]) func `a malformed endpoint is refused`(text: String) { #expect(Endpoint(text) == nil) }

    @Test
    mutating func `a contact card is read as it is written, and not with a character changed, missing or doubled`()
        throws
    {
        let places = [Endpoint(host: "192.0.2.1", port: 7440), Endpoint(host: "2001:db8::1", port: 1)]
        for endpoints in [places, []] {
            let card = ContactCard(
                key: makeKey(&random).publicKey, routingSecret: random.bytes(32), endpoints: endpoints)
            #expect(try ContactCard(text: card.description) == card)
            let text = Array(card.description)
            for offset in ContactCard.prefix.count..<text.count {
                let old = text[offset]
                for new in [[old == "A" ? "B" : "A"], [], [old, old]] as [[Character]] {
                    let changed = String(text[..<offset] + new + text[(offset + 1)...])
                    #expect(throws: ContactCard.Failure.self) { try ContactCard(text: changed) }
                }
            }
            let bytes = try #require(Base64URL.decode(card.description.dropFirst(ContactCard.prefix.count)))
            for length in 0..<bytes.count {
                let cut = ContactCard.prefix + Base64URL.encode(Array(bytes[..<length]))
                #expect(throws: ContactCard.Failure.self) { try ContactCard(text: cut) }
            }
            for index in card.description.indices { _ = try? ContactCard(text: String(card.description[..<index])) }
        }
    }

    @Test mutating func `a contact card of another version, with a wrong key or endpoint is refused`() throws {
        let key = makeKey(&random).publicKey.bytes
        let secret = random.bytes(32)
        func read(_ body: [UInt8]) throws(ContactCard.Failure) {
            let bytes = body + SHA256.hash(body).prefix(4)
            _ = try ContactCard(text: ContactCard.prefix + Base64URL.encode(bytes))
        }
        #expect(throws: ContactCard.Failure.notACard) { try ContactCard(text: "mayfly:join/AA") }
        #expect(throws: ContactCard.Failure.notACard) { try ContactCard(text: ContactCard.prefix + "*") }
        for version in [0, 1, 3] as [UInt8] {
            #expect(throws: ContactCard.Failure.unknownVersion(version)) { try read([version] + key + secret) }
        }
        #expect(throws: ContactCard.Failure.invalidKey) { try read([2, 4] + key.dropFirst() + secret) }
        #expect(throws: ContactCard.Failure.invalidEndpoint) { try read([2] + key + secret + Array("x".utf8)) }
        let many = Array(repeating: "tcp://h:1", count: Limits.endpointCount + 1).joined(separator: "\n")
        #expect(throws: ContactCard.Failure.invalidEndpoint) { try read([2] + key + secret + Array(many.utf8)) }
    }

    @Test mutating func `a conversation token opens only whole and unchanged, for its creator only`() {
        let key = makeKey(&random)
        let conversation = ConversationID.random(&random)
        let token = ConversationToken.seal(conversation, key: key.secret, nonce: random.bytes(12))
        #expect(token.count == ConversationToken.byteCount)
        #expect(ConversationToken.open(token, key: key.secret) == conversation)
        #expect(ConversationToken.open(token, key: makeKey(&random).secret) == nil)
        expectOpensOnlyWhole(token) { ConversationToken.open($0, key: key.secret) != nil }
    }

    @Test mutating func `an invite tag is ten alphanumerics`() {
        for _ in 0..<100 {
            let tag = InviteTag.random(&random)
            #expect(InviteTag(tag.description) == tag)
        }
        for text in ["", "ABCDEFGHI", "ABCDEFGHIJK", "ABCDEFGH-J", "ABCDEFGHÄ", "ABCDEFGHI\n"] {
            #expect(InviteTag(text) == nil)
        }
    }

    @Test mutating func `ids are read only as hexadecimal of their exact length`() {
        let id = MessageID.random(&random)
        #expect(MessageID(hex: id.description) == id)
        #expect(MessageID(hex: id.description.dropLast()) == nil && MessageID(hex: id.description + "00") == nil)
        let client = ClientID.generate(&random)
        #expect(client.description.count == 36 && ClientID(hex: client.description) == client)
        #expect(Array(client.description)[14] == "4")
    }
}
