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

    @Test func `A clock ten years ahead hides messages at once, and destroys them only after a minute of it`() throws {
        try withMessage { ann, bob, clock in
            let id = try #require(try message("for an hour", at: ann)["message"].string)
            try bob.ok("react", "room", id, "🎉", "--wait", "delivered")
            func signs() throws -> [String?] {
                try message("for an hour", at: ann)["reactions"].list.map { $0["reaction"].string }
            }
            for years in [1, 10] as [Int64] {
                clock.realtime = years * TestClock.year
                #expect(try ann.texts() == [], "hidden at once")
                if years == 1 { try ann.ok("reap") } else { clock.boottime = 15 }
                #expect(try ann.texts() == [] && !isDestroyed(ann))
                clock.realtime = 0
                try eventually("they are back", seconds: 30) { try ann.texts() == Self.both }
                #expect(try signs() == ["🎉"])
            }
            try ann.restart()
            #expect(try ann.texts() == Self.both)
            clock.realtime = 10 * TestClock.year
            #expect(try ann.texts() == [])
            #expect(!isDestroyed(ann))
            clock.boottime = 15 + 61
            try eventually("what has expired is destroyed", seconds: 60) { isDestroyed(ann) }
            for realtime in [0, -10 * TestClock.year] as [Int64] {
                clock.realtime = realtime
                #expect(try ann.texts() == [], "a correction restores none")
            }
            try ann.restart()
            #expect(try ann.texts() == [])
            // The other member's clock is right, so its copy stays.
            #expect(try bob.texts() == Self.both)
        }
    }

    @Test func `A message expires: both sides get messageExpired, and nothing of it is left`() throws {
        try withClockedRoom(lifetime: "1h") { ann, bob, _, clock in
            let id = try say("for an hour", ann)["message"].string ?? ""
            clock.pass(TestClock.hour / 2)
            // Both nodes were suspended. They ask over the link for the frames buffered in the kernel.
            for node in [ann, bob] { #expect(try node.texts() == ["for an hour"]) }
            try say("half an hour later", bob)
            // The message's time bucket has expired, too, but not the other one's.
            clock.pass(TestClock.hour / 2 + 60)
            for node in [ann, bob] {
                let event = try node.wait("messageExpired:message=\(id)")
                #expect(event["text"].isNull && event["conversation"].string != nil, "\(event)")
                #expect(try node.texts() == ["half an hour later"])
            }
            clock.pass(TestClock.hour)
            for node in [ann, bob] {
                try eventually("all of it is destroyed", seconds: 60) { isDestroyed(node) }
                let told = try node.ok("watch", "--since", "0", "--timeout", "0.2").lines
                #expect(told.count { $0["event"].string == "messageExpired" && $0["message"].string == id } == 1)
            }
        }
    }

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
