import Messaging
import NodeRuntime
import Testing

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
