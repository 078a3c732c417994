import Foundation
import Glibc
import Testing

@Suite("Confinement", .script) struct ConfinementTests {
    private func confined(_ script: String, in directory: String) throws -> Answer {
        try Program.run([Program.mayfly, "confine", "/usr/bin/python3", "-c", script], in: directory)
    }

    @Test("A confined program computes, reads the system's files, makes threads and writes to its output") func works()
        throws
    {
        try withDirectory { directory in
            let script = """
                import hashlib, threading
                done = []
                thread = threading.Thread(target=lambda: done.append(hashlib.sha256(open('/usr/bin/env', 'rb').read())))
                thread.start(); thread.join()
                print('works', len(done))
                """
            let answer = try confined(script, in: directory)
            #expect(answer.code == 0 && answer.output == "works 1\n", "\(answer)")
        }
    }

    private static let attempts = [
        "open('FILE', 'w')", "open('FILE', 'a')", "os.open('FILE', os.O_RDWR)", "os.unlink('FILE')",
        "os.rename('FILE', 'x')", "os.mkdir('sub')", "os.symlink('FILE', 'link')", "os.link('FILE', 'link')",
        "os.chmod('FILE', 0)", "os.truncate('FILE', 0)", "os.utime('FILE')", "os.mkfifo('pipe')", "socket.socket()",
        "socket.socket(socket.AF_UNIX)", "socket.socketpair()", "os.fork()",
        "os.posix_spawn('/usr/bin/env', ['env'], {})", "os.kill(os.getppid(), 0)", "os.kill(1, 0)",
        "fcntl.ioctl(0, 0x5412, b'x')", "os.chroot('/')", "open('/proc/self/mem', 'r+b')",
        "os.setpgid(0, os.getppid())", "os.setsid()", "resource.prlimit(os.getppid(), resource.RLIMIT_CPU)",
        "os.memfd_create('x')", "signal.pthread_kill(threading.get_ident(), 0)", "fcntl.fcntl(0, 8, os.getppid())",
        "os.setpriority(os.PRIO_PROCESS, os.getppid(), 1)", "os.removexattr('FILE', 'user.x')",
    ]

    @Test func `A confined program can do nothing else`() throws {
        try withDirectory { directory in
            let file = "\(directory)/file"
            #expect(FileManager.default.createFile(atPath: file, contents: Data("secret".utf8)))
            let imports = "import os, socket, fcntl, sys, resource, signal, threading\n"
            let script = Self.attempts.map { attempt in
                """
                try:
                    \(attempt.replacingOccurrences(of: "FILE", with: file))
                    print('done')
                except OSError as error:
                    print('refused')

                """
            }.joined()
            let answer = try confined("\(imports)os.chdir('/usr')\n\(script)", in: directory)
            let results = answer.output.split(separator: "\n")
            #expect(results.count == Self.attempts.count, "\(answer)")
            for (attempt, result) in zip(Self.attempts, results) { #expect(result == "refused", "\(attempt)") }
            #expect(Program.text(file) == "secret")
            let left = try FileManager.default.contentsOfDirectory(atPath: directory)
            #expect(left.filter { $0 != "file" && !$0.hasPrefix(".run") } == [])
            // Proves that the program succeeds without confinement.
            let free = try Program.run(
                ["/usr/bin/python3", "-c", "import os, socket, fcntl; open('/dev/null')"], in: directory)
            #expect(free.code == 0)
        }
    }

    @Test func `A confined program is ended when it takes too much memory or time`() throws {
        try withDirectory { directory in
            #expect(try confined("x = bytearray(3 << 30)", in: directory).code != 0)
            let spinning = try Program.run(
                [Program.mayfly, "confine", "/usr/bin/python3", "-c", "while True: pass"], in: directory, seconds: 60)
            #expect(spinning.code == -SIGXCPU || spinning.code == -SIGKILL, "\(spinning)")
            #expect(
                try Program.run([Program.mayfly, "confine", "/usr/bin/no-such-program"], in: directory).code == 127)
        }
    }
}
