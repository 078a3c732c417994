import Messaging
import NodeRuntime
import Testing

@Suite struct StorageRoomTests {
    private typealias Storage = NodeConfiguration.Storage

    @Test func `an inbox that is full takes no more until something has expired`() {
        let room = StorageRoom(home: "/dev/shm", limits: Storage(inboxByteCount: .init(1 << 20)))
        #expect(room.isFor(byteCount: (1 << 20) - 1, recordCount: 1))
        #expect(!room.isFor(byteCount: 1 << 20, recordCount: 1))
    }

    @Test func `small messages count for their place in the index`() {
        let room = StorageRoom(home: "/dev/shm", limits: Storage(inboxByteCount: .init(1 << 20)))
        #expect(room.isFor(byteCount: 1_023 * 100, recordCount: 1_023))
        #expect(!room.isFor(byteCount: 1_024 * 100, recordCount: 1_024))
        #expect(!room.isFor(byteCount: 0, recordCount: .max))
    }

    @Test func `a million messages are within the usual limits, and nothing is within none`() {
        let usual = StorageRoom(home: "/dev/shm", limits: Storage())
        #expect(usual.isFor(byteCount: 300_000_000, recordCount: 1_000_000))
        let none = StorageRoom(home: "/dev/shm", limits: Storage(inboxByteCount: .init(0)))
        #expect(!none.isFor(byteCount: 0, recordCount: 0))
    }
}
