import Cryptography
import Messaging
import TestSupport

/// The values of the page SignedValues, made by the program from the page's inputs.
package struct SpecifiedValues {
    package let examples: VectorFile
    package let ann: IdentityKey
    package let bob: IdentityKey
    package let conversation: ConversationID
    package let time: Timestamp
    package let token: [UInt8]
    package let joinSecret: [UInt8]
    package let tag: InviteTag

    /// The signatures' nonces are hardened with 32 zero bytes.
    package var zeros = ReplayedRandomness()

    package init() throws {
        examples = try VectorFile("SignedValues")
        let inputs = try examples["inputs"]
        ann = IdentityKey(try SecretKey(SecretBytes(copying: try inputs.bytes("ann"))))
        bob = IdentityKey(try SecretKey(SecretBytes(copying: try inputs.bytes("bob"))))
        conversation = try Self.known(ConversationID(try inputs.bytes("conversation")))
        time = Timestamp(milliseconds: try inputs.number("time"))
        token = try inputs.bytes("token")
        joinSecret = try inputs.bytes("join secret")
        tag = try Self.known(InviteTag(try inputs.text("tag")))
    }

    package static func known<Value>(_ value: Value?) throws -> Value {
        guard let value else { throw Vector.Failure(description: "a value of the page does not read") }
        return value
    }

    package func message() throws -> MessageID {
        var random = ReplayedRandomness(try examples["names"].bytes("nonce"))
        return MessageID.make(by: ann.publicKey, in: conversation, &random)
    }

    package mutating func genesis() -> Genesis {
        Genesis(conversation: conversation, createdAt: time, key: ann, &zeros)
    }

    package mutating func member(_ name: String, _ key: IdentityKey) throws -> Member {
        let vector = try examples[name]
        return Member(
            profile: try Self.optional(vector.text("name")),
            endpoints: try vector.texts("endpoint").map { try Self.known(Endpoint($0)) },
            version: UInt64(try vector.number("version")), key: key, &zeros)
    }

    package mutating func annMember() throws -> Member { try member("member", ann) }
    package mutating func bobMember() throws -> Member { try member("member without name and endpoints", bob) }

    package mutating func group() throws -> GroupState {
        let vector = try examples["group state"]
        return GroupState(
            conversation: conversation, version: UInt64(try vector.number("version")),
            membership: UInt64(try vector.number("membership")), name: try Self.optional(vector.text("name")),
            isLocked: try vector.number("locked") == 1, members: [ann.publicKey, bob.publicKey]
        ).signed(by: ann, &zeros)
    }

    package mutating func departure() -> Departure {
        Departure(of: bob.publicKey, conversation: conversation, key: bob, &zeros)
    }

    package mutating func proposal(_ name: String) throws -> LifetimeProposal {
        let vector = try examples[name]
        let unopened = try vector.number("unopened")
        return LifetimeProposal(
            conversation: conversation, membership: 2, epoch: UInt64(try vector.number("epoch")),
            previous: try Self.known(AgreementID(try vector.bytes("previous"))),
            terms: LifetimeTerms(
                try Self.known(Lifetime(rawValue: try vector.text("lifetime"))),
                attachment: Lifetime(rawValue: try vector.text("attachment")), unopened: unopened == 0 ? nil : unopened,
                timer: try Self.known(LifetimeTerms.Timer(rawValue: try vector.text("timer"))),
                // Only one vector names it.
                mailbox: (try? vector.text("mailbox")).flatMap(MailboxConsent.init(rawValue:)) ?? .no),
            proposedAt: time, nonce: try vector.bytes("nonce"), proposer: ann.publicKey
        ).signed(by: ann, &zeros)
    }

    package mutating func plainProposal() throws -> LifetimeProposal { try proposal("proposal with a lifetime alone") }
    package mutating func fullProposal() throws -> LifetimeProposal { try proposal("proposal with all terms") }

    package mutating func accept() throws -> LifetimeAccept {
        let at = Timestamp(milliseconds: try examples["accept"].number("acceptedAt"))
        return LifetimeAccept(try plainProposal(), at: at, by: bob, &zeros)
    }

    package mutating func agreement() throws -> Agreement {
        Agreement(proposal: try plainProposal(), accepts: [try accept()])
    }

    package mutating func notice(isImmediate: Bool) -> ExplodeNotice {
        ExplodeNotice(genesis: genesis(), expiresAt: time, isImmediate: isImmediate, key: ann, &zeros)
    }

    package mutating func sealedNotice(_ name: String) throws -> [UInt8] {
        var random = ReplayedRandomness(try examples[name].bytes("nonce"))
        return notice(isImmediate: name == "notice, immediate").sealed(&random)
    }

    package mutating func receipt() throws -> DeletionReceipt {
        let at = Timestamp(milliseconds: try examples["deletion receipt"].number("destroyedAt"))
        return DeletionReceipt(conversation: conversation, destroyedAt: at, key: bob, &zeros)
    }

    package mutating func statement() throws -> ExpiredStatement {
        let at = Timestamp(milliseconds: try examples["statement"].number("statedAt"))
        return ExpiredStatement(tag: tag, timestamp: at, key: ann, &zeros)
    }

    package func invite() throws -> Invite {
        Invite(
            tag: tag,
            conversationToken: ConversationToken.seal(
                conversation, key: ann.secret, nonce: try examples["conversation token"].bytes("nonce")),
            creator: InboxID(ann.publicKey), joinSecret: joinSecret,
            endpoints: try examples["member"].texts("endpoint").map { try Self.known(Endpoint($0)) },
            name: try examples["group state"].text("name"), description: nil, lifetime: .oneDay,
            conversationExpiresAt: nil, expiresAt: time + .day, singleUse: true)
    }

    package func signedInvite() throws -> SignedInvite {
        SignedInvite(payload: InviteSlug.encodePayload(try invite()), signedBy: ann.secret)
    }

    private static func optional(_ text: String) throws -> String? { text.isEmpty ? nil : text }
}
