import Cryptography
import Messaging
import NodeRuntime
import Store
import Testing

@Suite("clientId") struct ClientIDTests {
    /// The format in which the node saves an inbox.
    private struct Snapshot: Encodable {
        var record: InboxRecord
        var counters: [Int] = []
        var outboxPlace = 0
        var notes = Notes()
    }

    private struct Notes: Encodable {
        var takesName = true
        var sentInvites: [Int] = []
        var guests: [Int] = []
        var shownPlace = 0
    }

    @Test("The second of two inboxes with one clientId is refused as clientIdMismatch, and the node reports it")
    func mismatch() async throws {
        let machine = try NodeMachine()
        var random = Randomness.seeded(1)
        let client = ClientID.generate(&random)
        let store = try Store.open(
            home: NodeMachine.home, fileSystem: machine.disk, now: machine.now.milliseconds, committingOn: .caller)
        try store.unlock(passphrase: nil)
        for _ in 0..<2 {
            let record = InboxRecord(client: client, createdAt: machine.now, role: .unused)
            try store.saveState(try store.createRow(), StoredCodec.encode(record: Snapshot(record: record)))
        }
        store.commit { _ in }
        store.close()
        let node = try await machine.start()
        let damage = await node.status().damage
        #expect(damage.contains { $0.lowercased().contains("clientidmismatch") }, "\(damage)")
        let inboxes = try await node.inboxStates().map(\.client)
        #expect(inboxes.filter { $0 == client }.count == 1 && Set(inboxes).count == inboxes.count)
        try await machine.end(node)
    }
}
