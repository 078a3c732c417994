import Cryptography
import Messaging
import Testing

@testable import NodeRuntime

/// Local notes of a node: aliases, and the peer as which a member was invited.
@Suite("Inbox notes") struct InboxNotesTests {
    private let clients: [ClientID]

    init() {
        var random = Randomness.seeded(7)
        clients = (0..<3).map { _ in ClientID.generate(&random) }
    }

    @Test func `An alias has one holder, in any spelling; a second holder is left out, and a removed alias is free`() {
        var table = AliasTable()
        #expect(table.replace(nil, by: "Night shift", of: clients[0]) == "Night shift")
        for text in ["Night shift", "night shift", "NIGHTSHIFT", "night\u{200b}shift"] {
            #expect(table.holder(of: text) == clients[0], "\(text)")
        }
        #expect(table.replace(nil, by: "nightshift", of: clients[1]) == nil)
        #expect(table.holder(of: "nightshift") == clients[0])
        // The same inbox may change the spelling of its alias, and exchange it.
        #expect(table.replace("Night shift", by: "nightshift", of: clients[0]) == "nightshift")
        #expect(table.replace("nightshift", by: "day", of: clients[0]) == "day")
        #expect(table.holder(of: "nightshift") == nil && table.holder(of: "day") == clients[0])
        #expect(table.replace(nil, by: "nightshift", of: clients[1]) == "nightshift")
        #expect(table.replace("nightshift", by: nil, of: clients[1]) == nil)
        #expect(table.holder(of: "nightshift") == nil)
    }

    @Test(
        "Valid aliases, and the names that become an alias automatically",
        arguments: [
            ("ops", true, true), ("night shift", true, true), ("日本", true, true), ("👩‍💻", true, true),
            ("4f1c", true, false), ("cafe", true, false), ("4f1c0-9a", true, false), ("4f1c09ab", false, false),
            ("4F1C09AB", false, false), ("4f1c09ab-3d2e", false, false), ("4f1c09ag", true, true), ("", false, false),
            (" ops", false, false), ("night  shift", false, false), ("-x", false, false), ("a\nb", false, false),
            ("a\u{7}b", false, false), ("ｏｐｓ", false, false), ("\u{200b}", false, false), ("\u{2800}", false, false),
            ("ops\u{2800}", false, false), ("o\u{2060}ps", false, false),
            (String(repeating: "x", count: 128), true, true), (String(repeating: "x", count: 129), false, false),
        ]) func aliases(_ text: String, _ isAlias: Bool, _ isFit: Bool)
    {
        #expect(((try? Alias.check(text)) != nil) == isAlias)
        #expect(Alias.isFit(text) == isFit)
    }

    @Test func `Notes of a sleeping inbox are restored from its summary`() throws {
        var random = Randomness.seeded(9)
        func key() throws -> PublicKey { IdentityKey(try SecretKey(SecretBytes(copying: random.bytes(32)))).publicKey }
        let (own, guest, peer) = (try key(), try key(), try key())
        let summary = InboxSummary(
            client: clients[0], createdAt: Timestamp(milliseconds: 5), own: own,
            conversation: ConversationID.random(&random), creator: own, name: "ops", members: [], lifetime: .ephemeral,
            isLocked: false, isRemoved: false, outboxCount: 0, endpointMark: 1,
            relaySeeds: [RelaySeed(unchecked: [UInt8](repeating: 3, count: 32))], lastActivity: nil, deadline: nil)
        let invite = InviteID.random(&random)
        for notes in [
            InboxNotes(),
            InboxNotes(
                alias: "night shift", takesName: false,
                sentInvites: [InboxNotes.SentInvite(invite: invite, peer: peer)],
                guests: [InboxNotes.Guest(member: guest, peer: peer)]),
        ] {
            let bytes = InboxTableEntry(summary: summary, routes: [], invites: [], notes: notes).encoded
            #expect(InboxTableEntry(bytes)?.notes == notes)
            for count in bytes.indices { #expect(InboxTableEntry(Array(bytes.prefix(count))) == nil) }
        }
    }

    @Test func `A name that is already an alias creates no conversation and uses no inbox`() async throws {
        let (machine, node) = try await NodeMachine.started()
        try await refuse(node)
        try await machine.end(node)
    }

    private func refuse(_ node: isolated Node) throws {
        _ = try node.createConversation(name: "ops", profile: nil)
        let holder = try node.resolve("ops")
        let before = try node.inboxStates().count
        for (name, alias) in [("ops", nil), ("OPS", nil), ("other", "ops"), ("other", "4f1c09ab")] {
            #expect(throws: NodeError.self) { try node.createConversation(name: name, profile: nil, alias: alias) }
        }
        #expect(try node.inboxStates().count == before && node.conversations().count == 1)
        // A name that the core refuses uses up no alias.
        #expect(throws: NodeError.self) { try node.createConversation(name: "x", profile: "\u{7}", alias: "free") }
        _ = try node.createConversation(name: "ops", profile: nil, alias: "free")
        #expect(try node.resolve("ops") == holder && node.resolve("free") != holder)
    }
}
