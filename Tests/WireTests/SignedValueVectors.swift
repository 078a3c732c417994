import Cryptography
import FuzzTargets
import Messaging
import TestSupport
import Testing

/// The examples of the page SignedValues, from `Tests/Vectors/vectors.py`.
@Suite struct SignedValueVectors {
    /// Digest and signature of a vector, after a check that its transcript has this digest.
    private func signed(_ name: String, _ tag: String, _ values: SpecifiedValues) throws -> [[UInt8]] {
        let vector = try values.examples[name]
        #expect(SHA256.tagged(tag, try vector.bytes("transcript")) == (try vector.bytes("digest")))
        return [try vector.bytes("digest"), try vector.bytes("signature")]
    }

    @Test func `names match the page's examples`() throws {
        let values = try SpecifiedValues()
        let names = try values.examples["names"]
        #expect(InboxID(values.ann.publicKey).bytes == (try names.bytes("ann's inbox id")))
        #expect(try values.message().bytes == names.bytes("message id"))
        #expect(try values.message().belongs(to: values.ann.publicKey, in: values.conversation))
        #expect(try values.invite().id.bytes == names.bytes("invite id"))
        let inputs = try values.examples["inputs"]
        #expect(values.ann.publicKey.bytes == (try inputs.bytes("ann's key")))
        #expect(values.bob.publicKey.bytes == (try inputs.bytes("bob's key")))
    }

    @Test func `a genesis matches the page's example`() throws {
        var values = try SpecifiedValues()
        let genesis = values.genesis()
        #expect(try [genesis.digest, genesis.signature.bytes] == signed("genesis", "mayfly/genesis", values))
        #expect(genesis.isSignatureValid)
    }

    @Test(arguments: ["member", "member without name and endpoints"])
    func `descriptions of members match the page's examples`(_ name: String) throws {
        var values = try SpecifiedValues()
        let member = name == "member" ? try values.annMember() : try values.bobMember()
        #expect(try member.signature.bytes == signed(name, "mayfly/profile", values)[1] && member.isValid)
    }

    @Test func `group state and departure match the page's examples`() throws {
        var values = try SpecifiedValues()
        let group = try values.group()
        #expect(try group.signature.bytes == signed("group state", "mayfly/group_updated", values)[1])
        #expect(group.isValid(for: values.genesis()))
        let record = ConversationRecord(
            genesis: values.genesis(), group: group, own: try values.annMember(), members: [try values.bobMember()],
            issuer: nil)
        let client = try #require(ClientID([UInt8](repeating: 1, count: 16)))
        let machine = Conversation(client: client, key: values.ann, record: record, isFresh: true, now: values.time)
        let known = try values.examples["group digest"]
        #expect(SHA256.tagged("mayfly/group_digest", try known.bytes("transcript")) == (try known.bytes("digest")))
        #expect(machine.groupDigest == (try known.bytes("group_digest")))
        let departure = values.departure()
        #expect(try departure.signature.bytes == signed("departure", "mayfly/member_left", values)[1])
        #expect(departure.isValid(for: values.conversation, by: values.bob.publicKey))
    }

    @Test(arguments: ["proposal with a lifetime alone", "proposal with all terms", "proposal with a mailbox"])
    func `proposals, their ids and their JSON match the page's examples`(_ name: String) throws {
        var values = try SpecifiedValues()
        let proposal = try values.proposal(name)
        let vector = try values.examples[name]
        #expect(try [proposal.id.bytes, proposal.signature.bytes] == signed(name, "mayfly/lifetime_proposal", values))
        #expect(AgreementID(proposal.id).bytes == (try vector.bytes("agreement")))
        let json = try vector.text("json")
        #expect(String(decoding: SeedJSON.encode(proposal), as: UTF8.self) == json)
        #expect(try SeedJSON.decodeLifetimeMessage(Array(json.utf8)) == .proposal(proposal))
        #expect(proposal.isSignatureValid)
    }

