import Foundation
import Glibc
import Testing

@Suite("The home directory", .script) struct HomeTests {
    @Test func `With no node running every command reports it with exit code 8`() throws {
        try withHomes("ann") { nodes in
            let commands = """
                status, stop, lock, unlock --passphrase-file /etc/hostname, peer list, peer add x mayfly:card/AA, \
                peer show x, peer remove x, peer ping x, peer block x, peer unblock x, peer set x invitations=ask, \
                peer card, peer export, conversation create, conversation list, conversation show x, \
                conversation members x, conversation leave x --force, conversation lock x, conversation unlock x, \
                conversation close x, conversation rename x y, conversation remove x y, invite create x, \
                invite list x, invite revoke x, join mayfly:join/AAAA, join list, join cancel x, send x y, read x, \
                watch, lifetime show x, lifetime propose x 1d, lifetime accept x, lifetime reject x, \
                lifetime withdraw x, lifetime policy x, explode x --force, explode status x, outbox list, \
                outbox cancel x, outbox retry x, inbox list, inbox wake x, inbox sleep x
                """
            for command in commands.components(separatedBy: ", ") {
                let answer = try nodes[0].run(command.components(separatedBy: " "))
                #expect(answer.code == 8, "\(answer)")
                if command != "status" { #expect(answer.kind == "noNode", "\(answer)") }
            }
            #expect(try nodes[0].fails(8, "status")["running"].bool == false)
            #expect(try nodes[0].ok("version")["version"].string != nil)
            #expect(try nodes[0].ok("reap")["ok"].bool == true)
            // After a kill -9 the socket still exists without a listener.
            try nodes[0].start()
            nodes[0].crash()
            try nodes[0].fails(8, "peer", "list")
            try nodes[0].start()
            let process = try nodes[0].ok("status")["pid"].integer ?? 0
            try nodes[0].ok("stop")
            // It has ended and may be a zombie until it is reaped.
            let state = Program.text("/proc/\(process)/stat").split(separator: ")").last?.first { $0 != " " }
            #expect(state == nil || state == "Z", "\(state.map(String.init) ?? "")")
            try nodes[0].stop()
        }
    }

    @Test func `A home is used by one node at a time, made once, and only in an empty directory`() throws {
        try withNode { ann in
            let second = try ann.run(["run"])
            #expect(second.code == 1)
            #expect(second.message.contains("in use") && second.message.contains(String(ann.pid)), "\(second)")
            #expect(try ann.run(["init"]).code == 1)
            let other = TestNode(name: "other", directory: ann.directory)
            let answers = try ["run", "status", "reap"].map { try other.show($0) }
            #expect(answers.allSatisfy { $0.code == 8 && $0.errors == answers[0].errors }, "\(answers)")
            #expect(answers[0].errors.hasPrefix("mayfly: there is no home in \(other.home); make it with"))
            mkdir(other.home, 0o700)
            _ = FileManager.default.createFile(atPath: "\(other.home)/diary.txt", contents: Data("dear diary".utf8))
            let refused = try other.run(["init"])
            #expect(refused.code == 1 && refused.message.contains("not empty"), "\(refused)")
            #expect(other.files() == ["diary.txt"])
            try ann.ok("status")
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

    @Test func `Files and directories that others can open are refused, with the command that corrects it`() throws {
        try withHome { ann in
            for (file, wrong, right) in [
                ("", mode_t(0o755), mode_t(0o700)), ("/key", 0o644, 0o600), ("/keystore", 0o640, 0o600),
                ("/rows.slots", 0o604, 0o600),
            ] {
                chmod(ann.home + file, wrong)
                let failure = try #require(try ann.tryStart(), "\(file) with mode \(String(wrong, radix: 8))")
                #expect(failure.code == 1)
                #expect(failure.message.contains(ann.home + file), "\(failure)")
                #expect(failure.json["error"]["hint"].string?.contains("chmod") == true, "\(failure)")
                chmod(ann.home + file, right)
            }
            rename("\(ann.home)/key", "\(ann.home)/key.moved")
            symlink("\(ann.home)/key.moved", "\(ann.home)/key")
            #expect(try ann.tryStart()?.code == 1)
            rename("\(ann.home)/key.moved", "\(ann.home)/key")
            try ann.start()
        }
    }

    @Test func `Every file in the home is for its owner only, with any umask`() throws {
        try withDirectory { directory in
            let (ann, bob) = (TestNode(name: "ann", directory: directory), TestNode(name: "bob", directory: directory))
            defer { for node in [ann, bob] { node.crash() } }
            ann.prefix = ["sh", "-c", #"umask 0; exec "$@""#, "sh"]
            let initialise = ["init", "--name", "ann", "--listen", ann.anyPort, "--json", "--home", ann.home]
            let made = try Program.run(ann.prefix + [Program.mayfly] + initialise, in: directory)
            #expect(made.code == 0, "\(made)")
            try bob.initialise()
            for node in [ann, bob] { try node.start() }
            try meet(ann, bob)
            try agree(ann, bob, "1d")
            try say("x", ann)
            try ann.add(bob)
            try ann.writtenOut()
            let paths = FileManager.default.enumerator(atPath: ann.home)?.compactMap { $0 as? String } ?? []
            #expect(paths.contains("control.sock") && paths.contains("peers.json") && ann.files(".seg") != [])
            for path in [""] + paths {
                var status = stat()
                #expect(lstat("\(ann.home)/\(path)", &status) == 0)
                #expect(status.st_mode & 0o077 == 0, "\(path) has mode \(String(status.st_mode & 0o777, radix: 8))")
            }
        }
    }

    @Test(
        "On a full disk sends are refused, messages stay readable, exploding works, and free space ends the failure",
        .enabled(if: Program.canMount, "mounting a small file system needs root")) func full() throws
    {
        try withDisk { ann, bob, disk in
            try meet(ann, bob)
            try agree(ann, bob, "1d")
            try say("before", ann)
            fill("\(disk)/filler")
            // Commits that fit into the preallocated journal are still accepted and durable.
            var taken = ["before"]
            var refused: Answer?
            while refused == nil, taken.count < 100 {
                let text = "\(taken.count) " + String(repeating: "long ", count: 6_000)
                let answer = try ann.run(["send", "room", text])
                if answer.code == 0 { taken.append(text) } else { refused = answer }
            }
            #expect(refused?.code == 1 && refused?.message.contains("no space left") == true, "\(refused as Any)")
            let texts = try ann.texts()
            #expect(texts == taken)
            func failure(_ name: String) throws -> String? {
                let check = try ann.check(name)
                return check["state"].string == "failed" ? check["message"].string : nil
            }
            #expect(try failure("disk") != nil)
            let space = try failure("space") ?? ""
            #expect(space.contains("bytes free") || space.contains("KiB free"), "\(space)")
            unlink("\(disk)/filler")
            // Well within the minute that it once took.
            try eventually("the node sees that there is room", seconds: 25) { try failure("disk") == nil }
            try say("after", ann)
            // The refused text never arrives, and each accepted one once.
            try ann.restart(kills: true)
            let isKept = try say("after the restart", ann)["stored"].bool ?? false
            for node in [ann, bob] { #expect(try node.texts() == taken + ["after", "after the restart"]) }
            fill("\(disk)/filler")
            ann.crash()
            // No file can be made either, as on a file system that takes an inode from its free blocks.
            var blocks = statvfs()
            #expect(statvfs(disk, &blocks) == 0)
            unlink("\(ann.home)/control.sock")
            let used = Int(blocks.f_files - blocks.f_ffree) - 1
            try Program.tool("mount", "-o", "remount,nr_inodes=\(used)", disk)
            try ann.start()
            try ann.ok("reap")
            // The restart may have ended the agreement before the text was sent.
            #expect(try ann.texts() == taken + ["after"] + (isKept ? ["after the restart"] : []))
            try ann.ok("explode", "room", "--force")
            try bob.wait("exploded")
            unlink("\(disk)/filler")
            #expect(ann.isRunning)
            #expect(try ann.ok("conversation", "list").lines.isEmpty)
            try ann.restart(kills: true)
            #expect(try ann.ok("conversation", "list").lines.isEmpty)
        }
    }

    @Test(
        "With a read-only home the node reports it, and starts again when it is writable",
        .enabled(if: Program.canMount, "mounting a small file system needs root")) func readOnly() throws
    {
        try withDisk { ann, _, disk in
            try ann.stop()
            try Program.tool("mount", "-o", "remount,ro", disk)
            let failure = try #require(try ann.tryStart())
            #expect(failure.code == 1, "\(failure)")
            #expect(failure.message.contains("read-only"), "\(failure)")
            #expect(failure.errors.contains("mount it writable") || failure.output.contains("mount it writable"))
            let found = try ann.fails(1, "doctor").lines.first { $0["name"].string == "home" }
            #expect(found?["state"].string == "failed" && found?["hint"].string?.contains("remount") == true)
            #expect(found?["message"].string?.contains("read-only") == true)
            try Program.tool("mount", "-o", "remount,rw", disk)
            try ann.start()
        }
    }

    /// StoreTests damage every other kind of file.
    @Test func `With one damaged file the node runs, reports the damage, and the rest is readable`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            for index in 1...3 { try say("room \(index)", ann) }
            try ann.writtenOut()
            let segment = try #require(ann.files(".seg").first)
            try bob.stop()
            try ann.stop()
            var bytes = ann.contents(segment)
            bytes[bytes.count / 2] ^= 1
            try ann.replace(segment, with: bytes)
            try ann.start()
            let texts = try ann.texts()
            #expect((2...3).contains(texts.count) && texts.allSatisfy { $0.hasPrefix("room") }, "\(texts)")
            let status = try ann.ok("status")
            #expect(status["checks"].list.contains { $0["message"].string?.contains("damaged") == true }, "\(status)")
            try ann.ok("conversation", "create", "--name", "new")
        }
    }

    @Test func `The keystore survives the loss of one of its copies; the loss of both is reported`() throws {
        try withRoom(lifetime: "1d") { ann, _, _ in
            for index in 1...3 { try say("room \(index)", ann) }
            try ann.writtenOut()
            try ann.stop()
            let intact = ann.contents("keystore")
            var half = intact
            for index in 0..<4_096 { half[index] ^= 0xA5 }
            try ann.replace("keystore", with: half)
            try ann.start()
            #expect(try ann.texts().count == 3)
            try ann.stop()
            try ann.replace("keystore", with: [UInt8](repeating: 7, count: 8_192))
            let failure = try #require(try ann.tryStart())
            #expect(failure.code == 1 && failure.message.contains("keystore"), "\(failure)")
            let words = failure.output + failure.errors
            #expect(words.contains("nothing in this home can be read") && !words.contains("the rest"), "\(failure)")
            try ann.replace("keystore", with: intact)
            let key = ann.contents("key")
            try ann.replace("key", with: [UInt8](key.reversed()))
            let keyless = try #require(try ann.tryStart())
            #expect(keyless.message.contains("/key is damaged"), "\(keyless)")
            #expect(!(keyless.output + keyless.errors).contains("the rest"), "\(keyless)")
        }
    }
}
