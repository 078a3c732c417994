import Control
import FoundationEssentials
import Glibc

/// Thousands of inboxes: memory asleep and awake, wake time and start time.
extension Run {
    private static let inboxCount = 10_000

    func measureInboxes(into table: inout Table) throws {
        let create = ControlRequest(id: .integer(1), method: "conversation.create", params: [:]).jsonValue.utf8 + [0x0a]
        let awake = try NodeProcess(
            mayfly: mayfly, home: "\(directory)/awake", isNew: true, arguments: ["--capacity", "2000"])
        let empty = try awake.memory("VmRSS")
        // One after the other at full speed, so that the pool of one is empty each time.
        let rate = try Pipeline(home: awake.home).run([create], count: 1_000)
        table.add(.identityFresh, 1_000_000 / rate)
        table.add(.memoryAwake, (try awake.memory("VmRSS") - empty) * 1_024 / 1_000)
        try awake.stop()

        let node = try NodeProcess(mayfly: mayfly, home: "\(directory)/many", isNew: true)
        let before = try node.memory("VmRSS")
        let pipeline = try Pipeline(home: node.home)
        _ = try pipeline.run([create], count: 1_000)
        table.add(.rebalanceFew, try rebalance(node))
        _ = try pipeline.run([create], count: Self.inboxCount - 1_000)
        table.add(.rebalanceMany, try rebalance(node))
        table.add(.memoryAsleep, (try node.memory("VmRSS") - before) * 1_024 / Double(Self.inboxCount))
        guard case .array(let listed)? = try node.client.call("inbox.list", [:])["inboxes"] else {
            throw Failure("inbox.list names no inboxes")
        }
        let sleeping = listed.filter { $0["state"] == "sleeping" }.prefix(300).compactMap { $0["inbox"] }
        let waking = try sleeping.map { inbox in
            try microseconds { _ = try node.client.call("inbox.wake", ["inbox": inbox]) }
        }
        table.add(.wakeMedian, waking.percentile(0.5))
        table.add(.wakeTail, waking.percentile(0.99))
        try node.stop()
        let again = try NodeProcess(mayfly: mayfly, home: "\(directory)/many", isNew: false)
        table.add(.startUpMany, again.startUp)
        table.add(.memoryMany, try again.memory("VmRSS"))
        try again.stop()
    }

    /// Cost of a conversation beside thousands of unused ones: messages, `status`, and the idle process. `make
    /// allocations` measures the tick alone.
    func measureNeighbours(into table: inout Table) throws {
        let ann = try NodeProcess(mayfly: mayfly, home: "\(directory)/neighbour-a", isNew: true)
        let bob = try NodeProcess(mayfly: mayfly, home: "\(directory)/neighbour-b", isNew: true)
        let conversation = try converse(ann, bob, "used")
        try agree(ann, bob, conversation)
        let pipeline = try Pipeline(home: ann.home)
        func measure(_ rate: Figure, _ median: Figure) throws {
            // The first requests run cold code.
            _ = try pipeline.run([request(conversation)], count: 20_000)
            table.add(rate, try pipeline.run([request(conversation)], count: 60_000))
            table.add(median, try latency(ann, conversation).median)
        }
        try measure(.rateAlone, .medianAlone)
        let create = ControlRequest(id: .integer(1), method: "conversation.create", params: [:]).jsonValue.utf8 + [0x0a]
        for node in [ann, bob] { _ = try Pipeline(home: node.home).run([create], count: Self.inboxCount) }
        try measure(.rateNeighbours, .medianNeighbours)
        table.add(.statusNeighbours, try status(ann))
        table.add(.idleTick, try idleTick(ann))
        try ann.stop()
        try bob.stop()
    }

    /// Processor time of an idle node per tick that checks the clock for steps.
    private func idleTick(_ node: NodeProcess) throws -> Double {
        // Waits for delayed writes of counters and states.
        sleep(5)
        let before = try node.runTime
        let ticks = 3
        sleep(UInt32(10 * ticks))
        return try (node.runTime - before) / Double(ticks)
    }

    private func rebalance(_ node: NodeProcess) throws -> Double {
        try (0..<11).map { _ in try microseconds { _ = try node.client.call("inbox.rebalance", [:]) } }.median
    }
}
