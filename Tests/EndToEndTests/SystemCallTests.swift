import Foundation
import Glibc
import Testing

@Suite("System calls", .script, .enabled(if: Tracer.isThere, "needs strace and leave to trace")) struct SystemCallTests
{
    private static let isCampaign = ProcessInfo.processInfo.environment["MAYFLY_CAMPAIGN"] != nil

    private static func calls(_ few: [Int], upTo most: Int) -> [Int] { isCampaign ? Array(1...most) : few }

    @Test func `An init killed at a call is complete or can be repeated, and the node starts`() throws {
        for call in ["pwrite64", "fsync", "renameat", "mkdirat"] {
            var number = 1
            var strikes = 0
            while number <= 12 {
                let isOver = try withDirectory { directory in
                    let node = TestNode(name: "ann", directory: directory)
                    defer { node.crash() }
                    let command = ["init", "--name", "ann", "--listen", node.anyPort, "--home", node.home]
                    let log = "\(directory)/calls"
                    let tracing = ["strace", "-f", "-qq", "-o", log, "-e", "trace=\(call)"]
                    let killing = ["-e", "inject=\(call):signal=SIGKILL:when=\(number)"]
                    let first = try Program.run(tracing + killing + [Program.mayfly] + command, in: directory)
                    if Tracer.hasStruck(log) { strikes += 1 }
                    if first.code != 0 {
                        let second = try Program.run([Program.mayfly] + command, in: directory)
                        #expect(second.code == 0 || second.errors.contains("already"), "\(call) \(number): \(second)")
                    }
                    try node.start()
                    #expect(try node.ok("doctor").code == 0)
                    try node.stop()
                    return first.code == 0
                }
                if isOver { break }
                number += Self.isCampaign ? 1 : 3
            }
            #expect(strikes > 0, "\(call) is not used any more")
        }
    }

    @Test("`save`, killed at a call, leaves the whole file or nothing, also where unnamed files are not supported")
    func save() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            let path = "\(ann.directory)/a.bin"
            let bytes = Data((0..<300_000).map { UInt8(truncatingIfNeeded: $0 / 251) })
            try bytes.write(to: URL(fileURLWithPath: path))
            let id = try ann.ok("send", "room", "--file", path, "--wait", "delivered")["message"].string ?? ""
            let output = "\(ann.directory)/out"
            let log = "\(ann.directory)/calls"
            func save(_ injection: [String]) throws -> Answer {
                try? FileManager.default.removeItem(atPath: output)
                mkdir(output, 0o700)
                let tracing = ["strace", "-f", "-qq", "-o", log] + injection
                return try Program.run(
                    tracing + [Program.mayfly, "save", "room", id, "--output", output, "--home", bob.home],
                    in: ann.directory)
            }
            func saved() -> [String] { (try? FileManager.default.contentsOfDirectory(atPath: output)) ?? [] }
            func isWhole() -> Bool { FileManager.default.contents(atPath: "\(output)/a.bin") == bytes }
            var struck: Set<String> = []
            for (call, number) in [("linkat", 1), ("write", 1), ("write", 3), ("write", 5)] {
                let killed = try save(["-e", "trace=\(call)", "-e", "inject=\(call):signal=SIGKILL:when=\(number)"])
                if Tracer.hasStruck(log) { struck.insert(call) }
                #expect(killed.code != 0 && saved().isEmpty || saved() == ["a.bin"] && isWhole(), "\(call) \(number)")
            }
            // O_TMPFILE: an unnamed file gets its name by linkat, on file systems that support it.
            let isNameless = (try? Descriptor(ann.directory, O_WRONLY | O_DIRECTORY | 0o20_000_000)) != nil
            #expect(struck == (isNameless ? ["linkat", "write"] : ["write"]), "the others are not used any more")
            // A file system without unnamed files.
            let other = try save(["-P", output, "-e", "trace=openat", "-e", "inject=openat:error=EOPNOTSUPP"])
            #expect(Tracer.hasStruck(log))
            #expect(other.code == 0 && saved() == ["a.bin"] && isWhole(), "\(other) \(saved())")
        }
    }

    private func expectOnce(_ all: [String], _ bob: TestNode) throws {
        try eventually("all of it arrives, once") {
            let texts = try bob.texts()
            return Set(texts).count == texts.count && Set(texts).isSuperset(of: all)
        }
    }

    @Test func `A disk that fails at a call causes no false acknowledgement, and the node goes on`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            var all: [String] = []
            for fault in ["fdatasync:error=EIO", "pwrite64:error=ENOSPC", "pwrite64:error=EIO"] {
                for number in Self.calls([1], upTo: 4) {
                    let text = "\(fault) \(number)"
                    let cursor = try ann.cursor()
                    let tracer = try Tracer(bob, "\(fault):when=\(number)")
                    let sent = try ann.run(["send", "room", text, "--wait", "delivered", "--timeout", "2"])
                    if sent["stored"].bool == true { all.append(text) }
                    #expect(bob.isRunning, "a failing disk is no reason to end")
                    if number == 1 { try tracer.strikes() }
                    tracer.stop()
                    let isConfirmed = sent["stored"].bool == true && sent["state"].string == "delivered"
                    try bob.restart(kills: true)
                    if isConfirmed { #expect(try bob.texts().count { $0 == text } == 1, "\(text)") }
                    for node in [ann, bob] { try node.wait("peerOnline", after: node === ann ? cursor : 0) }
                    try agree(ann, bob, "1d")
                }
            }
            try expectOnce(all, bob)
        }
    }
}

final class Tracer {
    private let child: Child
    private let injection: String
    private let calls: String

    /// Returns when every thread is traced.
    /// - Parameter injection: the fault and its call, for `-e inject=`.
    init(_ node: TestNode, _ injection: String) throws {
        let log = "\(node.directory)/strace-\(UUID().uuidString)"
        self.injection = injection
        calls = "\(log).calls"
        let traced = String(injection.prefix { $0 != ":" })
        child = try Child(
            [
                "strace", "-f", "-p", String(node.pid), "-o", calls, "-e", "trace=\(traced)", "-e",
                "inject=\(injection)",
            ], errors: try Descriptor(log, O_WRONLY | O_CREAT))
        let child = child
        try eventually("strace is attached") {
            let text = Program.text(log)
            if text.contains("attached") { return true }
            guard child.isRunning else { throw HarnessError("strace does not attach: \(text)") }
            return false
        }
    }

    /// Waits for the fault. Without it, a call that the node no longer makes would prove nothing.
    func strikes() throws { try eventually("\(injection)", seconds: 30) { Self.hasStruck(calls) } }

    /// Whether strace reports an injected error, or a kill.
    static func hasStruck(_ calls: String) -> Bool {
        let text = Program.text(calls)
        return text.contains("(INJECTED)") || text.contains("+++ killed by SIGKILL")
    }

    /// Detaches from the node, if it still runs.
    func stop() {
        child.signal(SIGINT)
        _ = child.wait(seconds: 10)
    }

    /// Tried, since a container may forbid tracing.
    static let isThere = Program.offers {
        guard geteuid() == 0 else { return false }
        try Program.tool("strace", "-f", "-o", "/dev/null", "true")
        return true
    }
}
