import Cryptography
import Messaging
import Testing
import Transport

@testable import NodeRuntime

@Suite("Floods of knocks") struct KnockFloodTests {
    @Test("forged notices cost three checks and then one in ten seconds, and a true notice is still accepted")
    func forged() async throws {
        let pair = try await Pair()
        let conversation = try await pair.ann.record(of: "tea").genesis.conversation
        let (checks, time) = try await pair.ann.forgedChecks(of: 1_000, from: { _ in 5 })
        #expect((3...3 + time / 10_000).contains(checks), "\(checks) in \(time) ms")
        // From a network without forgeries, by the route that the forger has used up.
        try await pair.ann.takeTrueNotice(from: 6)
        let isOver = if case .exploded = await pair.ann.progress(of: conversation) { true } else { false }
        #expect(isOver)
        try await pair.end()
    }

    @Test func `a replayed question is answered at a limited rate, and the member's own is answered`() async throws {
        let pair = try await Pair()
        let conversation = try await pair.ann.record(of: "tea").genesis.conversation
        await pair.bob.stop()
        _ = try await pair.ann.explode("tea")
        let (answers, time) = try await pair.ann.answers(toQuestion: conversation, times: 100, from: 5)
        // 4 at once, then one a second; from 1 s on the network's bucket is full every 250 ms and draws on the reserve.
        let seconds = time / 1_000
        #expect((4...4 + min(5 * seconds, 8 + 2 * seconds)).contains(answers), "\(answers) in \(time) ms")
        #expect(try await pair.ann.answers(toQuestion: conversation, times: 1, from: 6).count == 1)
        try await pair.end()
    }
}

extension Node {
    private func receiveKnock(_ token: RoutingToken, _ sealed: [UInt8], from source: UInt64) throws -> [UInt8]? {
        try #require(shell.listening.transport).events.knock(token, sealed, source)
    }

    private func teaKnock() throws -> (client: ClientID, machine: Conversation, token: RoutingToken) {
        let client = try #require(inboxes.all.map(\.client).first { core.machine.conversation($0) != nil })
        let machine = try #require(core.machine.conversation(client))
        let own = try #require(inboxes[client]?.key)
        let other = try #require(machine.currentMembers.first { $0.key != own.publicKey })
        let secret = RoutingSecret.derive(
            own: own, remote: other.key, conversation: machine.conversation.bytes, role: .responder)
        return (client, machine, secret.knock.token(day: services.now.day))
    }

    private func notice(_ machine: Conversation, key: IdentityKey) -> [UInt8] {
        var random = Randomness.system
        return [1]
            + ExplodeNotice(genesis: machine.record.genesis, expiresAt: services.now, key: key, &random).sealed(&random)
    }

    /// Sends forged notices.
    /// - Returns: signature checks, and the time of the flood by the node's clock, in milliseconds.
    fileprivate func forgedChecks(of count: Int, from source: @Sendable (Int) -> UInt64) throws -> (
        checks: Int, time: Int
    ) {
        let start = services.now
        let (client, machine, token) = try teaKnock()
        let before = machine.forgedCount
        let forged = notice(machine, key: IdentityKey(SecretKey.generate()))
        for number in 0..<count {
            #expect(try receiveKnock(token, forged, from: source(number)) == nil)
            // A knock that does not open is charged to no member.
            #expect(try receiveKnock(token, [1] + [UInt8](repeating: 7, count: 512), from: 6) == nil)
        }
        let checks = (core.machine.conversation(client)?.forgedCount ?? 0) - before
        return (checks, Int(services.now.milliseconds - start.milliseconds))
    }

    fileprivate func takeTrueNotice(from source: UInt64) throws {
        let (client, machine, token) = try teaKnock()
        _ = try receiveKnock(token, notice(machine, key: try #require(inboxes[client]?.key)), from: source)
    }

    fileprivate func answers(toQuestion conversation: ConversationID, times: Int, from source: UInt64) throws -> (
        count: Int, time: Int
    ) {
        let start = services.now
        let record = try #require(core.machine.tombstone(conversation))
        let secret = try #require(record.memberKnocks.values.first.flatMap(KnockSecret.init(bytes:)))
        let token = secret.token(day: services.now.day)
        var random = Randomness.system
        let question = [2] + KnockQuestion.seal(key: secret.sealingKey, token: token.bytes, &random)
        let count = try (0..<times).count { _ in try receiveKnock(token, question, from: source) != nil }
        return (count, Int(services.now.milliseconds - start.milliseconds))
    }
}
