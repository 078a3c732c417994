import Foundation
import Testing

@Suite("Copies of a home", .script) struct CopiesTests {
    private func warnings(_ node: TestNode) throws -> [String] {
        try node.ok("doctor").lines.filter { $0["name"].string == "copies" && $0["state"].string == "warning" }
            .compactMap { $0["message"].string }
    }

    private func linksOpened(by node: TestNode) throws -> Double {
        try Program.run([Program.mayfly, "metrics", "--home", node.home], in: node.directory).output.split(
            separator: "\n"
        ).filter { $0.hasPrefix("mayfly_links_opened_total{") }.compactMap {
            $0.split(separator: " ").last.flatMap { Double($0) }
        }.reduce(0, +)
    }

    @Test("Two copies of a home that run at once: both owners and the member are warned, and they dial slowly")
    func twoCopies() throws {
        try withRoom { ann, bob, _ in
            try bob.stop()
            let copy = TestNode(name: "copy", directory: ann.directory)
            try Program.tool("cp", "-a", bob.home, copy.home)
            defer { copy.crash() }
            let cursor = try ann.cursor()
            let before = try linksOpened(by: ann)
            try bob.start()
            try copy.start()
            try ann.wait("twoCopies:ours=false", after: cursor)
            var told: [Int64] = []
            for node in [bob, copy] {
                told.append(try node.wait("twoCopies:ours=true")["cursor"].integer ?? 0)
                #expect(try warnings(node).contains { $0.contains("ann reports that two copies of your home") })
                let member = try node.ok("conversation", "members", "room")["members"][0]
                #expect(member["reportsCopies"].bool == true && member["copied"].isNull, "\(member)")
            }
            // The copy that was warned last has taken the other copy's link. The other one waits before it takes it
            // back.
            let waiting = try bob.ok("conversation", "members", "room")["members"][0]["online"].bool == true ? 1 : 0
            let node = [bob, copy][waiting]
            let lost = try node.wait("peerOffline", after: told[waiting])
            let back = try node.wait("peerOnline", after: lost["cursor"].integer ?? 0)
            let waited = (back["at"].time ?? 0) - (lost["at"].time ?? 0)
            // The loss is reported 3 s after the close, because another link could follow at once.
            #expect(waited >= 27_000, "\(node.name) waited \(waited) ms")
            #expect(try warnings(ann).contains { $0.contains("two copies of bob's home") })
            let member = try ann.ok("conversation", "members", "room")["members"][0]
            #expect(member["copied"].bool == true && member["reportsCopies"].isNull, "\(member)")
            let count = try linksOpened(by: ann) - before
            #expect(count <= 20, "\(count) links")
            for node in [ann, bob, copy] {
                let lines = Program.text(node.log).split(separator: "\n").count { $0.contains("two copies of") }
                #expect(lines == 1, "\(node.name) logs it \(lines) times")
            }
        }
    }

    @Test("A home that restarts, however often, causes no warning") func restarts() throws {
        try withRoom { ann, bob, _ in
            for _ in 0..<3 {
                let cursor = try ann.cursor()
                try bob.stop()
                try bob.start()
                try ann.wait("peerOnline", after: cursor)
                try bob.wait("peerOnline")
            }
            #expect(try warnings(ann).isEmpty && warnings(bob).isEmpty)
        }
    }
}
