import Control
import Foundation
import Glibc
import Testing

@testable import Program

/// Many clients of one node, waiting or idle.
@Suite("Many clients") struct ClientLimitTests {
    private func withAbsentMember(_ body: (_ ann: TestNode) throws -> Void) throws {
        try withHomes("ann", "bob") { nodes in
            for node in nodes { try node.start() }
            try meet(nodes[0], nodes[1])
            try nodes[1].stop()
            try nodes[0].wait("peerOffline", after: 0)
            try body(nodes[0])
        }
    }

    @Test("With 64 waiting commands status, doctor, lists, explode, lock and stop still work") func waiting() throws {
        try withAbsentMember { ann in
            let clients = try (0..<ControlLimits.waitingConnections).map { _ in try ControlClient(home: ann.home) }
            for client in clients {
                let params = SendParams(conversation: "room", text: "hi", wait: .delivered)
                _ = try client.send(Methods.send, params, body: [], until: nil)
                // The answer proves that the node has read the request before.
                _ = try client.call(Methods.version, Nothing())
            }
            let refused = try ann.fails(1, "send", "room", "hi", "--wait", "delivered")
            #expect(refused.message.contains("wait already"), "\(refused)")
            try ann.ok("send", "room", "without a wait")
            for _ in 0..<3 {
                try ann.ok("status")
                try ann.ok("conversation", "list")
                #expect(try ann.run(["doctor"]).lines.contains { $0["name"].string == "erasure" })
            }
            try ann.ok("explode", "room", "--force")
            try ann.ok("lock")
            try ann.ok("unlock")
            try ann.ok("stop")
            _ = clients
        }
    }

    @Test("Idle clients that hold all the node's descriptors lock no client out, and use no processor time")
    func descriptors() throws {
        try withHomes("ann") { nodes in
            let ann = nodes[0]
            ann.prefix = ["prlimit", "--nofile=64:64"]
            try ann.start()
            // More than the node has descriptors for: the last ones wait in the kernel.
            let clients = (0..<60).compactMap { _ in try? ControlClient(home: ann.home, timeout: .seconds(1)) }
            #expect(clients.count == 60)
            for _ in 0..<5 { try ann.ok("status") }
            func seconds() -> Double {
                let fields = Program.text("/proc/\(ann.pid)/stat").split(separator: " ").compactMap { Double($0) }
                // utime and stime; the process name is no number and drops out.
                return (fields[11] + fields[12]) / Double(sysconf(Int32(_SC_CLK_TCK)))
            }
            let before = seconds()
            let began = ContinuousClock.now
            try ann.fails(4, "watch", "--until", "exploded", "--timeout", "2")
            let share = (seconds() - before) / ((ContinuousClock.now - began) / .seconds(1))
            #expect(share < 0.5, "a part of a core: \(share)")
            try ann.ok("stop")
            _ = clients
        }
    }
}
