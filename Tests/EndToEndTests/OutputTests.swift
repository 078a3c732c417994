import Foundation
import Glibc
import Testing

@Suite("Output that cannot be written", .script) struct OutputTests {
    /// Runs a command whose standard output is `output`. SIGPIPE is ignored, as many programs do for their children.
    private func run(
        _ arguments: [String], _ node: TestNode, to output: Descriptor, shell: String = #"trap "" PIPE; exec "$@""#
    ) throws -> (code: Int32?, errors: String) {
        let path = "\(node.directory)/\(UUID().uuidString.prefix(8)).err"
        let child = try Child(
            ["bash", "-c", shell, "bash", Program.mayfly] + arguments + ["--home", node.home], output: output,
            errors: try Descriptor(path, O_WRONLY | O_CREAT))
        return (child.wait(seconds: 60), Program.text(path))
    }

    private func brokenPipe(_ node: TestNode) throws -> Descriptor {
        let (writer, _) = try pipe(node)
        return writer
    }

    private func pipe(_ node: TestNode, _ flags: Int32 = 0) throws -> (writer: Descriptor, reader: Descriptor) {
        let path = "\(node.directory)/\(UUID().uuidString.prefix(8)).pipe"
        guard mkfifo(path, 0o600) == 0 else { throw HarnessError("mkfifo: \(errno)") }
        let reader = try Descriptor(path, O_RDONLY | O_NONBLOCK)
        return (try Descriptor(path, O_WRONLY | flags), reader)
    }

    @Test func `With a closed pipe a result ends with 0, a failure with its own code`() throws {
        try withHome { ann in
            func toNobody(_ arguments: String...) throws -> Int32? {
                try run(arguments, ann, to: try brokenPipe(ann)).code
            }
            #expect(try toNobody("schema") == 0)
            #expect(try toNobody("peer", "list", "--json") == 8)
            #expect(try toNobody("status", "--json") == 8)
            try ann.start()
            #expect(try toNobody("status", "--json") == 0)
            #expect(try toNobody("peer", "show", "nobody", "--json") == 7)
            #expect(try toNobody("frobnicate", "--json") == 64)
        }
    }

    @Test(
        "Help, the version and a completion script that cannot be written are failures",
        arguments: [
            ["help"], ["--help"], ["help", "send"], ["--version"], ["version"], ["--generate-completion-script"],
        ]) func helpToFullDevice(_ arguments: [String]) throws
    {
        try withDirectory { directory in
            let words =
                [Program.mayfly] + arguments + (arguments.last == "--generate-completion-script" ? ["bash"] : [])
            func code(_ output: String) throws -> Int32 {
                try Program.run(["sh", "-c", #"exec "$@" >\#(output)"#, "sh"] + words, in: directory).code
            }
            let codes = try ["/dev/full", "/dev/null"].map(code)
            #expect(codes == [1, 0])
        }
    }

    @Test func `A closed pipe ends a watch at once: with 0, or with 1 if it awaited something`() throws {
        try withNode { ann in
            try ann.ok("lock")
            try ann.ok("unlock")
            for (until, expected) in [([], 0), (["--only", "locked,unlocked", "--until", "exploded"], 1)]
                as [([String], Int32)]
            {
                var (writer, reader): (Descriptor?, Descriptor?) = try pipe(ann)
                let child = try Child(
                    [Program.mayfly, "watch", "--since", "0", "--home", ann.home] + until, output: writer)
                writer = nil
                var lines = 0
                try eventually("both events are shown") {
                    var chunk = [UInt8](repeating: 0, count: 4_096)
                    let count = read(reader?.number ?? -1, &chunk, chunk.count)
                    lines += chunk[..<max(0, count)].count { $0 == UInt8(ascii: "\n") }
                    return lines >= 2
                }
                #expect(child.isRunning)
                reader = nil
                #expect(child.wait(seconds: 30) == expected)
            }
        }
    }

    @Test func `A full disk is a failure, reported on standard error`() throws {
        try withHome { ann in
            for arguments in [["schema"], ["version"], ["version", "--json"]] {
                let (code, errors) = try run(arguments, ann, to: try Descriptor("/dev/full", O_WRONLY))
                #expect(code == 1 && errors.contains("cannot write to standard output"), "\(arguments): \(errors)")
            }
            let (code, errors) = try run(["status", "--json"], ann, to: try Descriptor("/dev/full", O_WRONLY))
            #expect(code == 8 && errors.contains("no space left"), "\(errors)")
        }
    }

    @Test func `A full non-blocking pipe is waited for`() throws {
        try withHome { ann in
            let wanted = try ann.ok("schema").output
            let (writer, reader) = try pipe(ann, O_NONBLOCK)
            // The smallest size on Linux, fcntl(2).
            _ = fcntl(writer.number, 1031, 4_096)
            let child = try Child([Program.mayfly, "schema", "--json", "--home", ann.home], output: writer)
            var output: [UInt8] = []
            var chunk = [UInt8](repeating: 0, count: 1_000)
            while output.count < wanted.utf8.count {
                var polled = pollfd(fd: reader.number, events: Int16(POLLIN), revents: 0)
                guard poll(&polled, 1, 90_000) > 0 else { break }
                let count = read(reader.number, &chunk, chunk.count)
                if count <= 0 { break }
                output += chunk[..<count]
            }
            #expect(String(decoding: output, as: UTF8.self) == wanted)
            #expect(child.wait(seconds: 90) == 0)
        }
    }

    @Test func `A closed standard error is no failure, and its text goes nowhere else`() throws {
        try withNode { ann in
            let path = "\(ann.directory)/output"
            for (arguments, code) in [
                (["lock"], 0), (["unlock"], 0), (["outbox", "list"], 0), (["peer", "show", "x"], 7),
            ] as [([String], Int32)] {
                let output = try Descriptor(path, O_WRONLY | O_CREAT | O_TRUNC)
                let answer = try run(arguments, ann, to: output, shell: #"exec "$@" 2>&-"#)
                #expect(answer.code == code && Program.text(path).isEmpty, "\(arguments)")
            }
            // The same without standard output: there the result itself is lost.
            let answer = try run(["version"], ann, to: try Descriptor("/dev/null", O_WRONLY), shell: #"exec "$@" >&-"#)
            #expect(answer.code == 1 && answer.errors.contains("cannot write"), "\(answer)")
        }
    }
}
