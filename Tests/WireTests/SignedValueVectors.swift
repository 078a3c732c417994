import Cryptography
import FuzzTargets
import Messaging
import TestSupport
import Testing

/// The examples of the page SignedValues, from `Tests/Vectors/vectors.py`.
@Suite struct SignedValueVectors {
    private func expect(_ signature: SchnorrSignature, of name: String, _ tag: String, _ values: SpecifiedValues) throws
    {
        let vector = try values.examples[name]
        #expect(SHA256.tagged(tag, try vector.bytes("transcript")) == (try vector.bytes("digest")), "\(name)")
        #expect(signature.bytes == (try vector.bytes("signature")), "\(name)")
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

    @Test func `signed values match the page's examples`() throws {
        var values = try SpecifiedValues()
        let (genesis, group, departure) = (values.genesis(), try values.group(), values.departure())
        let (ann, bob) = (try values.annMember(), try values.bobMember())
        let (accept, receipt, statement) = (try values.accept(), try values.receipt(), try values.statement())
        let (now, later) = (values.notice(isImmediate: true), values.notice(isImmediate: false))
        let signed: [(name: String, tag: String, signature: SchnorrSignature)] = [
            ("genesis", "genesis", genesis.signature), ("member", "profile", ann.signature),
            ("member without name and endpoints", "profile", bob.signature),
            ("group state", "group_updated", group.signature), ("departure", "member_left", departure.signature),
            ("accept", "lifetime_accept", accept.signature), ("notice, immediate", "explode_notice", now.signature),
            ("notice, scheduled", "explode_notice", later.signature),
            ("deletion receipt", "deletion_receipt", receipt.signature),
            ("statement", "join_error", statement.signature),
        ]
        for (name, tag, signature) in signed { try expect(signature, of: name, "mayfly/" + tag, values) }
        #expect(genesis.digest == (try values.examples["genesis"].bytes("digest")) && genesis.isSignatureValid)
        #expect(ann.isValid && bob.isValid && group.isValid(for: genesis) && receipt.isSignatureValid)
        #expect(departure.isValid(for: values.conversation, by: values.bob.publicKey))
        #expect(statement.isValid(creator: values.ann.publicKey))

        let record = ConversationRecord(genesis: genesis, group: group, own: ann, members: [bob], issuer: nil)
        let client = try #require(ClientID([UInt8](repeating: 1, count: 16)))
        let machine = Conversation(client: client, key: values.ann, record: record, isFresh: true, now: values.time)
        let known = try values.examples["group digest"]
        #expect(SHA256.tagged("mayfly/group_digest", try known.bytes("transcript")) == (try known.bytes("digest")))
        #expect(machine.groupDigest == (try known.bytes("group_digest")))
    }

    @Test(arguments: ["proposal with a lifetime alone", "proposal with all terms", "proposal with a mailbox"])
    func `proposals, their ids and their JSON match the page's examples`(_ name: String) throws {
        var values = try SpecifiedValues()
        let proposal = try values.proposal(name)
        let vector = try values.examples[name]
        try expect(proposal.signature, of: name, "mayfly/lifetime_proposal", values)
        #expect(proposal.id.bytes == (try vector.bytes("digest")))
        #expect(AgreementID(proposal.id).bytes == (try vector.bytes("agreement")))
        let json = try vector.text("json")
        #expect(String(decoding: SeedJSON.encode(proposal), as: UTF8.self) == json)
        #expect(try SeedJSON.decodeLifetimeMessage(Array(json.utf8)) == .proposal(proposal))
        #expect(proposal.isSignatureValid)
    }

    @Test func `an accept and its agreement match the page's examples`() throws {
        var values = try SpecifiedValues()
        let accept = try values.accept()
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
        let sealed = try values.examples[name].bytes("sealed")
        #expect(try values.sealedNotice(name) == sealed)
        let opened = try #require(ExplodeNotice(opening: sealed, conversation: values.conversation))
        #expect(opened == notice && opened.isValid(for: values.genesis()))
    }

    @Test func `a deletion receipt matches the page's example`() throws {
        var values = try SpecifiedValues()
        let receipt = try values.receipt()
        let vector = try values.examples["deletion receipt"]
        var random = ReplayedRandomness(try vector.bytes("nonce"))
        #expect(receipt.sealed(&random) == (try vector.bytes("sealed")))
        let opened = DeletionReceipt(opening: try vector.bytes("sealed"), conversation: values.conversation)
        #expect(opened == receipt)
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
        random = ReplayedRandomness(try vector.bytes("nonce"))
        #expect(statement.sealed(key: key, token: values.token, &random) == (try vector.bytes("sealed")))
        let opened = ExpiredStatement(opening: try vector.bytes("sealed"), key: key, token: values.token)
        #expect(opened == statement)
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
