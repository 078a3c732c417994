import Adversary
import Control
import FoundationEssentials
import Glibc
import TestSupport

/// Two nodes with thousands of linked conversations: their start, its first ten seconds, and doing nothing.
struct LinkedRun {
    let site: Site

    func measure() throws {
        let handshakes = try Links().handshakes()
        var nodes = try ["linked-a", "linked-b"].map { name in
            let node = try site.node(name, first: ["--capacity", "2000"])
            // The same port at the next start.
            let listen = try node.client.call("status", [:])["listen"]?.text ?? ""
            _ = try Child.run([site.mayfly, "config", "set", "listen", listen, "--home", node.home])
            return node
        }
        var count = 0
        for (target, startUp) in [(1_000, Figure.startUpLinked), (2_000, .startUpLinkedMany)] {
            for _ in count..<target { try nodes[1].join(try nodes[0].room().slug) }
            count = target
            if count == 1_000 {
                sleep(30)
                try measureIdle(nodes)
            }
            for node in nodes { try node.stop() }
            nodes = try ["linked-a", "linked-b"].map { name in
                try site.table.time(startUp) {
                    let again = try site.node(name, isNew: false)
                    _ = try Child.run([site.mayfly, "status", "--home", again.home])
                    return again
                }
            }
            guard count == 1_000 else { continue }
            sleep(10)
            let beyond = try nodes.map { try $0.processorTime - Double(count) * 500_000 / handshakes }
            site.table.add(.startTime, beyond.max()! / 1_000)
            try measureIdle(nodes)
        }
        for node in nodes { try node.stop() }
    }

    /// Processor time and wake-ups a second over half a minute, of the busier node.
    private func measureIdle(_ nodes: [NodeProcess]) throws {
        let before = try nodes.map { (time: try $0.processorTime, wakes: try wakeUps(of: $0)) }
        sleep(30)
        site.table.add(.idleLinked, try zip(nodes, before).map { (try $0.processorTime - $1.time) / 30 }.max()!)
        site.table.add(.wakesLinked, try zip(nodes, before).map { Double(try wakeUps(of: $0) - $1.wakes) / 30 }.max()!)
        for node in nodes where try node.client.call("status", [:])["links"] != 1_000 {
            throw Failure("links are missing")
        }
    }

    /// Voluntary context switches of all threads.
    private func wakeUps(of node: NodeProcess) throws -> Int {
        let threads = try FileManager.default.contentsOfDirectory(atPath: "/proc/\(node.child.pid)/task")
        return threads.reduce(0) { sum, thread in
            let line = node.child.line("task/\(thread)/status", "voluntary_ctxt_switches:")
            return sum + (line.flatMap { Int($0.filter(\.isNumber)) } ?? 0)
        }
    }
}
