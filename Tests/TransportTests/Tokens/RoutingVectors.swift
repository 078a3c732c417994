import Cryptography
import TestSupport
import Testing

@testable import Transport

/// Compares the routing secrets of the page SignedValues, and the tokens and the link of the page Links, with the code.
@Suite struct RoutingVectors {
    private let examples: VectorFile

    init() throws { examples = try VectorFile("SignedValues") }

    private func key(_ name: String) throws -> IdentityKey {
        IdentityKey(try SecretKey(SecretBytes(copying: try examples["inputs"].bytes(name))))
    }

    private func bytes(_ secret: RoutingSecret) -> [UInt8] { secret.withBytes { Array($0) } }

    @Test func `the routing secrets of two members match the page's examples`() throws {
        let vector = try examples["routing secrets"]
        let (ann, bob) = (try key("ann"), try key("bob"))
        let conversation = try examples["inputs"].bytes("conversation")
        #expect(ann.secret.sharedSecret(with: bob.publicKey).withBytes { Array($0) } == (try vector.bytes("ecdh")))
        func derive(_ own: IdentityKey, _ remote: PublicKey, _ role: Role) -> [UInt8] {
            bytes(RoutingSecret.derive(own: own, remote: remote, conversation: conversation, role: role))
        }
        let annDials = try vector.bytes("ann dials bob")
        #expect(derive(ann, bob.publicKey, .initiator) == annDials)
        #expect(derive(bob, ann.publicKey, .responder) == annDials)
        let bobDials = try vector.bytes("bob dials ann")
        #expect(derive(bob, ann.publicKey, .initiator) == bobDials)
        #expect(derive(ann, bob.publicKey, .responder) == bobDials)
    }

    @Test func `the secrets of an invite and of a card match the page's examples`() throws {
        let vector = try examples["routing secrets"]
        let knock = try examples["knock"]
        let id = SecretBytes(copying: try examples["names"].bytes("invite id"))
        let invite = RoutingSecret.derive(shared: id, purpose: "invite")
        #expect(bytes(invite) == (try vector.bytes("invite")))
        let card = SecretBytes(copying: try examples["contact card"].bytes("routing secret"))
        #expect(bytes(RoutingSecret.derive(shared: card, purpose: "card")) == (try vector.bytes("card")))
        #expect(invite.knock.bytes == (try knock.bytes("knock secret of the invite")))
        #expect(invite.knock.sealingKey.withBytes { Array($0) } == (try knock.bytes("sealing key")))
    }

    @Test func `every kind of token matches the page's examples`() throws {
        let vector = try VectorFile("Links")["routing tokens"]
        let secrets = try examples["routing secrets"]
        func number(_ field: String) throws -> UInt32 { UInt32(try vector.number(field)) }
        func expect(_ token: RoutingToken, _ field: String) throws { #expect(token.bytes == (try vector.bytes(field))) }
        let member = RoutingSecret(SecretBytes(copying: try secrets.bytes("ann dials bob")))
        let invite = RoutingSecret(SecretBytes(copying: try secrets.bytes("invite")))
        let (day, counter) = (try number("day"), try number("counter"))
        let generation = TokenGeneration(
            day: try number("generation's day"), counter: try number("generation's counter"))
        try expect(member.token(generation, counter: counter), "counter of a member")
        try expect(member.token(day: day, counter: counter), "day of a member")
        try expect(invite.token(day: day, counter: counter), "day of an invite")
        try expect(invite.token(counter: counter), "any day of an invite")
        try expect(invite.knock.token(day: day), "knock of a day")
        try expect(invite.knock.token, "knock of any day")
    }

    @Test func `a TCP link matches the page's example up to each side's first frame`() throws {
        let vector = try VectorFile("Links")["link"]
        let token = try #require(RoutingToken(try examples["inputs"].bytes("token")))
        let prologue = Preamble.prologue(token)
        #expect(prologue == (try vector.bytes("prologue")))
        #expect(Preamble(kind: .link, token: token).bytes == (try vector.bytes("preamble")))
        func ephemeral(_ field: String) throws -> SecretKey {
            try SecretKey(SecretBytes(copying: try vector.bytes(field)))
        }
        let (ann, bob) = (try key("ann"), try key("bob"))
        var dialer = try LinkHandshake.initiator(
            identity: ann.secret, remote: bob.publicKey, ephemeral: try ephemeral("dialer's ephemeral"),
            prologue: prologue, encapsulation: try KeyEncapsulationSource(vector))
        var listener = LinkHandshake.responder(
            identity: bob.secret, ephemeral: try ephemeral("listener's ephemeral"), prologue: prologue,
            encapsulation: try KeyEncapsulationSource(vector))
        let one = try dialer.write()
        try listener.read(one)
        let two = try listener.write()
        try dialer.read(two)
        let three = try dialer.write()
        try listener.read(three)
        #expect(one == (try vector.bytes("act 1")))
        #expect(two == (try vector.bytes("act 2")))
        #expect(three == (try vector.bytes("act 3")))
        let near = dialer.finish()
        #expect(near.peer.handshakeHash == (try vector.bytes("handshake hash")))
        let root = near.secrets.rootKey.withBytes { Array($0) }
        #expect(root == (try vector.bytes("root key")))
        let frame = try vector.bytes("frame")
        var out = near.takeTransport()
        let first = try out.seal(frame)
        #expect(first == (try vector.bytes("first from the dialer")))
        var back = listener.finish().takeTransport()
        let answer = try back.seal(frame)
        #expect(answer == (try vector.bytes("first from the listener")))
    }
}

extension KeyEncapsulationSource {
    /// The dialer's seed, and what the listener has made for its key.
    init(_ vector: Vector) throws {
        let seed = try vector.bytes("dialer's seed")
        let (ciphertext, secret) = (try vector.bytes("ciphertext"), try vector.bytes("secret"))
        self.init()
        makeSecret = { KeyEncapsulationSecret(seed: SecretBytes(copying: seed)) }
        encapsulate = { _ throws(KeyEncapsulationError) in
            KeyEncapsulation(ciphertext: ciphertext, secret: SecretBytes(copying: secret))
        }
    }
}
