import Messaging
import NodeRuntime
import Testing

@Suite struct NodeClockTests {
    @Test func `a clock set back extends no lifetime`() {
        var clock = NodeClock(mark: 0, realtime: 1_000_000, boottime: 0)
        #expect(clock.read(realtime: 0, boottime: 5_000).confirmed == Timestamp(milliseconds: 1_005_000))
    }

    @Test func `the clock does not start before the home's mark`() {
        var clock = NodeClock(mark: 2_000_000, realtime: 1_000_000, boottime: 0)
        #expect(clock.read(realtime: 1_000_000, boottime: 0).confirmed == Timestamp(milliseconds: 2_000_000))
    }

    @Test func `a large step forward hides messages at once, and is confirmed after a minute`() {
        var clock = NodeClock(mark: 0, realtime: 1_000_000, boottime: 0)
        let ahead: Milliseconds = 1_000_000 + 10 * .minute
        let first = clock.read(realtime: ahead, boottime: 0)
        #expect(first.hide == Timestamp(milliseconds: ahead))
        #expect(first.confirmed == Timestamp(milliseconds: 1_000_000))
        let later = clock.read(realtime: ahead + .minute, boottime: .minute)
        #expect(later.confirmed == Timestamp(milliseconds: ahead + .minute))
    }

    @Test func `a corrected step forward confirms nothing, so no message is destroyed`() {
        var clock = NodeClock(mark: 0, realtime: 1_000_000, boottime: 0)
        _ = clock.read(realtime: 1_000_000 + .hour, boottime: 0)
        let corrected = clock.read(realtime: 1_030_000, boottime: 30_000)
        #expect(corrected.hide == Timestamp(milliseconds: 1_030_000))
        // The minute starts again with the next glitch.
        _ = clock.read(realtime: 1_000_000 + .hour, boottime: 31_000)
        let again = clock.read(realtime: 1_000_000 + .hour + 40_000, boottime: 71_000)
        #expect(again.confirmed == Timestamp(milliseconds: 1_071_000))
    }

    @Test func `a small step forward is confirmed at once`() {
        var clock = NodeClock(mark: 0, realtime: 1_000_000, boottime: 0)
        let reading = clock.read(realtime: 1_000_000 + .minute, boottime: 10)
        #expect(reading.confirmed == Timestamp(milliseconds: 1_000_000 + .minute))
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

    @Test func `a full inbox accepts no more messages`() {
        let room = StorageRoom(home: "/dev/shm", limits: Storage(inboxByteCount: .init(1 << 20)))
        #expect(room.isFor(byteCount: (1 << 20) - 1, recordCount: 1))
        #expect(!room.isFor(byteCount: 1 << 20, recordCount: 1))
    }

    @Test func `a small message also counts for its place in the index`() {
        let room = StorageRoom(home: "/dev/shm", limits: Storage(inboxByteCount: .init(1 << 20)))
        #expect(room.isFor(byteCount: 1_023 * 100, recordCount: 1_023))
        #expect(!room.isFor(byteCount: 1_024 * 100, recordCount: 1_024))
        #expect(!room.isFor(byteCount: 0, recordCount: .max))
    }

    @Test func `the default limits allow a million messages, and a limit of zero allows none`() {
        let usual = StorageRoom(home: "/dev/shm", limits: Storage())
        #expect(usual.isFor(byteCount: 300_000_000, recordCount: 1_000_000))
        let none = StorageRoom(home: "/dev/shm", limits: Storage(inboxByteCount: .init(0)))
        #expect(!none.isFor(byteCount: 0, recordCount: 0))
    }
}
