import Messaging
import NIOCore
import NodeRuntime
import Testing

@Suite("Codes of a node") struct CodeTests {
    private func withNode(_ body: (Node, NodeMachine) async throws -> Void) async throws {
        let (machine, node) = try await NodeMachine.started()
        _ = try await node.createConversation(name: "room", profile: nil).get()
        try await body(node, machine)
        try await machine.end(node)
    }

    private func isEnd(_ kind: Event.Kind) -> Bool { if case .codeEnded = kind { true } else { false } }

    private func failure(_ body: () async throws -> Void) async -> CommandError? {
        do { try await body() } catch { if case NodeError.command(let error) = error { return error } }
        return nil
    }

    @Test func `a code expires after five minutes of the node's clock, and its invite no longer exists`() async throws {
        try await withNode { node, machine in
            let code = try await node.openCode("room")
            let end = try await node.whenCodeEnds(code.number)
            await machine.wait(seconds: 299, reaping: node)
            #expect(await node.eventLog.entries.allSatisfy { !isEnd($0.event.kind) })
            await machine.wait(seconds: 1, reaping: node)
            #expect(try await end.get() == .expired)
            // The outcome is kept for later calls.
            #expect(try await node.whenCodeEnds(code.number).get() == .expired)
            #expect(try await node.record(of: "room").issuer?.invites.isEmpty == true)
            let events = await node.eventLog.entries.map(\.event.kind)
            #expect(events.contains(.codeEnded(code.number, .expired)))
        }
    }

    @Test("a locked node, a locked conversation, an explosion, leaving, and a stop each end a code") func ends()
        async throws
    {
        try await withNode { node, _ in
            var code = try await node.openCode("room")
            try await node.setLocked("room", true)
            #expect(try await node.whenCodeEnds(code.number).get() == .locked)
            let refused = await failure { _ = try await node.openCode("room") }
            #expect(refused == .conversationLocked)
            try await node.setLocked("room", false)
            code = try await node.openCode("room")
            await node.lock()
            #expect(try await node.whenCodeEnds(code.number).get() == .locked)
            try await node.unlock(passphrase: nil)
            code = try await node.openCode("room")
            _ = try await node.explode("room")
            #expect(try await node.whenCodeEnds(code.number).get() == .gone)
            _ = try await node.createConversation(name: "other", profile: nil).get()
            code = try await node.openCode("other")
            _ = try await node.leave("other")
            #expect(try await node.whenCodeEnds(code.number).get() == .gone)
            _ = try await node.createConversation(name: "last", profile: nil).get()
            code = try await node.openCode("last")
            let end = try await node.whenCodeEnds(code.number)
            await node.stop()
            #expect(try await end.get() == .gone)
        }
    }

    @Test func `a code is revoked alone or with all invites; at most four are open`() async throws {
        try await withNode { node, _ in
            let code = try await node.openCode("room")
            try await node.revokeInvite("room", code.code.description)
            #expect(try await node.whenCodeEnds(code.number).get() == .revoked)
            let unknown = await failure { try await node.revokeInvite("room", code.code.description) }
            #expect(unknown == CommandError(.notFound, "no such code is open"))
            var codes: [OpenCodes.Entry] = []
            for _ in 0..<Limits.codeCount { codes.append(try await node.openCode("room")) }
            let refused = await failure { _ = try await node.openCode("room") }
            #expect(refused?.message == "\(Limits.codeCount) codes are open already")
            try await node.revokeInvites("room")
            for code in codes { #expect(try await node.whenCodeEnds(code.number).get() == .revoked) }
        }
    }

    @Test func `two joiners at once: at most one gets the invite, and the code is spent`() async throws {
        let pair = try await Pair()
        let place = try #require(await pair.ann.listening.first)
        for _ in 0..<8 {
            let code = try await pair.ann.openCode("tea")
            let attempts = [
                try await pair.bob.invite(for: code.code, at: place),
                try await pair.bob.invite(for: code.code, at: place),
                try await pair.bob.invite(for: code.code, at: place),
            ]
            var taken = 0
            for attempt in attempts {
                do {
                    _ = try await attempt.get()
                    taken += 1
                } catch NodeError.command(let error) { #expect(error == CodeFailure.notOpen.explained(code.code.slot)) }
            }
            #expect(taken == 1)
            #expect(try await pair.ann.whenCodeEnds(code.number).get() == .taken)
        }
        try await pair.end()
    }
}
