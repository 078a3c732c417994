import Control
import Foundation
import Glibc
import Testing

@testable import Program

@Suite("Many clients") struct ClientLimitTests {
    @Test("Idle clients that hold all the node's descriptors lock no client out, and use no processor time")
    func descriptors() throws {
        try withHome { ann in
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
