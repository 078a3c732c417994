import Foundation
import Glibc
import Messaging
import Testing

@testable import NodeRuntime

/// `peers.json` is edited while a node runs: an edit is taken over or refused, and never overwritten.
@Suite struct PeerBookTests {
    private func list(_ names: String...) -> String {
        "{ \"peers\": [\(names.map { "{\"name\": \"\($0)\"}" }.joined(separator: ", "))] }"
    }

    /// Editors write into the file itself, or rename another file over it.
    private enum Manner: CaseIterable { case inPlace, renamed }

    private func write(_ text: String, _ home: String, _ manner: Manner = .inPlace) {
        let path = "\(home)/\(PeersFile.fileName)"
        let target = manner == .inPlace ? path : "\(path)~"
        writeFile(text, to: target)
        if manner == .renamed { rename(target, path) }
    }

    private func text(_ home: String) -> String {
        String(decoding: FileManager.default.contents(atPath: "\(home)/\(PeersFile.fileName)") ?? Data(), as: UTF8.self)
    }

    private func add(_ name: String, to book: PeerBook, _ home: String) throws -> Bool {
        let edit = try book.edit(home: home) { $0.append(PeersFile.Peer(name: name, contact: nil, endpoints: nil)) }
        guard case .saved = edit else { return false }
        return true
    }

    @Test(arguments: Manner.allCases) private func `an edit between a command's read and write survives`(manner: Manner)
        throws
    {
        try withHome { home in
            write(list("a"), home)
            let book = try PeerBook(home: home)
            _ = try book.read(home: home)
            write(list("a", "mine"), home, manner)
            #expect(try !add("b", to: book, home))
            #expect(text(home) == list("a", "mine"))
            #expect(book.peers.map(\.name) == ["a"])
            _ = try book.read(home: home)
            #expect(try add("b", to: book, home))
            #expect(try PeersFile.load(home: home).peers.map(\.name) == ["a", "mine", "b"])
            #expect(try files(home) == [PeersFile.fileName])
        }
    }

    /// Without the empty lock file, which stays.
    private func files(_ home: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: home).filter { $0 != "\(PeersFile.fileName).lock" }
    }

    @Test func `a file that another process is changing is not written`() throws {
        try withHome { home in
            write(list("a"), home)
            let book = try PeerBook(home: home)
            let lock = open("\(home)/\(PeersFile.fileName).lock", O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
            #expect(flock(lock, LOCK_EX) == 0)
            _ = try book.read(home: home)
            let error = #expect(throws: (any Error).self) { try add("b", to: book, home) }
            #expect(error.map { "\($0)" }?.contains("another process is changing it") == true)
            let saved = #expect(throws: HomeFileError.self) { try PeersFile().save(home: home) }
            #expect(saved?.kind == .busy)
            #expect(text(home) == list("a"))
            close(lock)
            _ = try book.read(home: home)
            #expect(try add("b", to: book, home))
        }
    }

    @Test func `an edit left in the temporary file by a crash is kept under another name`() throws {
        try withHome { home in
            write(list("a"), home)
            let book = try PeerBook(home: home)
            _ = try book.read(home: home)
            let left = "\(home)/\(PeersFile.fileName).new"
            try list("edited").write(toFile: left, atomically: true, encoding: .utf8)
            #expect(try add("b", to: book, home))
            let kept = FileManager.default.contents(atPath: "\(home)/\(PeersFile.fileName).lost")
            #expect(kept == Data(list("edited").utf8) && access(left, F_OK) != 0)
        }
    }

    /// Found by a run of the scripts: the first edit was written over the second.
    @Test(arguments: Manner.allCases) private func `a second edit survives while the first one is put back`(
        manner: Manner
    ) throws {
        try withHome { home in
            write(list("a"), home)
            let old = Array(text(home).utf8)
            write(list("first"), home, manner)
            let isReplaced = try HomeFile.replace(
                PeersFile.fileName, with: Array(list("a", "ours").utf8), over: old, home: home,
                editFound: { write(list("second"), home, manner) })
            #expect(!isReplaced)
            #expect(text(home) == list("second"))
            // A file that is removed at that moment stays removed.
            let removed = try HomeFile.replace(
                PeersFile.fileName, with: Array(list("a", "ours").utf8), over: old, home: home,
                editFound: { unlink("\(home)/\(PeersFile.fileName)") })
            #expect(!removed)
            #expect(try files(home).isEmpty)
        }
    }

    @Test func `a file created or removed between read and write stays as it is`() throws {
        try withHome { home in
            let book = try PeerBook(home: home)
            write(list("mine"), home)
            #expect(try !add("b", to: book, home))
            #expect(text(home) == list("mine"))
            _ = try book.read(home: home)
            unlink("\(home)/\(PeersFile.fileName)")
            #expect(try !add("b", to: book, home))
            #expect(try files(home).isEmpty)
            // Some editors remove the file before they write it: the peers stay, and a command waits for the file.
            #expect(throws: NodeError.self) { try book.read(home: home) }
            #expect(book.peers.map(\.name) == ["mine"])
            #expect(throws: NodeError.self) { try book.readIfEdited(home: home) }
            #expect(try book.readIfEdited(home: home) == nil)
            write(list("mine", "other"), home)
            _ = try book.readIfEdited(home: home)
            #expect(book.peers.map(\.name) == ["mine", "other"])
        }
    }

    @Test func `a half-written file is refused once, and read when it is complete`() throws {
        try withHome { home in
            write(list("a"), home)
            let book = try PeerBook(home: home)
            let whole = list("a", "other")
            write(String(whole.dropLast(9)), home)
            #expect(throws: NodeError.self) { try book.readIfEdited(home: home) }
            #expect(try book.readIfEdited(home: home) == nil)
            #expect(throws: NodeError.self) { try book.read(home: home) }
            #expect(book.peers.map(\.name) == ["a"])
            write(whole, home)
            _ = try book.readIfEdited(home: home)
            #expect(book.peers.map(\.name) == ["a", "other"])
        }
    }

    @Test func `an edit with unchanged size and times is noticed soon after the last look`() throws {
        try withHome { home in
            let path = "\(home)/\(PeersFile.fileName)"
            write(list("aaaa"), home)
            var before = stat()
            stat(path, &before)
            let book = try PeerBook(home: home)
            write(list("bbbb"), home)
            // As on a file system whose times count seconds.
            var times = [before.st_atim, before.st_mtim]
            utimensat(AT_FDCWD, path, &times, 0)
            _ = try book.readIfEdited(home: home)
            #expect(book.peers.map(\.name) == ["bbbb"])
        }
    }

    @Test func `a file's stamp counts as recent for a few seconds`() throws {
        try withHome { home in
            write(list("a"), home)
            let stamp = PeersFile.stamp(home: home)
            let now = NodeClock.realtime()
            #expect(stamp.isThere && stamp.isRecent(at: now) && !stamp.isRecent(at: now + 10_000))
            #expect(!PeersFile.stamp(home: "\(home)/none").isThere)
        }
    }

    @Test func `a second peer with the same name is refused, and nothing is written`() throws {
        try withHome { home in
            write(list("a"), home)
            let book = try PeerBook(home: home)
            #expect(throws: NodeError.self) { try add("a", to: book, home) }
            #expect(text(home) == list("a"))
        }
    }
}
