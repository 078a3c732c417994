import Crypto
import Foundation
import Messaging
import Testing

/// The JSON in state logs, as the page Frames describes it.
@Suite struct StoredRecordTests {
    @Test func `a record is written by the conventions of the page`() throws {
        var values = try SpecifiedValues()
        var conversation = ConversationRecord(
            genesis: values.genesis(), group: try values.group(), own: try values.annMember(),
            members: [try values.bobMember()], issuer: nil)
        conversation.told = [values.bob.publicKey: 5]
        let client = try #require(ClientID(hex: "00112233-4455-4677-8899-aabbccddeeff"))
        let record = InboxRecord(client: client, createdAt: values.time, role: .conversation(conversation))
        let bytes = StoredCodec.encode(record: record)
        #expect(try StoredCodec.decode(InboxRecord.self, bytes) == record)

        let json = try #require(try JSONSerialization.jsonObject(with: Data(bytes)) as? [String: Any])
        #expect(json["client"] as? String == "00112233445546778899aabbccddeeff")
        #expect(json["createdAt"] as? Int64 == values.time.milliseconds)
        let role = try #require(json["role"] as? [String: Any])
        #expect(Array(role.keys) == ["conversation"])
        let inside = try #require((role["conversation"] as? [String: Any])?["_0"] as? [String: Any])
        #expect(inside["sendsReadReceipts"] == nil && inside["schedule"] == nil && inside["issuer"] == nil)
        let genesis = try #require(inside["genesis"] as? [String: Any])
        #expect(genesis["conversation"] as? String == values.conversation.description)
        #expect(genesis["creator"] as? String == Hex.encode(values.ann.publicKey.bytes))
        #expect(genesis["signature"] as? String == Hex.encode(values.genesis().signature.bytes))
        let told = try #require(inside["told"] as? [Any])
        #expect(told.count == 2 && told[0] as? String == Hex.encode(values.bob.publicKey.bytes) && told[1] as? Int == 5)

        // Byte strings that are neither identifier nor key, and an enum without a payload.
        let contact = InboxRecord(
            client: client, createdAt: values.time, role: .contact(ContactRecord(routingSecret: [1, 2, 255])))
        let text = String(decoding: StoredCodec.encode(record: contact), as: UTF8.self)
        #expect(text.contains(#""routingSecret":[1,2,255]"#))
        let terms = String(decoding: StoredCodec.encode(record: LifetimeTerms(.oneDay)), as: UTF8.self)
        #expect(terms.contains(#""timer":"send""#) && !terms.contains("unopened"))
        let unused = InboxRecord(client: client, createdAt: values.time, role: .unused)
        #expect(String(decoding: StoredCodec.encode(record: unused), as: UTF8.self).contains(#""role":{"unused":{}}"#))
    }
}
