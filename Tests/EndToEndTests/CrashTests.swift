import Dispatch
import Foundation
import Synchronization
import TestSupport
import Testing

@Suite("Crashes", .script) struct CrashTests {
    @Test func `Each confirmed delivery is there once after kill -9 of either node during a stream`() throws {
        try withRoom { ann, bob, _ in
            for node in [ann, bob] { try node.ok("lifetime", "policy", "room", "accept-up-to:1d") }
            try ann.ok("lifetime", "propose", "room", "1d")
            try ann.wait("lifetimeAgreed:lifetime=1d")
            let delivered = Mutex<[String]>([])
            let isOver = Mutex(false)
            let sent = Mutex(0)
            let mayfly = Program.mayfly
            let (home, directory) = (ann.home, ann.directory)
            let sender = DispatchGroup()
            DispatchQueue.global().async(group: sender) {
                while !isOver.withLock({ $0 }) {
                    let number = sent.withLock { count in
                        count += 1
                        return count
                    }
                    let text = "message \(number)"
                    let answer = try? Program.run(
                        [
                            mayfly, "send", "room", text, "--wait", "delivered", "--timeout", "30", "--json", "--home",
                            home,
                        ], in: directory)
                    guard let answer, answer.code == 0, answer["stored"].bool == true else { continue }
                    delivered.withLock { $0.append(text) }
                }
            }
            // Also when a round fails: the sender would go on for ever.
            defer { isOver.withLock { $0 = true } }
            var generator = SeededNumbers("kill -9 among deliveries")
            for round in 0..<8 {
                let count = delivered.withLock { $0.count }
                // Until a delivery in this round, and then a random moment longer.
                try eventually("a delivery in round \(round)") { delivered.withLock { $0.count } > count }
                Thread.sleep(forTimeInterval: Double.random(in: 0...0.3, using: &generator))
                let node = round % 2 == 0 ? bob : ann
                try node.restart(kills: true)
            }
            isOver.withLock { $0 = true }
            sender.wait()
            let expected = delivered.withLock { $0 }
            #expect(expected.count >= 8, "\(expected)")
            for node in [bob, ann] {
                try node.restart(kills: true)
                let texts = try node.texts()
                for text in expected { #expect(texts.count { $0 == text } == 1, "\(text) at \(node.name)") }
                #expect(Set(texts).count == texts.count, "nothing is there twice")
            }
            // Unconfirmed messages arrive, too, and no message arrives twice.
            try ann.wait("peerOnline")
            try bob.wait("peerOnline")
            try eventually("nothing is on its way any more") { try ann.ok("outbox", "list").lines.isEmpty }
            let (ours, theirs) = (try ann.texts(), try bob.texts())
            #expect(Set(ours).isSubset(of: theirs), "\(Set(ours).subtracting(theirs))")
            for texts in [ours, theirs] { #expect(Set(texts).count == texts.count, "\(texts)") }
        }
    }

    @Test func `An explosion interrupted by kill -9 happens completely or not at all, and is told`() throws {
        try withRoom(lifetime: "1d") { ann, bob, first in
            var id = first
            var delay = 0.0
            var generator = SeededNumbers("kill -9 in an explosion")
            for round in 0..<4 {
                if round > 0 {
                    id = try meet(ann, bob)
                    try agree(ann, bob, "1d")
                }
                try say("secret \(round)", ann)
                let cursor = try bob.cursor()
                let mayfly = Program.mayfly
                let (home, directory) = (ann.home, ann.directory)
                let isConfirmed = Mutex(false)
                let exploding = DispatchGroup()
                DispatchQueue.global().async(group: exploding) {
                    let answer = try? Program.run(
                        [mayfly, "explode", "room", "--force", "--home", home], in: directory)
                    isConfirmed.withLock { $0 = answer?.code == 0 }
                }
                // Starting the command takes part of the delay.
                Thread.sleep(forTimeInterval: Double.random(in: 0...0.02, using: &generator) + delay)
                delay += 0.02
                ann.crash()
                exploding.wait()
                try ann.start()
                let after = try ann.run(["read", id])
                #expect([0, 3].contains(after.code), "\(after)")
                if after.code == 0 {
                    #expect(!isConfirmed.withLock { $0 })
                    #expect(try ann.texts() == ["secret \(round)"])
                    try ann.ok("explode", "room", "--force")
                    isConfirmed.withLock { $0 = true }
                }
                #expect(try ann.ok("conversation", "list").lines.isEmpty)
                #expect(ann.files(holding: "secret").isEmpty)
                try bob.wait("exploded", after: cursor)
                try bob.fails(3, "read", id)
                // If the receipt came before the crash its event is lost, and the tombstone has it.
                if isConfirmed.withLock({ $0 }), !(try hasReceipt(ann, id)) { try ann.wait("deletionReceipt") }
            }
        }
    }

    private func hasReceipt(_ creator: TestNode, _ id: String) throws -> Bool {
        !(try creator.ok("explode", "status", id)["confirmed"].list.isEmpty)
    }

    @Test func `Every answer of the command line is still true after kill -9 and a restart`() throws {
        try withPair { ann, bob in
            let id = try ann.ok("conversation", "create", "--name", "room")["conversation"].string ?? ""
            try ann.restart(kills: true)
            #expect(try ann.ok("conversation", "list")["conversation"].string == id)
            let slug = try ann.invite("room", "--single-use")
            try ann.restart(kills: true)
            try bob.ok("join", slug, "--timeout", "90")
            ann.crash()
            bob.crash()
            for node in [ann, bob] { try node.start() }
            #expect(try bob.ok("conversation", "list")["conversation"].string == id)
            #expect(try ann.ok("conversation", "show", "room")["members"].list.count == 1)
            for node in [ann, bob] { try node.wait("peerOnline") }
            try ann.ok("lifetime", "propose", "room", "1d")
            try bob.wait("lifetimeProposed:ours=false")
            try bob.ok("lifetime", "accept", "room")
            try bob.restart(kills: true)
            // The session is over; bob's signature remains.
            let signed = try bob.ok("lifetime", "agreements", "room").lines
            #expect(signed.map { $0["agreement"]["lifetime"].string } == ["1d"], "\(signed)")
            #expect(signed.allSatisfy { $0["verified"].bool == true }, "\(signed)")
            try bob.wait("peerOnline")
            try agree(ann, bob, "7d")
            let sent = try ann.ok("send", "room", "durable before it is said")
            #expect(sent["stored"].bool == true)
            try ann.restart(kills: true)
            #expect(try ann.texts().contains("durable before it is said"))
            try ann.ok("conversation", "lock", "room")
            try ann.restart(kills: true)
            #expect(try ann.ok("conversation", "show", "room")["locked"].bool == true)
            try bob.ok("conversation", "leave", "room", "--force")
            try bob.restart(kills: true)
            #expect(try bob.ok("conversation", "list").lines.isEmpty)
        }
    }
}
