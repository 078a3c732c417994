import Control
import Glibc
import Messaging
import TestSupport

/// A process of `mayfly run` and a client of its control socket.
package final class NodeProcess {
    package let home: String
    /// From the process start to its ready line, in milliseconds.
    package let startUp: Double
    package let client: ControlClient
    package let child: Child
    private var isRunning = true

    /// - Parameters:
    ///   - isNew: makes the home, listening at `listen`, with these `first` options of `mayfly init`.
    ///   - arguments: of `mayfly run`.
    package init(
        mayfly: String, home: String, isNew: Bool = true, listen: String = "tcp://127.0.0.1:0", first: [String] = [],
        arguments: [String] = []
    ) throws {
        self.home = home
        if isNew { _ = try Child.run([mayfly, "init", "--home", home, "--listen", listen, "--json"] + first) }
        let start = ContinuousClock.now
        child = try Child([mayfly, "run", "--home", home] + arguments)
        let line = try child.readLine()
        startUp = (ContinuousClock.now - start) / .milliseconds(1)
        guard try JSONReader.read(line)["event"] == "ready" else {
            throw Failure("not a ready line: \(String(decoding: line, as: UTF8.self))")
        }
        client = try ControlClient(home: home)
    }

    /// A value of /proc/PID/status, in MiB.
    package func memory(_ name: String = "VmRSS") throws -> Double {
        guard let figure = child.memory(name) else { throw Failure("/proc/\(child.pid)/status has no \(name)") }
        return figure
    }

    /// Processor time of all threads so far, including ended ones, in microseconds.
    package var processorTime: Double {
        get throws {
            var clock = clockid_t()
            var time = timespec()
            guard clock_getcpuclockid(child.pid, &clock) == 0, clock_gettime(clock, &time) == 0 else {
                throw Failure("no processor time of process \(child.pid)")
            }
            return Double(time.tv_sec) * 1_000_000 + Double(time.tv_nsec) / 1_000
        }
    }

    package var descriptors: Int {
        guard let directory = opendir("/proc/\(child.pid)/fd") else { return 0 }
        defer { closedir(directory) }
        var count = -2
        while readdir(directory) != nil { count += 1 }
        return count
    }

    package var isAlive: Bool { kill(child.pid, 0) == 0 && (try? client.call("status", [:])) != nil }

    package func stop() throws {
        guard isRunning else { return }
        isRunning = false
        kill(child.pid, SIGTERM)
        let code = child.wait()
        guard code == 0 else { throw Failure("process \(child.pid) ended with \(code)") }
    }

    deinit { try? stop() }

    /// A text of an answer.
    package func text(_ field: String, of method: String, _ params: JSONValue = [:]) throws -> String {
        let answer = try client.call(method, params)
        guard let text = answer[field]?.stringValue else { throw Failure("\(method): no \(field) in \(answer.text)") }
        return text
    }

    package func card() throws -> ContactCard { try ContactCard(text: text("contact", of: "peer.card")) }

    package func add(_ name: String, _ card: ContactCard) throws {
        _ = try client.call("peer.add", ["name": .string(name), "card": .string(card.description)])
    }

    package func turnOn(_ key: String, at peer: String) throws {
        _ = try client.call("peer.set", ["name": .string(peer), "key": .string(key), "value": "on"])
    }

    /// A new conversation and an invite to it.
    package func room(_ name: String? = nil) throws -> (id: String, slug: String) {
        let id = try text("conversation", of: "conversation.create", name.map { ["name": .string($0)] } ?? [:])
        return (id, try slug(of: id))
    }

    package func slug(of conversation: String) throws -> String {
        try text("slug", of: "invite.create", ["conversation": .string(conversation)])
    }

    package func join(_ slug: String, timeout: String = "10s") throws {
        let joined = try client.call("join", ["slug": .string(slug), "timeout": .string(timeout)])
        guard joined["state"] == "ready" else { throw Failure("the join did not succeed: \(joined.text)") }
    }
}

extension [Double] {
    /// The smallest element that is at least as large as the given share of all; of none, infinity.
    package func percentile(_ share: Double) -> Double {
        isEmpty ? .infinity : sorted()[Swift.min(count - 1, Int((Double(count) * share).rounded(.up)) - 1)]
    }
}
