import Crypto
import TestSupport
import Testing

@testable import Transport

/// The routing secrets of the page SignedValues.
@Suite struct RoutingVectors {
    private let page: VectorPage

    init() throws { page = try VectorPage("SignedValues") }

    private func key(_ name: String) throws -> IdentityKey {
        IdentityKey(try SecretKey(SecretBytes(copying: try page["inputs"].bytes(name))))
    }

    private func bytes(_ secret: RoutingSecret) -> [UInt8] { secret.withBytes { Array($0) } }

    @Test func `both directions between two members, from either side`() throws {
        let vector = try page["routing secrets"]
        let (ann, bob) = (try key("ann"), try key("bob"))
        let conversation = try page["inputs"].bytes("conversation")
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

    @Test func `of an invite and of a card, and what knocks come from`() throws {
        let vector = try page["routing secrets"]
        let knock = try page["knock"]
        let id = SecretBytes(copying: try page["names"].bytes("invite id"))
        let invite = RoutingSecret.derive(shared: id, purpose: "invite")
        #expect(bytes(invite) == (try vector.bytes("invite")))
        let card = SecretBytes(copying: try page["contact card"].bytes("routing secret"))
        #expect(bytes(RoutingSecret.derive(shared: card, purpose: "card")) == (try vector.bytes("card")))
        #expect(invite.knock.bytes == (try knock.bytes("knock secret of the invite")))
        #expect(invite.knock.sealingKey.withBytes { Array($0) } == (try knock.bytes("sealing key")))
    }
}
