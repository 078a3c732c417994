import Foundation
import Testing

@Suite("Copies of a home", .script) struct CopiesTests {
    private func warnings(_ node: TestNode) throws -> [String] {
        try node.ok("doctor").lines.filter { $0["name"].string == "copies" && $0["state"].string == "warning" }
            .compactMap { $0["message"].string }
    }

    @Test func `Two copies of a home that run at once: both owners and the member are warned, once`() throws {
        try withRoom { ann, bob, _ in
            try bob.stop()
            let copy = TestNode(name: "copy", directory: ann.directory)
            try Program.tool("cp", "-a", bob.home, copy.home)
            defer { copy.crash() }
            let cursor = try ann.cursor()
            try bob.start()
            try copy.start()
            try ann.wait("twoCopies:ours=false", after: cursor)
            for node in [bob, copy] {
                try node.wait("twoCopies:ours=true")
                #expect(try warnings(node).contains { $0.contains("ann reports that two copies of your home") })
                let member = try node.members()[0]
                #expect(member["reportsCopies"].bool == true && member["copied"].isNull, "\(member)")
            }
            #expect(try warnings(ann).contains { $0.contains("two copies of bob's home") })
            let member = try ann.members()[0]
            #expect(member["copied"].bool == true && member["reportsCopies"].isNull, "\(member)")
            for node in [ann, bob, copy] {
                let lines = Program.text(node.log).split(separator: "\n").count { $0.contains("two copies of") }
                #expect(lines == 1, "\(node.name) logs it \(lines) times")
            }
        }
    }
}
