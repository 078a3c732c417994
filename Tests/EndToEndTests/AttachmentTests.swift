import Foundation
import Glibc
import Synchronization
import Testing

@Suite("Attachments", .script) struct AttachmentTests {
    private func file(_ name: String, _ byteCount: Int, in directory: String) throws -> (path: String, bytes: Data) {
        let path = "\(directory)/\(name)"
        var generator = SystemRandomNumberGenerator()
        var bytes = Data(capacity: byteCount + 8)
        while bytes.count < byteCount { withUnsafeBytes(of: generator.next()) { bytes.append(contentsOf: $0) } }
        bytes = bytes.prefix(byteCount)
        try bytes.write(to: URL(fileURLWithPath: path))
        return (path, bytes)
    }

    private func contents(_ path: String) -> Data? { FileManager.default.contents(atPath: path) }

    private func line(_ id: String, _ node: TestNode) throws -> JSON {
        try node.ok("read", "room").lines.first { $0["message"].string == id } ?? JSON(value: nil)
    }

    @Test func `a file of any size goes both ways and arrives unchanged`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            for (byteCount, (from, to)) in [0, 1, 61_440, 61_441, 2_000_000].flatMap({ size in
                [(size, (ann, bob)), (size, (bob, ann))]
            }) {
                let (path, bytes) = try file("\(from.name).bin", byteCount, in: from.directory)
                let sent = try from.ok("send", "room", "look", "--file", path, "--wait", "delivered")
                #expect(sent["state"].string == "delivered" && sent["stored"].bool == true)
                let id = sent["message"].string ?? ""
                let read = try line(id, to)
                #expect(read["type"].string == "mayfly/attachment:1.0" && read["text"].string == "look")
                #expect(read["file"]["name"].string == "\(from.name).bin")
                #expect(read["file"]["byteCount"].integer == Int64(byteCount))
                #expect(read["file"]["state"].string == "complete" && read["file"]["percent"].integer == 100)
                for node in [to, from] {
                    let output = "\(from.directory)/\(byteCount).\(from.name).\(node.name)"
                    try node.ok("save", "room", id, "--output", output)
                    #expect(contents(output) == bytes)
                }
            }
        }
    }

    @Test func `a file that another process is writing is not sent`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            for how in ["grows", "shrinks", "changes"] {
                let size = 8 << 20
                let (path, _) = try file("a.bin", size, in: ann.directory)
                let descriptor = try Descriptor(path, O_WRONLY)
                let isDone = Mutex(false)
                let number = descriptor.number
                let writer = Thread {
                    var count = off_t(size)
                    while !isDone.withLock({ $0 }) {
                        switch how {
                        case "grows": count += off_t(pwrite(number, "x", 1, count))
                        case "shrinks":
                            count -= 1
                            ftruncate(number, count)
                        default: pwrite(number, "x", 1, count / 2)
                        }
                    }
                }
                writer.start()
                let answer = try ann.fails(1, "send", "room", "--file", path, "--wait", "delivered")
                isDone.withLock { $0 = true }
                while !writer.isFinished { usleep(1_000) }
                #expect(answer.message.contains("changed while it was read"), "\(how): \(answer)")
                withExtendedLifetime(descriptor) {}
            }
            try say("the next", ann)
            for node in [ann, bob] { #expect(try node.texts() == ["the next"]) }
        }
    }

    @Test func `a pipe without input ends with 4 after the timeout, and nothing is sent`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            let pipe = "\(ann.directory)/pipe"
            try #require(mkfifo(pipe, 0o600) == 0)
            try ann.fails(4, "send", "room", "--file", pipe, "--timeout", "0.3")
            let content = ["--type", "example.org/x:1.0", "--payload-file", pipe, "--timeout", "0.3"]
            #expect(try ann.run(["send", "room"] + content).code == 4)
            // A pipe with a writer that stays silent.
            do {
                let writer = try Descriptor(pipe, O_RDWR)
                try ann.fails(4, "send", "room", "--file", pipe, "--timeout", "0.3")
                withExtendedLifetime(writer) {}
            }
            #expect(try ann.texts().isEmpty && bob.texts().isEmpty)
            let sending = try Background(ann, ["send", "room", "--file", pipe, "--wait", "delivered"])
            try Data("hello".utf8).write(to: URL(fileURLWithPath: pipe), options: [])
            #expect(sending.end() == 0)
            let id = try sending.line()["message"].string ?? ""
            #expect(try line(id, bob)["file"]["byteCount"].integer == 5)
        }
    }

    @Test("`save` overwrites nothing, saves for the owner only, and saves only complete files") func save() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            let (path, bytes) = try file("a.bin", 70_000, in: ann.directory)
            let id = try ann.ok("send", "room", "--file", path, "--wait", "delivered")["message"].string ?? ""
            let output = "\(ann.directory)/saved"
            let saved = try bob.ok("save", "room", String(id.prefix(8)), "--output", output)
            #expect(saved["path"].string == output && saved["byteCount"].integer == 70_000)
            let mode = try FileManager.default.attributesOfItem(atPath: output)[.posixPermissions] as? Int
            #expect(mode == 0o600)
            try Data("mine".utf8).write(to: URL(fileURLWithPath: output))
            try bob.fails(1, "save", "room", id, "--output", output)
            #expect(contents(output) == Data("mine".utf8))
            try bob.ok("save", "room", id, "--output", output, "--force")
            #expect(contents(output) == bytes)
            try bob.ok("save", "room", id, "--output", bob.home)
            #expect(contents("\(bob.home)/a.bin") == bytes)
            let text = try say("no file", ann)["message"].string ?? ""
            try bob.fails(7, "save", "room", text)
            try bob.fails(7, "save", "room", "00000000")
            // The longest possible name, saved twice.
            let name = String(repeating: "n", count: 255)
            let (other, whole) = try file(name, 1_000, in: ann.directory)
            let long = try ann.ok("send", "room", "--file", other, "--wait", "delivered")["message"].string ?? ""
            let place = "\(ann.directory)/place"
            mkdir(place, 0o700)
            for _ in 0..<2 { try bob.ok("save", "room", long, "--output", place, "--force") }
            #expect(try FileManager.default.contentsOfDirectory(atPath: place) == [name])
            #expect(contents("\(place)/\(name)") == whole)
            let pieces = [Int.max, Int.max - 11, 2, -1, Int.min, 1, 0]
            let kinds = try bob.rpc(
                pieces.map { ("attachment.read", ["conversation": "room", "message": id, "from": $0]) }
            ).map { $0["error"]["data"]["kind"].string }
            #expect(kinds == Array(repeating: "usage", count: 5) + [nil, nil], "invalid pieces are refused")
            let begin: [String: Any] = ["conversation": "room", "name": "f", "byteCount": -1]
            let negative = try bob.rpc([("attachment.begin", begin)])[0]["error"]
            #expect(negative["data"]["kind"].string == "usage", "\(negative)")
            #expect(negative["message"].string?.contains("byteCount") == true, "\(negative)")
        }
    }

    @Test("`save --force` writes to special files, and keeps a link a link") func saveElsewhere() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            let (path, bytes) = try file("a.bin", 100_000, in: ann.directory)
            let id = try ann.ok("send", "room", "--file", path, "--wait", "delivered")["message"].string ?? ""
            func kind(_ path: String) -> mode_t {
                var status = stat()
                return lstat(path, &status) == 0 ? status.st_mode & S_IFMT : 0
            }
            let pipe = "\(ann.directory)/pipe"
            let alias = "\(ann.directory)/alias"
            guard mkfifo(pipe, 0o600) == 0, symlink("pipe", alias) == 0 else { throw HarnessError("mkfifo: \(errno)") }
            try bob.fails(1, "save", "room", id, "--output", pipe)
            for place in [pipe, alias] {
                let copy = "\(ann.directory)/copy"
                let reader = try Child(["cat", pipe], output: try Descriptor(copy, O_WRONLY | O_CREAT | O_TRUNC))
                let saved = try bob.ok("save", "room", id, "--output", place, "--force")
                #expect(saved["path"].string == place && saved["byteCount"].integer == 100_000)
                #expect(kind(pipe) == S_IFIFO)
                // Without a writer the reader would wait for ever.
                _ = try Descriptor(pipe, O_RDWR)
                #expect(reader.wait(seconds: 60) == 0)
                #expect(contents(copy) == bytes)
            }
            let place = "\(ann.directory)/place"
            mkdir(place, 0o700)
            try Data("mine".utf8).write(to: URL(fileURLWithPath: "\(place)/file"))
            let targets = [("link", "place/file"), ("second", "\(ann.directory)/link"), ("dangling", "place/new")]
            for (name, target) in targets {
                let link = "\(ann.directory)/\(name)"
                guard symlink(target, link) == 0 else { throw HarnessError("symlink: \(errno)") }
                try bob.fails(1, "save", "room", id, "--output", link)
                try bob.ok("save", "room", id, "--output", link, "--force")
                #expect(kind(link) == S_IFLNK)
                let written = "\(place)/\(name == "dangling" ? "new" : "file")"
                #expect(contents(written) == bytes && kind(written) == S_IFREG)
                try Data("mine".utf8).write(to: URL(fileURLWithPath: written))
            }
            #expect(Set(try FileManager.default.contentsOfDirectory(atPath: place)) == ["file", "new"])
        }
    }

    @Test(
        "`save` on a full disk reports it with a remedy, and leaves nothing",
        .enabled(if: Program.canMount, "mounting a small file system needs root")) func saveWithoutRoom() throws
    {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            let (path, _) = try file("a.bin", 200_000, in: ann.directory)
            let id = try ann.ok("send", "room", "--file", path, "--wait", "delivered")["message"].string ?? ""
            let disk = "\(ann.directory)/small"
            mkdir(disk, 0o700)
            try Program.tool("mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "mayfly-test", disk)
            defer { umount2(disk, Int32(MNT_DETACH)) }
            let refused = try bob.fails(1, "save", "room", id, "--output", disk)
            #expect(refused.message.contains("no space left"), "\(refused)")
            #expect(refused["error"]["hint"].string?.contains("free some space") == true, "\(refused)")
            #expect(try FileManager.default.contentsOfDirectory(atPath: disk).isEmpty)
        }
    }

    @Test func `without an agreement a file is memory only, and small`() throws {
        try withRoom { ann, bob, _ in
            let text = String(repeating: "a line of a secret file\n", count: 20_000)
            let path = "\(ann.directory)/plain.txt"
            try Data(text.utf8).write(to: URL(fileURLWithPath: path))
            let sizes = [ann, bob].map { node in node.files().reduce(0) { $0 + node.contents($1).count } }
            let id = try ann.ok("send", "room", "--file", path, "--wait", "delivered")["message"].string ?? ""
            #expect(try line(id, bob)["stored"].bool == false)
            let output = "\(bob.directory)/saved.txt"
            try bob.ok("save", "room", id, "--output", output)
            #expect(contents(output) == Data(text.utf8))
            for node in [ann, bob] {
                for needle in ["a line of a secret file", "plain.txt", String(id.prefix(16))] {
                    #expect(node.files(holding: needle).isEmpty, "\(needle) at \(node.name)")
                }
            }
            let after = [ann, bob].map { node in node.files().reduce(0) { $0 + node.contents($1).count } }
            for (before, after) in zip(sizes, after) { #expect(after - before < 100_000) }
            // Closing the conversation clears its memory.
            try bob.ok("conversation", "close", "room")
            try bob.fails(7, "save", "room", id, "--output", output, "--force")
            let (large, _) = try file("large.bin", (8 << 20) + 1, in: ann.directory)
            let refused = try ann.fails(1, "send", "room", "--file", large)
            #expect(
                refused.message == "large.bin is more than 8 MiB; without an agreement the limit is 8 MiB", "\(refused)"
            )
            let hint = refused.json["error"]["hint"].string ?? ""
            #expect(hint == "first: `mayfly lifetime propose room 1d --home \(ann.home)`", "\(refused)")
        }
    }

    @Test func `a file that the other member's node refuses ends with exit code 2`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            try bob.stop()
            try bob.configure(["attachmentByteCount": 1_000])
            let cursor = try ann.cursor()
            try bob.start()
            for event in ["peerOnline", "lifetimeReset"] { try ann.wait(event, after: cursor) }
            let (path, _) = try file("a.bin", 1_001, in: ann.directory)
            let sent = try ann.run(["send", "room", "--file", path, "--wait", "delivered", "--timeout", "90"])
            #expect(sent.code == 2, "\(sent)")
            let (other, _) = try file("b.bin", 1_001, in: bob.directory)
            try bob.fails(64, "send", "room", "--file", other)
        }
    }
}
