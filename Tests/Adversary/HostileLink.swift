import Cryptography
import Messaging
import Transport

/// A link without rules: handshake and framing are coded by hand from the specification, and the attacker chooses
/// everything after them.
package final class HostileLink {
    package let connection: RawConnection
    package let identity: IdentityKey
    private var transport: TransportState

    package static func preamble(_ token: [UInt8], kind: UInt8 = 0x4D) -> [UInt8] { [kind] + token }

    private static func prologue(_ token: RoutingToken) -> [UInt8] { Array("mayfly".utf8) + [1, 0x4D] + token.bytes }

    package struct Greeting: ~Copyable {
        package let bytes: [UInt8]
        var handshake: LinkHandshake
    }

    package static func greeting(_ token: RoutingToken, identity: IdentityKey, remote: PublicKey) throws -> Greeting {
        var handshake = try LinkHandshake.initiator(
            identity: identity.secret, remote: remote, ephemeral: SecretKey.generate(), prologue: prologue(token))
        let actOne = try handshake.write()
        return Greeting(bytes: preamble(token.bytes) + actOne, handshake: handshake)
    }

    package init(_ connection: RawConnection, token: RoutingToken, identity: IdentityKey, remote: PublicKey) throws {
        self.connection = connection
        self.identity = identity
        var dial = try Self.greeting(token, identity: identity, remote: remote)
        connection.write(dial.bytes)
        guard let actTwo = connection.read(Act.two.byteCount) else { throw Failure("no act 2: the dial was refused") }
        try dial.handshake.read(actTwo)
        connection.write(try dial.handshake.write())
        let handshake = dial.handshake
        transport = handshake.finish().takeTransport()
    }

    package func send(_ frame: Frame) throws { connection.write(try transport.seal(FrameCodec.encode(frame))) }

    package func send(bytes: [UInt8]) throws { connection.write(try transport.seal(bytes)) }

    package func seal(_ frame: Frame) throws -> [UInt8] { try transport.seal(FrameCodec.encode(frame)) }

    /// The next frame; `nil` when the link is closed or times out.
    package func receive(seconds: Double = 60) throws -> Frame? {
        while true {
            guard let bytes = connection.read(transport.expectedByteCount, seconds: seconds) else { return nil }
            if let frame = try transport.open(bytes) { return try FrameCodec.decode(frame) }
        }
    }
}

extension Target {
    /// A stranger's link by the card's `number`th token, from the `number`th address.
    func link(_ number: Int, _ identity: IdentityKey = makeIdentity()) throws -> HostileLink {
        try HostileLink(
            RawConnection(from: Source(number), to: address), token: SharedTokens.cached(self)[number],
            identity: identity, remote: card.key)
    }

    /// The same by an invite.
    func link(_ slug: String, _ invite: VerifiedInvite, _ number: Int, _ identity: IdentityKey) throws -> HostileLink {
        try HostileLink(
            RawConnection(from: Source(number), to: address), token: SharedTokens.cached(slug, invite, day)[number],
            identity: identity, remote: invite.creatorKey)
    }

    func member(from source: Source? = Source(9)) throws -> HostileMember {
        try HostileMember(slug: invite, at: address, day: day, from: source)
    }
}

package func makeIdentity() -> IdentityKey { IdentityKey(SecretKey.generate()) }

/// The tokens of a day for holders of a card or invite.
package struct SharedTokens: Sendable {
    package let tokens: [RoutingToken]

    package init(card: ContactCard, day: UInt32) { self.init(card.routingSecret, "card", day) }
    package init(invite: VerifiedInvite, day: UInt32) { self.init(invite.invite.id.bytes, "invite", day) }

    private init(_ secret: [UInt8], _ purpose: String, _ day: UInt32) {
        let secret = RoutingSecret.derive(shared: SecretBytes(copying: secret), purpose: purpose)
        tokens = (1...TokenLimits.shared).map { secret.token(day: day, counter: $0) }
    }

    package subscript(_ number: Int) -> RoutingToken { tokens[number % tokens.count] }
}

/// A member of a conversation with a real key.
package final class HostileMember {
    package let identity: IdentityKey
    package let link: HostileLink
    package let welcome: Welcome

    package var conversation: ConversationID { welcome.genesis.conversation }
    package var creator: PublicKey { welcome.genesis.creator }

    /// Joins with its current address. A dial or two may fail if the inbox sleeps and has been woken often by invites.
    package init(slug: String, at address: NodeAddress, day: UInt32, from source: Source? = nil) throws {
        let invite = try InviteSlug.decode(slug)
        identity = makeIdentity()
        let tokens = SharedTokens(invite: invite, day: day)
        var joined: (HostileLink, Welcome)?
        for _ in 0..<5 where joined == nil {
            let link = try HostileLink(
                RawConnection(from: source, to: address), token: tokens[Int.random(in: 0..<32)], identity: identity,
                remote: invite.creatorKey)
            joined = try Self.join(invite, over: link, identity: identity).map { (link, $0) }
        }
        guard let joined else { throw Failure("no welcome") }
        (link, welcome) = joined
        try link.send(.session(SessionStart(reset: false, inForce: nil, head: nil, renewable: nil)))
    }

    private static func join(_ invite: VerifiedInvite, over link: HostileLink, identity: IdentityKey) throws -> Welcome?
    {
        try link.send(.joinRequest(request(invite, identity: identity)))
        var welcome: Welcome?
        while let frame = try link.receive() {
            if case .welcome(let word) = frame { welcome = word }
            if case .session = frame { break }
        }
        return welcome
    }

    package static func request(_ invite: VerifiedInvite, identity: IdentityKey) -> JoinRequest {
        var random = SystemRandomness()
        let member = Member(profile: "x", endpoints: [], version: 1, key: identity, &random)
        return JoinRequest(invite: invite.signed, joinSecret: invite.invite.joinSecret, member: member)
    }

    /// The secret that it shares with the creator.
    var secret: RoutingSecret {
        RoutingSecret.derive(own: identity, remote: creator, conversation: conversation.bytes, role: .initiator)
    }

    package func dialAgain(at address: NodeAddress, counter: UInt32) throws -> HostileLink {
        let link = try HostileLink(
            RawConnection(from: Source(Int(counter)), to: address), token: secret.token(.first, counter: counter),
            identity: identity, remote: creator)
        try link.send(.session(SessionStart(reset: false, inForce: nil, head: nil, renewable: nil)))
        return link
    }

    package func text(_ text: String, id: MessageID? = nil) -> Content {
        var random = SystemRandomness()
        return Content(
            type: .text, id: id ?? .make(by: identity.publicKey, in: conversation, &random),
            sentAt: Timestamp(milliseconds: 0), lifetime: .ephemeral, agreement: nil, fallback: "", shouldPush: true,
            payload: Array(text.utf8))
    }

    /// Its own proposal; without a signature when many are made.
    package func proposal(epoch: UInt64 = 1, isSigned: Bool, at: Timestamp) -> LifetimeProposal {
        var random = SystemRandomness()
        var proposal = LifetimeProposal(
            conversation: conversation, membership: welcome.group.membership, epoch: epoch, previous: .none,
            terms: LifetimeTerms(.thirtyDays), proposedAt: at, nonce: random.bytes(16), proposer: identity.publicKey)
        if isSigned { return proposal.signed(by: identity, &random) }
        proposal.signature = welcome.group.signature
        return proposal
    }
}
