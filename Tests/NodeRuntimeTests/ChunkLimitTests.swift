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
    private let queue: EffectQueue

    init() throws {
        let disk = SimulatedDisk()
        try Store.create(
            home: "/home", protection: .keyFile, passphrase: nil, fileSystem: disk,
            journal: SimulatedDisk.journalByteCount)
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
        queue = EffectQueue(client: ClientID.generate(&random))
    }

    /// - Parameter pause: in ms between two chunks. A commit of a slow file has a few chunks.
    @Test(
        "undurable chunks stay within two MiB while the disk stands still, however slowly they arrive",
        arguments: [0, 150]) func limit(pause: Int64) throws
    {
        let schedule = shell.commits
        let chunkByteCount = 64 << 10
        var count = 0
        while count < 256 {
            schedule.storedChunk(byteCount: chunkByteCount, queue)
            count += 1
            if schedule.enqueue(.run { _ in }, queue) { break }
            loop.advanceTime(by: .milliseconds(pause))
        }
        #expect(count * chunkByteCount == 2 << 20)
        loop.advanceTime(by: .milliseconds(150))
        standstill.end()
        loop.run()
        schedule.storedChunk(byteCount: chunkByteCount, queue)
        #expect(!schedule.enqueue(.run { _ in }, queue))
        loop.advanceTime(by: .milliseconds(150))
        standstill.end()
        loop.run()
        shell.services.store.close()
    }

    @Test("undurable chunks delay later ones only until the next commit has ended") func waiting() throws {
        var ended = 0
        let schedule = shell.commits
        for _ in 0..<2 {
            for _ in 0..<16 { schedule.storedChunk(byteCount: 64 << 10, queue) }
            loop.run()
        }
        // Two commits are running, and there is too little for a third.
        schedule.storedChunk(byteCount: 64 << 10, queue)
        #expect(schedule.enqueue(.run { _ in ended += 1 }, queue))
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
