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
}
