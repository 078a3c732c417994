import Cryptography
import Glibc
import Logging
import Messaging
import NIOCore
import NIOPosix
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
        var template = Array("/tmp/mayfly-home-XXXXXX".utf8CString)
        let parent = try #require(
            template.withUnsafeMutableBufferPointer { mkdtemp($0.baseAddress!) }.map { String(cString: $0) })
        let home = "\(parent)/home"
        try Store.create(home: home, protection: .keyFile, passphrase: nil)
        try NodeConfiguration(name: nil, listen: [], advertise: []).save(home: home)
        var random = Randomness.seeded(1)
        let client = ClientID.generate(&random)
        let now = NodeClock.realtime()
        let store = try Store.open(home: home, now: now, committingOn: .caller)
        try store.unlock(passphrase: nil)
        for _ in 0..<2 {
            let record = InboxRecord(client: client, createdAt: Timestamp(milliseconds: now), role: .unused)
            try store.saveState(try store.createRow(), StoredCodec.encode(record: Snapshot(record: record)))
        }
        store.commit { _ in }
        store.close()
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        var options = Node.Options(home: home, version: "test")
        options.listen = []
        let loop = group.next()
        let node = try await loop.submit { [options] in
            try Node.open(options, on: loop, log: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }))
        }.get()
        try await node.start(passphrase: nil)
        let damage = await node.status().damage
        #expect(damage.contains { $0.lowercased().contains("clientidmismatch") }, "\(damage)")
        let inboxes = try await node.inboxStates().map(\.client)
        #expect(inboxes.filter { $0 == client }.count == 1 && Set(inboxes).count == inboxes.count)
        await node.stop()
        try await group.shutdownGracefully()
        for name in try await Self.files(home).reversed() + [home, parent] { remove(name) }
    }

    private static func files(_ directory: String) async throws -> [String] {
        var result: [String] = []
        guard let stream = opendir(directory) else { return [] }
        defer { closedir(stream) }
        while let entry = readdir(stream) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) { pointer in
                pointer.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            guard name != ".", name != ".." else { continue }
            result.append("\(directory)/\(name)")
            if entry.pointee.d_type == UInt8(DT_DIR) { result += try await files("\(directory)/\(name)") }
        }
        return result
    }
}
