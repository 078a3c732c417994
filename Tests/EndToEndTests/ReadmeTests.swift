import Foundation
import Glibc
import Testing

@Suite("README", .script) struct ReadmeTests {
    /// A line of the quick start, and on which of the two machines it runs.
    struct Step {
        let machines: [Int]
        let command: String
    }

    private static let readme = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().appending(path: "README.md")

    private func section(_ title: String) throws -> String {
        let text = try String(contentsOf: Self.readme, encoding: .utf8)
        let rest = try #require(text.components(separatedBy: "\n## \(title)\n").dropFirst().first)
        return rest.components(separatedBy: "\n## ")[0]
    }

    @Test func `The six lines for one machine run as written`() throws {
        try withDirectory { directory in
            #expect(mkdir("\(directory)/bin", 0o700) == 0 && symlink(Program.mayfly, "\(directory)/bin/mayfly") == 0)
            let block = try #require(try section("On one machine").components(separatedBy: "```sh\n").dropFirst().first)
            let lines = block.components(separatedBy: "```")[0].replacing("/tmp/", with: "\(directory)/")
            let path = "PATH=\(directory)/bin:\(ProcessInfo.processInfo.environment["PATH"] ?? "")"
            let answer = try Program.run(["env", path, "bash", "-ec", lines], in: directory)
            #expect(answer.code == 0 && answer.output.contains("hello"), "\(answer)")
        }
    }

    private func steps() throws -> [Step] {
        var steps: [Step] = []
        var machines: [Int] = []
        var isBlock = false
        for line in try section("Quick start").split(separator: "\n") {
            if line.hasPrefix("```") {
                isBlock = line == "```sh"
            } else if isBlock {
                steps.append(Step(machines: machines, command: String(line)))
            } else if line.hasSuffix("n both machines:") {
                machines = [0, 1]
            } else if line.hasSuffix("n the first machine:") {
                machines = [0]
            } else if line.hasSuffix("n the second machine:") {
                machines = [1]
            }
        }
        return steps
    }

    @Test func `The quick start runs as written`() throws {
        try withDirectory { directory in
            let nodes = ["ann", "bob"].map { TestNode(name: $0, directory: directory) }
            defer { for node in nodes { node.crash() } }
            #expect(mkdir("\(directory)/bin", 0o700) == 0 && symlink(Program.mayfly, "\(directory)/bin/mayfly") == 0)
            var invite = ""
            var done: [String] = []
            for step in try steps() {
                for index in step.machines {
                    let node = nodes[index]
                    if step.command.hasPrefix("mayfly run &") {
                        try node.start()
                        continue
                    }
                    // Two nodes share this machine, so each has its own port.
                    var command = step.command.replacingOccurrences(of: "mayfly:join/…", with: invite)
                    if command.hasPrefix("mayfly init") {
                        command = command.replacingOccurrences(of: "init", with: "init --listen \(node.anyPort)")
                    }
                    if command.hasPrefix("mayfly lifetime accept") { try node.wait("lifetimeProposed:ours=false") }
                    let path = "PATH=\(directory)/bin:\(ProcessInfo.processInfo.environment["PATH"] ?? "")"
                    let shell = ["env", "MAYFLY_HOME=\(node.home)", path, "bash", "-c", command]
                    if command.hasPrefix("mayfly explode room") {
                        let terminal = try PseudoTerminal()
                        let child = try terminal.child(["setsid", "--ctty"] + shell)
                        try terminal.expect("Type room to go on: ")
                        try terminal.type("room\n")
                        #expect(child.wait(seconds: 60) == 0, "\(terminal.text)")
                    } else {
                        let answer = try Program.run(shell, in: directory)
                        #expect(answer.code == 0, "\(answer)")
                        if command.hasPrefix("mayfly invite create") {
                            invite = answer.output.trimmingCharacters(in: .whitespacesAndNewlines)
                        }
                        if command.hasPrefix("mayfly read") { #expect(answer.output.contains("hello"), "\(answer)") }
                    }
                    done.append(command)
                }
            }
            #expect(done.count > 10 && invite.hasPrefix("mayfly:join/"), "\(done)")
            try nodes[1].wait("exploded")
            #expect(try nodes[1].ok("conversation", "list").lines.isEmpty)
            #expect(try nodes[0].ok("explode", "list")["state"].string == "exploded")
        }
    }
}
