import Crypto
import TestSupport
import Testing

@testable import Messaging

/// The example of a spoken code, from `Tests/Vectors/vectors.py`.
@Suite("The example of a spoken code") struct CodeVectors {
    private let vector: Vector

    init() throws { vector = try VectorFile("SpokenCodes")["exchange of a code"] }

    @Test("both machines send the messages of the page") func exchange() throws {
        let attempt = CodeAttempt(1)
        let code = try SpokenCode(try vector.text("code"))
        // Consumes the example's nonce and ya, then its yb.
        var random = Randomness.seeded(7)
        let started = CodeJoinerStateMachine(code, &random)
        var joiner = try #require(started)
        var creator = CodeIssuerStateMachine(code)
        let first = Array("c".utf8) + joiner.greeting.bytes + joiner.share
        #expect(first == (try vector.bytes("message 1")))

        let second = try vector.bytes("message 2")
        let answered = creator.receive(share: joiner.share, joiner.greeting, from: attempt, &random)
        #expect(answered == [.answer(attempt, second)])

        let third = try vector.bytes("message 3")
        let proving = try joiner.receive(second)
        #expect(proving == .send(third))

        let proven = creator.receive(proof: third, from: attempt)
        #expect(proven == [.makeInvite])
        let text = Array(try vector.text("invite").utf8)
        let actions = creator.made(invite: text)
        guard case .deliver(attempt, let fourth)? = actions.first else {
            Issue.record("the invite is not delivered")
            return
        }
        #expect(Array(fourth.prefix(128)) == (try vector.bytes("message 4, first 128 bytes")))
        #expect(Array(fourth.suffix(16)) == (try vector.bytes("message 4, last 16 bytes")))
        #expect(SHA256.hash(fourth) == (try vector.bytes("message 4, SHA-256")))

        let received = try joiner.receive(fourth)
        #expect(received == .invite(text))
    }

    @Test("generator, shared element and keys") func keys() throws {
        let code = try SpokenCode(try vector.text("code"))
        let greeting = try #require(CodeExchange.Greeting(try vector.bytes("sid")))
        let context = CodeExchange.context(greeting)
        let password = code.password
        let generator = CPace.generator(password: password, context).withBytes { Array($0) }
        #expect(generator == (try vector.bytes("generator")))

        let scalar = SecretBytes(copying: try vector.bytes("ya"))
        let answer = SecretBytes(copying: try vector.bytes("message 2"))
        let product = answer.withBytes { CPace.multiply(scalar, $0) }
        guard let product else {
            Issue.record("message 2 is no element of the group")
            return
        }
        let shared = product.withBytes { Array($0) }
        #expect(shared == (try vector.bytes("K")))

        let own = SecretBytes(copying: try vector.bytes("yb"))
        let made = CPaceShare(.responder, password: password, context, scalar: own)
        let share = try #require(made)
        let message = try vector.bytes("message 1")
        let key = try #require(share.key(with: Array(message.suffix(CodeExchange.shareByteCount))))
        let isk = key.withBytes { Array($0) }
        #expect(isk == (try vector.bytes("ISK")))
        let sealing = key.derive("mayfly/1 code invite").withBytes { Array($0) }
        #expect(sealing == (try vector.bytes("key of the seal")))
    }
}