    @Test func `an accept and its agreement match the page's examples`() throws {
        var values = try SpecifiedValues()
        let accept = try values.accept()
        #expect(try accept.signature.bytes == signed("accept", "mayfly/lifetime_accept", values)[1])
        let json = try values.examples["accept"].text("json")
        #expect(String(decoding: SeedJSON.encode(accept), as: UTF8.self) == json)
        #expect(try SeedJSON.decodeLifetimeMessage(Array(json.utf8)) == .accept(accept))
        #expect(try values.agreement().isValid(conversation: values.conversation))
    }

    @Test(arguments: ["notice, immediate", "notice, scheduled"]) func `notices match the page's examples`(
        _ name: String
    ) throws {
        var values = try SpecifiedValues()
        let notice = values.notice(isImmediate: name == "notice, immediate")
        #expect(try notice.signature.bytes == signed(name, "mayfly/explode_notice", values)[1])
        let sealed = try values.examples[name].bytes("sealed")
        #expect(try values.sealedNotice(name) == sealed)
        let opened = try #require(ExplodeNotice(opening: sealed, conversation: values.conversation))
        #expect(opened == notice && opened.isValid(for: values.genesis()))
    }

    @Test func `a deletion receipt matches the page's example`() throws {
        var values = try SpecifiedValues()
        let receipt = try values.receipt()
        let vector = try values.examples["deletion receipt"]
        #expect(try receipt.signature.bytes == signed("deletion receipt", "mayfly/deletion_receipt", values)[1])
        var random = ReplayedRandomness(try vector.bytes("nonce"))
        #expect(receipt.sealed(&random) == (try vector.bytes("sealed")))
        let opened = DeletionReceipt(opening: try vector.bytes("sealed"), conversation: values.conversation)
        #expect(opened == receipt && receipt.isSignatureValid)
    }

    @Test func `a knock's question and statement match the page's examples`() throws {
        var values = try SpecifiedValues()
        let knock = try values.examples["knock"]
        let key = SecretBytes(copying: try knock.bytes("sealing key"))
        var random = ReplayedRandomness(try knock.bytes("nonce"))
        #expect(KnockQuestion.seal(key: key, token: values.token, &random) == (try knock.bytes("question")))
        #expect(KnockQuestion.isAuthentic(try knock.bytes("question"), key: key, token: values.token))

        let vector = try values.examples["statement"]
        let statement = try values.statement()
        #expect(try statement.signature.bytes == signed("statement", "mayfly/join_error", values)[1])
        random = ReplayedRandomness(try vector.bytes("nonce"))
        #expect(statement.sealed(key: key, token: values.token, &random) == (try vector.bytes("sealed")))
        let opened = ExpiredStatement(opening: try vector.bytes("sealed"), key: key, token: values.token)
        #expect(opened == statement && statement.isValid(creator: values.ann.publicKey))
    }

    @Test func `a conversation token and an invite match the page's examples`() throws {
        let values = try SpecifiedValues()
        let token = try values.examples["conversation token"].bytes("conversation token")
        #expect(try values.invite().conversationToken == token)
        #expect(ConversationToken.open(token, key: values.ann.secret) == values.conversation)
        let vector = try values.examples["invite"]
        let invite = try values.signedInvite()
        #expect(invite.payload == (try vector.bytes("payload")))
        #expect(invite.signature.bytes == (try vector.bytes("signature")))
        #expect(InviteSlug.encode(invite) == (try vector.text("slug")))
        for field in ["slug", "deflated"] {
            let read = try InviteSlug.decode(vector.text(field))
            #expect(try read.signed == invite && read.invite == values.invite())
            #expect(read.creatorKey == values.ann.publicKey)
        }
    }

    @Test func `a contact card matches the page's example`() throws {
        let values = try SpecifiedValues()
        let vector = try values.examples["contact card"]
        let card = ContactCard(
            key: values.ann.publicKey, routingSecret: try vector.bytes("routing secret"),
            endpoints: vector.texts("endpoint").compactMap { Endpoint($0) })
        #expect(card.description == (try vector.text("card")))
        #expect(try ContactCard(text: vector.text("card")) == card)
    }
}
