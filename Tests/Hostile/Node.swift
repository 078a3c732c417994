import Adversary
import Control
import Foundation
import Glibc
import TestSupport

final class Node {
    let home: String
    let child: Child
    let client: ControlClient

    /// - Parameters:
    ///   - options: Options of `mayfly run`.
    ///   - first: Options of `mayfly init`.
    init(
        mayfly: String, home: String, options: [String] = [], listen: String = "tcp://127.0.0.1:0", first: [String] = []
    ) throws {
        self.home = home
        let made = try Child([mayfly, "init", "--home", home, "--listen", listen, "--json"] + first)
        _ = try made.readLine()
        guard made.wait() == 0 else { throw Failure("mayfly init failed") }
        child = try Child([mayfly, "run", "--home", home] + options)
        guard try JSONReader.read(try child.readLine())["event"] == "ready" else { throw Failure("no ready line") }
        client = try ControlClient(home: home)
    }

    func memory(_ name: String = "VmRSS") -> Double { child.memory(name) ?? 0 }

    var descriptors: Int {
        guard let directory = opendir("/proc/\(child.pid)/fd") else { return 0 }
        defer { closedir(directory) }
        var count = -2
        while readdir(directory) != nil { count += 1 }
        return count
    }

    /// Processor seconds since the start.
    var processorTime: Double {
        let fields = (child.line("stat", "") ?? "").split(separator: " ")
        guard fields.count > 15, let user = Double(fields[13]), let system = Double(fields[14]) else { return 0 }
        return (user + system) / Double(sysconf(Int32(_SC_CLK_TCK)))
    }

    var isAlive: Bool { kill(child.pid, 0) == 0 && (try? client.call("status", [:])) != nil }

    func stop() -> Bool {
        kill(child.pid, SIGTERM)
        return child.wait() == 0
    }
}

final class Watcher: @unchecked Sendable {
    struct Figures: Sendable {
        /// MiB, five times a second.
        var memory: [Double] = []
        var descriptors = 0

        var peak: Double { memory.max() ?? 0 }
        /// Values at each tenth of the time.
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
