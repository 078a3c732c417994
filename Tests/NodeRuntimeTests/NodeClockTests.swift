import Messaging
import NodeRuntime
import Testing

@Suite struct NodeClockTests {
    private static let begin: Milliseconds = 1_000_000
    private static let ahead = begin + 10 * .minute
    private static let glitch = begin + .hour

    @Test func `a clock set back extends no lifetime`() {
        var clock = NodeClock(mark: 0, realtime: 1_000_000, boottime: 0)
        #expect(clock.read(realtime: 0, boottime: 5_000).confirmed == Timestamp(milliseconds: 1_005_000))
    }

    /// A large step forward hides messages at once, and is confirmed after a minute; a small one is confirmed at once.
    /// A corrected step confirms nothing, so that no message is destroyed: the minute starts again with the next one.
    @Test(
        arguments: [
            ([(ahead, 0)], ahead, begin), ([(ahead, 0), (ahead + .minute, .minute)], ahead + .minute, ahead + .minute),
            ([(glitch, 0), (1_030_000, 30_000)], 1_030_000, 1_030_000),
            (
                [(glitch, 0), (1_030_000, 30_000), (glitch, 31_000), (glitch + 40_000, 71_000)], glitch + 40_000,
                1_071_000
            ), ([(begin + .minute, 10)], begin + .minute, begin + .minute),
        ] as [([(Milliseconds, Milliseconds)], Milliseconds, Milliseconds)])
    func `a step forward hides, and is confirmed if it stays`(
        looks: [(realtime: Milliseconds, boottime: Milliseconds)], hide: Milliseconds, confirmed: Milliseconds
    ) {
        var clock = NodeClock(mark: 0, realtime: Self.begin, boottime: 0)
        var last: NodeClock.Reading?
        for look in looks { last = clock.read(realtime: look.realtime, boottime: look.boottime) }
        #expect(last?.hide == Timestamp(milliseconds: hide))
        #expect(last?.confirmed == Timestamp(milliseconds: confirmed))
    }

    @Test func `the clock does not start before the home's mark`() {
        var clock = NodeClock(mark: 2_000_000, realtime: 1_000_000, boottime: 0)
        #expect(clock.read(realtime: 1_000_000, boottime: 0).confirmed == Timestamp(milliseconds: 2_000_000))
    }

    @Test func `a small step forward survives a power cut that sets the clock back`() async throws {
        let (machine, node) = try await NodeMachine.started()
        let before = machine.now
        machine.wait(seconds: 100)
        // A client reads the time before the node's own timer does.
        #expect(await node.currentTime == before + 100 * .second)
        let next = NodeMachine(afterPowerCut: machine)
        next.wait(seconds: -5_000)
        #expect(await (try await next.node()).currentTime == before + 100 * .second)
    }
}

@Suite struct StorageRoomTests {
    private typealias Storage = NodeConfiguration.Storage

    /// Each record counts at least a KiB, for its place in the index.
    @Test(
        arguments: [
            (1 << 20, (1 << 20) - 1, 1, true), (1 << 20, 1 << 20, 1, false), (1 << 20, 1_023 * 100, 1_023, true),
            (1 << 20, 1_024 * 100, 1_024, false), (1 << 20, 0, .max, false), (nil, 300_000_000, 1_000_000, true),
            (0, 0, 0, false),
        ] as [(Int64?, Int64, Int, Bool)]) func `a full inbox accepts no more messages`(
            limit: Int64?, byteCount: Int64, recordCount: Int, isRoom: Bool
        )
    {
        let limits = limit.map { Storage(inboxByteCount: .init($0)) } ?? Storage()
        let room = StorageRoom(home: "/dev/shm", limits: limits)
        #expect(room.isFor(byteCount: byteCount, recordCount: recordCount) == isRoom)
    }
}
