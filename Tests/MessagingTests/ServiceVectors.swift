import Cryptography
import TestSupport
import Testing

@testable import Messaging

/// The examples of the pages Relay and Mailbox, from `Tests/Vectors/vectors.py`.
@Suite("Examples of the pages Relay and Mailbox") struct ServiceVectors {
    private func key(_ bytes: [UInt8]) throws -> IdentityKey { IdentityKey(try SecretKey(SecretBytes(copying: bytes))) }

    @Test func `a reservation at a rendezvous node`() throws {
        let vector = try VectorFile("Relay")["reservation"]
        let server = try key(try vector.bytes("contact inbox of R"))
        let user = try key(try vector.bytes("contact inbox of A"))
        let seed = RelaySeed(
            key: try key(try vector.bytes("inbox")), generation: UInt64(try vector.number("generation")))
        #expect(seed.bytes == (try vector.bytes("seed")))
        #expect(RelaySeed(card: user).bytes == (try vector.bytes("seed of the card")))
        let label = seed.label(at: server.publicKey)
        #expect(label.bytes == (try vector.bytes("label")))
        for own in [server, user] {
            let secret = RelaySecret(rendezvous: server.publicKey, user: user.publicKey, own: own)
            #expect(secret.reservation(label).bytes == (try vector.bytes("reservation")))
        }
        let endpoint = try #require(Endpoint(try vector.text("endpoint")))
        #expect(endpoint.relay?.key == server.publicKey)
        #expect(endpoint.relay?.reservation.bytes == (try vector.bytes("reservation")))
        #expect(endpoint.relay?.routingSecret == (try vector.bytes("routing secret of R")))
    }

    @Test func `a box: its label, its name, the proof of a claim, its address`() throws {
        let vector = try VectorFile("Mailbox")["box"]
        let server = try key(try vector.bytes("contact inbox of M"))
        let user = try key(try vector.bytes("contact inbox of O"))
        let seed = try #require(RelaySeed(try vector.bytes("seed")))
        let label = seed.boxLabel(at: server.publicKey)
        #expect(label.bytes == (try vector.bytes("label")))
        let link = try PublicKey(try vector.bytes("key of the link"))
        for own in [server, user] {
            let secret = MailboxSecret(mailbox: server.publicKey, owner: user.publicKey, own: own)
            #expect(secret.box(label).bytes == (try vector.bytes("box")))
            #expect(secret.proof(of: link) == (try vector.bytes("proof")))
        }
        let address = try #require(MailboxAddress(try vector.text("address")))
        #expect(address.key == server.publicKey)
        #expect(address.box.bytes == (try vector.bytes("box")))
        #expect(address.text == (try vector.text("address")))
    }

    private func secret(_ vector: Vector) throws -> SlotSecret {
        let (sender, owner) = (try key(try vector.bytes("P")), try key(try vector.bytes("O")))
        return SlotSecret(
            sender: sender.publicKey, owner: owner.publicKey, box: try bobsBox(), conversation: try conversation(),
            own: sender)
    }

    private func bobsBox() throws -> BoxID { try #require(BoxID(try VectorFile("Mailbox")["box"].bytes("box"))) }

    private func conversation() throws -> ConversationID {
        try #require(ConversationID(try VectorFile("SignedValues")["inputs"].bytes("conversation")))
    }

    @Test func `a slot: its tag, its name, its body`() throws {
        let vector = try VectorFile("Mailbox")["slot"]
        let secret = try secret(vector)
        let number = UInt64(try vector.number("n"))
        #expect(secret.tag(number).bytes == (try vector.bytes("tag")))
        let id = try #require(SlotID(try vector.bytes("id")))
        #expect(SlotID(secret.tag(number)) == id && secret.number(of: id) == number)
        let slice = try key(try vector.bytes("key of the slice"))
        let agreement = try #require(AgreementID(try vector.bytes("agreement")))
        let body = SlotSealing.seal(
            [try vector.bytes("frame")], to: slice.publicKey,
            SlotSealing.Hint(agreement: agreement, slice: UInt32(try vector.number("slice"))), number: number, secret,
            box: try bobsBox(), ephemeral: try SecretKey(SecretBytes(copying: try vector.bytes("ephemeral"))),
            nonce: try vector.bytes("nonce"))
        #expect(body == (try vector.bytes("body")))
    }

    @Test func `the reserved slot of a notice, and its answer`() throws {
        let examples = try VectorFile("Mailbox")
        let vector = try examples["slot of a notice"]
        let secret = try secret(try examples["slot"])
        #expect(secret.noticeTag.bytes == (try vector.bytes("tag")))
        #expect(SlotID(secret.noticeTag).bytes == (try vector.bytes("id")))
        #expect(secret.noticeKey().withBytes { Array($0) } == (try vector.bytes("key")))
        let values = try VectorFile("SignedValues")
        let nonce = try vector.bytes("nonce")
        let sealed = try values["notice, immediate"].bytes("sealed")
        let body = SlotSealing.seal(notice: sealed, secret, box: try bobsBox(), nonce: nonce)
        #expect(body == (try vector.bytes("body")))
        let receipt = try values["deletion receipt"].bytes("sealed")
        let answer = SlotSealing.seal(answer: receipt, secret, box: try bobsBox(), nonce: nonce)
        #expect(answer == (try vector.bytes("answer")))
    }
}
