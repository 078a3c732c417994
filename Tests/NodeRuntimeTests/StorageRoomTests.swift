import Messaging
import NodeRuntime
import Testing

@Suite struct StorageRoomTests {
    private func client(_ byte: UInt8) -> ClientID {
        ClientID(unchecked: [UInt8](repeating: byte, count: ClientID.byteCount))
    }

    @Test func `an inbox that is full takes no more until something has expired, and no other inbox minds`() {
        var room = StorageRoom(home: "/dev/shm")
        let (full, other) = (client(1), client(2))
        #expect(room.isFor(full))
        // The messages that are there already count too.
        room.stored(full) { Limits.storedCount - 1 }
        #expect(!room.isFor(full) && room.isFor(other))
        room.expired(full)
        #expect(room.isFor(full))
        room.stored(full) { 0 }
        #expect(!room.isFor(full))
        room.forget(full)
        #expect(room.isFor(full))
    }
}
