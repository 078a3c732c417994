import Control
import Glibc

/// A process that this one has started.
struct Child: ~Copyable {
    let pid: pid_t
    private let output: Int32

    /// - Parameter arguments: the program first.
    init(_ arguments: [String]) throws {
        var pipe: [Int32] = [-1, -1]
        guard Glibc.pipe(&pipe) == 0 else { throw Failure.system("pipe") }
        for end in pipe { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, pipe[1], 1)
        var strings = arguments.map { strdup($0) } + [nil]
        defer { for string in strings { free(string) } }
        var pid = pid_t()
        let outcome = posix_spawn(&pid, arguments[0], &actions, nil, &strings, environ)
        close(pipe[1])
        guard outcome == 0 else {
            close(pipe[0])
            throw Failure("cannot start \(arguments[0]): \(String(cString: strerror(outcome)))")
        }
        self.pid = pid
        output = pipe[0]
    }

    /// The next of its output; empty at the end.
    func read() throws -> [UInt8] {
        var count = 0
        let bytes = [UInt8](unsafeUninitializedCapacity: 65_536) { buffer, initialized in
            count = Glibc.read(output, buffer.baseAddress, buffer.count)
            initialized = max(0, count)
        }
        guard count >= 0 else { throw Failure.system("read") }
        return bytes
    }

    func readLine() throws -> [UInt8] {
        var line: [UInt8] = []
        while line.last != UInt8(ascii: "\n") {
            let more = try read()
            guard !more.isEmpty else { throw Failure("process \(pid) ended without a word") }
            line += more
        }
        return line
    }

    /// - Returns: the exit code.
    func wait() throws -> Int32 {
        var status: Int32 = 0
        guard waitpid(pid, &status, 0) == pid else { throw Failure.system("waitpid") }
        guard status & 0x7f == 0 else { throw Failure("process \(pid) died of signal \(status & 0x7f)") }
        return status >> 8 & 0xff
    }

    deinit { close(output) }

    /// Runs a program to its end.
    /// - Returns: its output.
    static func run(_ arguments: [String]) throws -> [UInt8] {
        let child = try Child(arguments)
        var output: [UInt8] = []
        while case let more = try child.read(), !more.isEmpty { output += more }
        let code = try child.wait()
        guard code == 0 else {
            throw Failure(
                "\(arguments.joined(separator: " ")): exit code \(code): \(String(decoding: output, as: UTF8.self))"
            )
        }
        return output
    }
}

/// A node in a home of its own, and a connection to its control socket.
final class NodeProcess {
    let home: String
    let mayfly: String
    /// From the start of the process to its ready line, in milliseconds.
    let startUp: Double
    let client: ControlClient
    private let child: Child
    private var isRunning = true

    /// - Parameters:
    ///   - isNew: make the home first.
    ///   - arguments: of `mayfly run`.
    init(mayfly: String, home: String, isNew: Bool, arguments: [String] = []) throws {
        self.mayfly = mayfly
        self.home = home
        if isNew { _ = try Child.run([mayfly, "init", "--home", home, "--listen", "tcp://127.0.0.1:0", "--json"]) }
        let start = ContinuousClock.now
        let child = try Child([mayfly, "run", "--home", home] + arguments)
        let line = try child.readLine()
        startUp = (ContinuousClock.now - start) / .milliseconds(1)
        guard try JSONReader.read(line)["event"] == "ready" else {
            throw Failure("not a ready line: \(String(decoding: line, as: UTF8.self))")
        }
        self.child = child
        client = try ControlClient(home: home)
    }

    /// A figure of /proc/PID/status, in MiB.
    func memory(_ name: String) throws -> Double {
        let path = "/proc/\(child.pid)/status"
        guard let file = fopen(path, "r") else { throw Failure.system("open \(path)") }
        defer { fclose(file) }
        var line: UnsafeMutablePointer<CChar>?
        var capacity = 0
        defer { free(line) }
        while getline(&line, &capacity, file) > 0, let text = line.map({ String(cString: $0) }) {
            guard text.hasPrefix("\(name):") else { continue }
            let digits = text.drop { !$0.isNumber }.prefix { $0.isNumber }
            if let kibibytes = Double(digits) { return kibibytes / 1_024 }
        }
        throw Failure("\(path) has no \(name)")
    }

    func stop() throws {
        guard isRunning else { return }
        isRunning = false
        kill(child.pid, SIGTERM)
        _ = try child.wait()
    }

    deinit { try? stop() }
}
