import NIOCore
import NIOEmbedded
import Testing

@testable import Transport

@Suite struct TurnQueueTests {
    private let loop = EmbeddedEventLoop()
    private let pause = TimeAmount.microseconds(100)

    @Test func `deadlines of links that have opened cause no wake-up`() {
        var deadlines = Deadlines()
        for id in 1...4 as ClosedRange<UInt64> { deadlines.add(id, at: .uptimeNanoseconds(id)) }
        #expect(deadlines.next { $0 >= 3 } == .uptimeNanoseconds(3))
        #expect(deadlines.due(at: .uptimeNanoseconds(4), limit: 9) == [3, 4])
        #expect(deadlines.next { _ in true } == nil)
    }

    @Test func `a queue runs one piece of work per turn, in the order of adding`() {
        let queue = TurnQueue(on: loop, pause: pause)
        var done: [Int] = []
        queue.add {
            done.append(1)
            queue.add { done.append(3) }
        }
        queue.add { done.append(2) }
        loop.run()
        #expect(done.isEmpty)
        for count in 1...3 {
            loop.advanceTime(by: pause)
            #expect(done == Array(1...count))
        }
        loop.advanceTime(by: pause)
        queue.add { done.append(4) }
        loop.advanceTime(by: pause)
        #expect(done == [1, 2, 3, 4])
    }

    @Test func `a pause begins only after the tasks of its turn have run`() {
        let queue = TurnQueue(on: loop, pause: pause)
        var done: [String] = []
        queue.add {
            done.append("piece")
            loop.execute { done.append("task") }
        }
        queue.add { done.append("next piece") }
        loop.advanceTime(by: pause)
        #expect(done == ["piece", "task"])
        loop.advanceTime(by: pause)
        #expect(done == ["piece", "task", "next piece"])
    }

    /// Pieces of work that are longer than the pause, until a frame has arrived. Confined to its loop.
    private final class Worker: @unchecked Sendable {
        static let limit = 1_000
        private(set) var pieceCount = 0

        func work(_ queue: TurnQueue, _ pause: TimeAmount, until side: Side) {
            pieceCount += 1
            let end = NIODeadline.now() + pause + pause
            while NIODeadline.now() < end {}
            if side.frames.isEmpty, pieceCount < Self.limit { queue.add { self.work(queue, pause, until: side) } }
        }
    }

    @Test func `the loop polls its sockets between two long pieces of work`() async throws {
        let net = try await SocketPair(.tcp)
        try await net.dial()
        try await net.until { _, far in !far.links.isEmpty }
        let (worker, pause, queue) = (Worker(), pause, TurnQueue(on: net.loop, pause: pause))
        try await net.until { _, far in
            !far.frames.isEmpty
        } after: { near, far in
            try? near.links[0].send([1])
            near.links[0].flush()
            // Two pieces at a time, so that one is always due while the other runs.
            for _ in 0..<2 { queue.add { worker.work(queue, pause, until: far) } }
        }
        // Usually a few pieces; more if the machine stops this thread at the wrong moment.
        #expect(try await net.act { _, _ in worker.pieceCount } < Worker.limit)
        try await net.end()
    }
}
