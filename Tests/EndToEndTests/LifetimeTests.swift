import Testing

/// Negotiation beyond the scenarios of `Seed004Tests` (Lifetime.md).
@Suite("Lifetime", .script) struct LifetimeTests {
    @Test("A wait for an agreement ends with exit code 2 if the proposal is rejected; an old rejection does not count")
    func rejected() throws {
        try withRoom { ann, bob, _ in
            func wait(_ until: String, since: Int64) throws -> Background {
                try Background(
                    ann,
                    ["watch", "room", "--since", String(since), "--only", "lifetimeProposed"] + [
                        "--until", until, "--timeout", "140",
                    ])
            }
            func ends(_ code: Int32, since: Int64?) throws {
                let cursor = since.map { ["--since", String($0)] } ?? []
                let answer = try ann.run(["watch", "room", "--until", "lifetimeAgreed", "--timeout", "0.5"] + cursor)
                #expect(answer.code == code, "\(answer)")
            }
            func propose(_ lifetime: String) throws {
                let cursor = try bob.cursor()
                try ann.ok("lifetime", "propose", "room", lifetime)
                try bob.wait("lifetimeProposed:ours=false,lifetime=\(lifetime)", after: cursor)
            }
            let start = try ann.cursor()
            try propose("7d")
            let any = try wait("lifetimeAgreed", since: start)
            let other = try wait("lifetimeAgreed:lifetime=1d", since: start)
            try bob.ok("lifetime", "reject", "room")
            #expect(any.end(seconds: 60) == 2)
            #expect(any.lines.last?["error"]["kind"].string == "refused", "\(any.lines)")
            let rejected = try ann.wait("lifetimeRejected")["cursor"].integer ?? 0
            // The outcome of everything after the cursor, but not of later events.
            try ends(2, since: start)
            try ends(4, since: nil)
            try ends(4, since: rejected)
            try propose("1d")
            let again = try wait("lifetimeAgreed", since: start)
            try eventually("it watches") { again.lines.contains { $0["lifetime"].string == "1d" } }
            try bob.ok("lifetime", "accept", "room")
            #expect(again.end(seconds: 60) == 0)
            #expect(other.end(seconds: 60) == 0)
        }
    }

    @Test func `Answers without a proposal, unknown values and proposals with no other member are refused`() throws {
        try withRoom { ann, bob, _ in
            for word in ["accept", "reject", "withdraw"] { try ann.fails(7, "lifetime", word, "room") }
            try ann.fails(64, "lifetime", "propose", "room", "2d")
            try ann.ok("lifetime", "propose", "room", "1d")
            try ann.fails(7, "lifetime", "accept", "room")
            try bob.wait("lifetimeProposed:ours=false")
            try bob.fails(7, "lifetime", "withdraw", "room")
            try ann.ok("lifetime", "withdraw", "room")
            try bob.wait("lifetimeWithdrawn")
            try ann.ok("conversation", "create", "--name", "alone")
            try ann.fails(1, "lifetime", "propose", "alone", "1d")
            try bob.stop()
            try ann.wait("peerOffline")
            try ann.fails(5, "lifetime", "propose", "room", "1h")
        }
    }
}
