import Foundation
import Testing

/// Two machines whose clocks are decades apart. A machine without a battery clock starts in 1970.
@Suite("Clocks apart", .script, .enabled(if: TestClock.canBeMade, "needs a C compiler")) struct ClocksApartTests {
    private static var toTheBeginning: Int64 { 24 * TestClock.hour - Int64(Date.now.timeIntervalSince1970) }

    /// `ann` with the machine's clock, and `bob` with a shifted one.
    private func withClocks(_ offset: Int64, _ body: (_ ann: TestNode, _ bob: TestNode) throws -> Void) throws {
        try withDirectory { directory in
            let clock = try TestClock(in: directory)
            clock.realtime = offset
            let nodes = ["ann", "bob"].map { TestNode(name: $0, directory: directory) }
            defer { for node in nodes { node.crash() } }
            nodes[1].prefix = clock.prefix
            for node in nodes {
                // On the shifted clock, too: a home never goes behind the newest time that it has seen.
                let start = [Program.mayfly, "init", "--name", node.name, "--listen", node.anyPort]
                let made = try Program.run(node.prefix + start + ["--home", node.home], in: directory)
                #expect(made.code == 0, "\(made)")
                try node.start()
            }
            try body(nodes[0], nodes[1])
            for node in nodes { try node.stop() }
        }
    }

    @Test("Two nodes with clocks apart join, chat, reconnect after stop or kill, and tell of an explosion by a knock")
    func invite() throws {
        try withClocks(Self.toTheBeginning) { ann, bob in
            let id = try meet(ann, bob)
            try say("to the other time", ann)
            try say("and back", bob)
            for (one, other) in [(ann, bob), (bob, ann)] {
                for isStopped in [true, false] {
                    try one.stop(seenBy: other, kills: !isStopped)
                    try one.start()
                    try say("again", other)
                }
            }
            try bob.stop(seenBy: ann)
            try ann.ok("explode", "room", "--force")
            try bob.start()
            try explosionReaches(bob, ann)
            try bob.fails(3, "read", id)
        }
    }
}
