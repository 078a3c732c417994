import Foundation
import Glibc
import Testing

@Suite("A wrong clock", .script, .enabled(if: TestClock.canBeMade, "needs a C compiler")) struct ClockTests {
    /// `ann`, on the test's clock, and `bob` keep a message for an hour.
    private func withMessage(_ body: (_ ann: TestNode, _ bob: TestNode, _ clock: TestClock) throws -> Void) throws {
        try withHomes { ann, bob in
            let clock = try TestClock(in: ann.directory)
            ann.prefix = clock.prefix
            for node in [ann, bob] { try node.start() }
            try meet(ann, bob)
            try agree(ann, bob, "1h")
            try say("for an hour", ann)
            try say("from bob", bob)
            try ann.writtenOut()
            try body(ann, bob, clock)
        }
    }

    private static let both = ["for an hour", "from bob"]

    private func isDestroyed(_ node: TestNode) -> Bool { node.files(".seg").isEmpty }

    @Test("A message expires undelivered: its sender is told, a waiting `send` ends with 3, the other side sees a gap")
    func undelivered() throws {
        try withMessage { ann, bob, clock in
            let cursor = try bob.stop(seenBy: ann)
            let sent = try ann.ok("send", "room", "too late")
            #expect(sent["state"].string == "queued" && sent["stored"].bool == true)
            let id = sent["message"].string ?? ""
            let waiting = try Background(
                ann, ["send", "room", "too late as well", "--wait", "delivered", "--timeout", "300"])
            try eventually("both wait") { try ann.ok("outbox", "list").lines.count == 2 }
            clock.pass(TestClock.hour + 60)
            try ann.wait("messageState:message=\(id),state=expiredUndelivered")
            try ann.wait("messageExpired:message=\(id)")
            #expect(waiting.end() == 3, "\(waiting.lines)")
            #expect(waiting.lines.last?["error"]["kind"].string == "expired", "\(waiting.lines)")
            #expect(try ann.ok("outbox", "list").lines.isEmpty)
            #expect(try ann.texts() == [])
            try bob.start()
            try bob.wait("messagesMissed:count=2")
            #expect(try bob.texts() == Self.both, "its own clock is right")
            // The step has ended the session: a message is in memory only.
            try ann.wait("lifetimeReset", after: cursor)
            let kept = try say("in memory", ann)
            #expect(kept["stored"].bool == false && kept["expiresAt"].isNull, "\(kept)")
            #expect(try ann.ok("lifetime", "show", "room")["state"].string == "none")
        }
    }

    @Test("A message that has expired when its receiver returns: the receiver reports it, and each side has an event")
    func expiredOnArrival() throws {
        try withClockedRoom { ann, bob, _, clock in
            try ann.ok("lifetime", "propose", "room", "1h", "--unopened", "1m")
            try bob.wait("lifetimeProposed:ours=false")
            try bob.ok("lifetime", "accept", "room")
            try ann.wait("lifetimeAgreed")
            // The frame is sent to a suspended process.
            kill(bob.pid, SIGSTOP)
            let id = try ann.ok("send", "room", "a minute", "--wait", "sent")["message"].string ?? ""
            bob.crash()
            clock.pass(64)
            #expect(try message("a minute", at: ann)["state"].string == "sent")
            try bob.start()
            try ann.wait("messageState:message=\(id),state=expiredUndelivered")
            try bob.wait("messageExpired:message=\(id)")
            #expect(try bob.texts().contains("a minute") == false)
        }
    }

    @Test("A message in the kernel's buffer is not kept if its receiver is suspended for longer than its lifetime")
    func receivedInSuspend() throws {
        try withClockedRoom(lifetime: "1d") { ann, bob, _, clock in
            kill(ann.pid, SIGSTOP)
            let id = try bob.ok("send", "room", "a day", "--wait", "sent")["message"].string ?? ""
            clock.pass(3 * 24 * TestClock.hour)
            kill(ann.pid, SIGCONT)
            try ann.wait("messageExpired:message=\(id)")
            #expect(try ann.texts() == [])
        }
    }

    @Test("Asleep for two hours: messages that expired meanwhile are gone on waking, without a minute of doubt")
    func suspend() throws {
        try withMessage { ann, bob, clock in
            clock.realtime = 2 * TestClock.hour
            clock.boottime = 2 * TestClock.hour
            #expect(try ann.texts() == [])
            try eventually("what has expired is destroyed", seconds: 30) { isDestroyed(ann) }
            // Its clock is right, bob's is two hours behind: they still talk.
            try ann.wait("peerOnline")
            try ann.ok("send", "room", "good morning", "--wait", "delivered", "--timeout", "60")
            #expect(try bob.texts().contains("good morning"))
        }
    }
}
