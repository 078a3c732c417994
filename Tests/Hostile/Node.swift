import Adversary
import Control
import Foundation
import Glibc

/// A process that this one has started.
final class Child {
    let pid: pid_t
    private let output: Int32

    /// - Parameter arguments: the program first.
    init(_ arguments: [String]) throws {
        var pipe: [Int32] = [-1, -1]
        guard Glibc.pipe(&pipe) == 0 else { throw Failure("pipe: \(errno)") }
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
        guard outcome == 0 else { throw Failure("cannot start \(arguments[0]): \(String(cString: strerror(outcome)))") }
        self.pid = pid
        output = pipe[0]
    }

    func readLine() throws -> [UInt8] {
        var line: [UInt8] = []
        var byte: UInt8 = 0
        while read(output, &byte, 1) == 1 {
            if byte == 0x0A { return line }
            line.append(byte)
        }
        throw Failure("process \(pid) ended without a word")
    }

    /// - Returns: the exit code, negative for a signal.
    func wait() -> Int32 {
        var status: Int32 = 0
        guard waitpid(pid, &status, 0) == pid else { return -1 }
        return status & 0x7F == 0 ? status >> 8 & 0xFF : -(status & 0x7F)
    }

    deinit { close(output) }
}

/// A node with a home of its own.
final class Node {
    let home: String
    let child: Child
    let client: ControlClient

    /// - Parameters:
    ///   - options: of `mayfly run`.
    ///   - first: of `mayfly init`.
    init(
        mayfly: String,
        home: String,
        options: [String] = [],
        listen: String = "tcp://127.0.0.1:0",
        first: [String] = []
    ) throws {
        self.home = home
        let made = try Child([mayfly, "init", "--home", home, "--listen", listen, "--json"] + first)
        _ = try made.readLine()
        guard made.wait() == 0 else { throw Failure("mayfly init failed") }
        child = try Child([mayfly, "run", "--home", home] + options)
        guard try JSONReader.read(try child.readLine())["event"] == "ready" else { throw Failure("no ready line") }
        client = try ControlClient(home: home)
    }

    /// A figure of /proc/PID/status, in MiB.
    func memory(_ name: String = "VmRSS") -> Double {
        let digits = line("status", name + ":").drop { !$0.isNumber }.prefix { $0.isNumber }
        return (Double(digits) ?? 0) / 1_024
    }

    private func line(_ file: String, _ prefix: String) -> String {
        guard let file = fopen("/proc/\(child.pid)/\(file)", "r") else { return "" }
        defer { fclose(file) }
        var line: UnsafeMutablePointer<CChar>?
        var capacity = 0
        defer { free(line) }
        while getline(&line, &capacity, file) > 0, let text = line.map({ String(cString: $0) }) {
            if text.hasPrefix(prefix) { return text }
        }
        return ""
    }

    var descriptors: Int {
        guard let directory = opendir("/proc/\(child.pid)/fd") else { return 0 }
        defer { closedir(directory) }
        var count = -2
        while readdir(directory) != nil { count += 1 }
        return count
    }

    /// Seconds of the processor since the start.
    var processorTime: Double {
        let fields = line("stat", "").split(separator: " ")
        guard fields.count > 15, let user = Double(fields[13]), let system = Double(fields[14]) else { return 0 }
        return (user + system) / Double(sysconf(Int32(_SC_CLK_TCK)))
    }

    var isAlive: Bool { kill(child.pid, 0) == 0 && (try? client.call("status", [:])) != nil }

    /// - Returns: whether it ends cleanly.
    func stop() -> Bool {
        kill(child.pid, SIGTERM)
        return child.wait() == 0
    }
}

/// Notes the figures of a node while something goes on.
final class Watcher: @unchecked Sendable {
    struct Figures: Sendable {
        /// MiB, five times a second.
        var memory: [Double] = []
        var descriptors = 0

        var peak: Double { memory.max() ?? 0 }
        /// At each tenth of the time.
        var course: [Double] {
            guard let last = memory.indices.last else { return [] }
            return (0...10).map { memory[last * $0 / 10] }
        }
    }

    private let node: Node
    private let lock = NSLock()
    private var isOver = false
    private var figures = Figures()
    private let done = DispatchSemaphore(value: 0)

    init(_ node: Node) {
        self.node = node
        Thread.detachNewThread { [self] in
            while !lock.withLock({ isOver }) {
                let seen = (self.node.memory(), self.node.descriptors)
                lock.withLock {
                    figures.memory.append(seen.0)
                    figures.descriptors = max(figures.descriptors, seen.1)
                }
                usleep(200_000)
            }
            done.signal()
        }
    }

    func end() -> Figures {
        lock.withLock { isOver = true }
        done.wait()
        return figures
    }
}
