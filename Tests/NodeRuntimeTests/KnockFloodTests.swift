import Crypto
import Messaging
import Testing
import Transport

@testable import NodeRuntime

@Suite("Floods of knocks") struct KnockFloodTests {
    @Test("forged notices cost three checks and then one in ten seconds, and a true notice is still accepted")
    func forged() async throws {
        let pair = try await Pair()
        let conversation = try await pair.ann.conversation("tea").conversation
        let (checks, seconds) = try await pair.ann.forgedChecks(of: 1_000, from: { _ in 5 })
        #expect((3...3 + seconds / 10).contains(checks), "\(checks) in \(seconds) s")
        // From a network without forgeries, by the route that the forger has used up.
        try await pair.ann.takeTrueNotice(from: 6)
        let isOver = if case .exploded = await pair.ann.progress(of: conversation) { true } else { false }
        #expect(isOver)
        try await pair.end()
    }

    @Test("forged notices from a thousand networks cost no more checks than the member's allowance and the reserve")
    func manyNetworks() async throws {
        let pair = try await Pair()
        let (checks, seconds) = try await pair.ann.forgedChecks(of: 1_000, from: { UInt64($0) })
        // 3 + 8 at once, then one a second of the reserve and one in ten of the member's allowance.
        #expect((11...11 + seconds + seconds / 10).contains(checks), "\(checks) in \(seconds) s")
        try await pair.end()
    }

    @Test("a replayed question is answered at a limited rate, and the member's own is answered") func questions()
        async throws
    {
        let pair = try await Pair()
        let conversation = try await pair.ann.conversation("tea").conversation
        await pair.bob.stop()
        _ = try await pair.ann.explode("tea")
        let answers = try await pair.ann.answers(toQuestion: conversation, times: 1_000, from: 5)
        #expect((4...10).contains(answers), "\(answers)")
        #expect(try await pair.ann.answers(toQuestion: conversation, times: 1, from: 6) == 1)
        try await pair.end()
    }
}

extension Node {
    private func receiveKnock(_ token: RoutingToken, _ sealed: [UInt8], from source: UInt64) throws -> [UInt8]? {
        try #require(network.listening.transport).events.knock(token, sealed, source)
    }

    private func teaKnock() throws -> (client: ClientID, machine: ConversationStateMachine, token: RoutingToken) {
        let client = try #require(core.inboxes.all.map(\.client).first { core.machine.conversation($0) != nil })
        let machine = try #require(core.machine.conversation(client))
        let own = try #require(core.inboxes[client]?.key)
        let other = try #require(machine.currentMembers.first { $0.key != own.publicKey })
        let secret = RoutingSecret.derive(
            own: own, remote: other.key, conversation: machine.conversation.bytes, role: .responder)
        return (client, machine, secret.knock.token(day: services.now.day))
    }

    private func notice(_ machine: ConversationStateMachine, key: IdentityKey) -> [UInt8] {
        var random = Randomness.system
        return [1]
            + ExplodeNotice(genesis: machine.record.genesis, expiresAt: services.now, key: key, &random).sealed(&random)
    }

    /// Sends forged notices.
    /// - Returns: how many were checked.
    /// - Returns: signature checks, and the seconds that they took by the node's clock, rounded up.
    fileprivate func forgedChecks(of count: Int, from source: @Sendable (Int) -> UInt64) throws -> (
        checks: Int, seconds: Int
    ) {
        let start = services.now
        let (client, machine, token) = try teaKnock()
        let forged = notice(machine, key: IdentityKey(SecretKey.generate()))
        for number in 0..<count {
            #expect(try receiveKnock(token, forged, from: source(number)) == nil)
            // A knock that does not open is charged to no member.
            #expect(try receiveKnock(token, [1] + [UInt8](repeating: 7, count: 512), from: 6) == nil)
        }
        let checks = (core.machine.conversation(client)?.forgedCount ?? 0) - machine.forgedCount
        return (checks, Int((services.now.milliseconds - start.milliseconds + 999) / 1_000))
    }

    fileprivate func takeTrueNotice(from source: UInt64) throws {
        let (client, machine, token) = try teaKnock()
        _ = try receiveKnock(token, notice(machine, key: try #require(core.inboxes[client]?.key)), from: source)
    }

    fileprivate func answers(toQuestion conversation: ConversationID, times: Int, from source: UInt64) throws -> Int {
        let record = try #require(core.machine.tombstone(conversation))
        let secret = try #require(record.memberKnocks.values.first.flatMap(KnockSecret.init(bytes:)))
        let token = secret.token(day: services.now.day)
        var random = Randomness.system
        let question = [2] + KnockQuestion.seal(key: secret.sealingKey, token: token.bytes, &random)
        return try (0..<times).count { _ in try receiveKnock(token, question, from: source) != nil }
    }
}
