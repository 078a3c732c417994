import Foundation
import Glibc
import Testing

@Suite("Bad homes", .script) struct BadHomeTests {
    private static let nobody: uid_t = 65_534

    @Test(
        "Links, foreign owners and writable parent directories are refused, with their path and a remedy",
        .enabled(if: Program.isRoot, "giving files away needs root"),
        arguments: [
            "linked home", "foreign home", "foreign file", "foreign parent", "open parent", "linked rows",
            "linked inboxes", "linked configuration",
        ]) func refused(kind: String) throws
    {
        try withDirectory { directory in
            let parent = "\(directory)/above"
            mkdir(parent, 0o700)
            let ann = TestNode(name: "ann", directory: directory, parent: parent)
            try ann.initialise()
            var node = ann
            func move(_ name: String) throws {
                guard rename("\(ann.home)/\(name)", "\(directory)/\(name)") == 0,
                    symlink("\(directory)/\(name)", "\(ann.home)/\(name)") == 0
                else { throw HarnessError("move \(name): \(errno)") }
            }
            var named = ann.home
            switch kind {
            case "linked home":
                node = TestNode(name: "link", directory: directory)
                symlink(ann.home, node.home)
                named = node.home
            case "foreign home": chown(ann.home, Self.nobody, Self.nobody)
            case "foreign file":
                named = "\(ann.home)/rows.slots"
                chown(named, Self.nobody, Self.nobody)
            case "foreign parent":
                named = parent
                chown(parent, Self.nobody, Self.nobody)
            case "open parent":
                named = parent
                chmod(parent, 0o770)
            case "linked rows": try move("rows.slots")
            case "linked inboxes": try move("inboxes")
            default: try move("config.json")
            }
            let failure = try #require(try node.tryStart(), "it must not start")
            #expect(failure.code == 1, "\(failure)")
            #expect(failure.message.contains(named), "\(failure)")
            #expect(failure.json["error"]["hint"].string?.isEmpty == false, "\(failure)")
        }
    }

    @Test func `A node whose home is removed reports it and ends`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            try say("before", ann)
            try FileManager.default.removeItem(atPath: ann.home)
            try eventually("it has ended", seconds: 60) { !ann.isRunning }
            #expect(Program.text(ann.log).contains("the home was removed"), "\(Program.text(ann.log))")
            try bob.ok("status")
            ann.crash()
        }
    }

    @Test(
        "If the file system turns read-only the node refuses clearly, confirms nothing false, and ends cleanly",
        .enabled(if: Program.canMount && Program.canMakeExt4, "mounting an ext4 image needs root")) func turnsReadOnly()
        throws
    {
        try withDisk(ext4: true) { ann, bob, disk in
            try meet(ann, bob)
            try agree(ann, bob, "1d")
            try say("before", ann)
            // ext4 does this by itself when its disk fails.
            try Program.tool("mount", "-o", "remount,abort", disk)
            let refused = try ann.fails(1, "send", "room", "into the void")
            #expect(refused.message.contains("read-only"), "\(refused)")
            #expect(ann.isRunning)
            #expect(try ann.run(["status"]).code == 0)
            #expect(!(try bob.texts().contains("into the void")))
            // A peer's message is not acknowledged, so it is not lost.
            let sent = try bob.ok("send", "room", "keep this for me")
            #expect(sent["state"].string != "delivered")
            usleep(3_000_000)
            let complaints = Program.text(ann.log).components(separatedBy: "could not be destroyed").count - 1
            #expect(complaints <= 1, "said once a minute, not once a second")
            try ann.stop()
            #expect(try bob.ok("outbox", "list").lines.count >= 1)
        }
    }
}
