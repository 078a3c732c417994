import Logging
import Messaging
import NIOCore
import NIOEmbedded
import SimulatedDisk
import Store
import Synchronization
import Testing

@testable import NodeRuntime

@Suite("Undurable chunks of files") struct ChunkLimitTests {
    /// Commits that a stalled disk has not begun.
    private final class Standstill: Sendable {
        private let works = Mutex<[@Sendable () -> Void]>([])

        func add(_ work: @escaping @Sendable () -> Void) { works.withLock { $0.append(work) } }

        func end() { while let work = works.withLock({ $0.isEmpty ? nil : $0.removeFirst() }) { work() } }
    }

    private let loop = EmbeddedEventLoop()
    private let standstill = Standstill()
    private let shell: Shell
    private let inbox: Inbox

    init() throws {
        let disk = SimulatedDisk()
        try disk.makeHome()
        var environment = Environment()
        environment.disk = disk
        environment.commitThread = .later { [standstill] in standstill.add($0) }
        environment.realtime = { 1_800_000_000_000 }
        environment.space = { _ in nil }
        let services = try NodeServices(
            Node.Options(home: "/home", version: "test"),
            configuration: NodeConfiguration(name: nil, listen: [], advertise: []), environment: environment,
            loop: loop, log: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }))
        try services.store.unlock(passphrase: nil)
        shell = Shell(services, PeerBook(PeersFile()))
        var random = Randomness.seeded(1)
        inbox = Inbox(
            client: ClientID.generate(&random), row: try services.store.createRow(), store: services.store,
            memory: shell.memory)
        shell.inboxes.add(inbox)
    }

    /// Whether an effect of the inbox waits for a commit.
    private var isBlocked: Bool {
        var hasRun = false
        shell.commits.sendWhenDurable(.run { _ in hasRun = true }, for: inbox.client)
        return !hasRun
    }

    /// - Parameter pause: in ms between two chunks. A commit of a slow file has a few chunks.
    @Test(
        "undurable chunks stay within two MiB while the disk stands still, however slowly they arrive",
        arguments: [0, 150]) func limit(pause: Int64) throws
    {
        let chunkByteCount = 64 << 10
        var count = 0
        while count < 256 {
            shell.commits.storedChunk(byteCount: chunkByteCount, inbox)
            count += 1
            if isBlocked { break }
            loop.advanceTime(by: .milliseconds(pause))
        }
        #expect(count * chunkByteCount == 2 << 20)
        loop.advanceTime(by: .milliseconds(150))
        standstill.end()
        loop.run()
        shell.commits.storedChunk(byteCount: chunkByteCount, inbox)
        #expect(!isBlocked)
        loop.advanceTime(by: .milliseconds(150))
        standstill.end()
        loop.run()
        shell.services.store.close()
    }

    @Test func `undurable chunks delay later ones only until the next commit has ended`() throws {
        var ended = 0
        for _ in 0..<2 {
            for _ in 0..<16 { shell.commits.storedChunk(byteCount: 64 << 10, inbox) }
            loop.run()
        }
        // Two commits are running, and there is too little for a third.
        shell.commits.storedChunk(byteCount: 64 << 10, inbox)
        shell.commits.sendWhenDurable(.run { _ in ended += 1 }, for: inbox.client)
        #expect(ended == 0)
        standstill.end()
        loop.run()
        #expect(ended == 0)
        standstill.end()
        loop.run()
        #expect(ended == 1)
        loop.advanceTime(by: .milliseconds(150))
        standstill.end()
        loop.run()
        shell.services.store.close()
    }
}
