import Control
import FoundationEssentials

/// Thousands of inboxes: what one costs asleep and awake, how fast one wakes, how long a start takes.
extension Run {
    private static let inboxCount = 10_000

    func measureInboxes(into table: inout Table) throws {
        let create = ControlRequest(id: .integer(1), method: "conversation.create", params: [:]).jsonValue.utf8 + [0x0a]
        let awake = try NodeProcess(
            mayfly: mayfly,
            home: "\(directory)/awake",
            isNew: true,
            arguments: ["--capacity", "2000"]
        )
        let empty = try awake.memory("VmRSS")
        // One after the other as fast as they come: the pool of one is empty each time.
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

    private func rebalance(_ node: NodeProcess) throws -> Double {
        try (0..<11).map { _ in try microseconds { _ = try node.client.call("inbox.rebalance", [:]) } }.median
    }
}
