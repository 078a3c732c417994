import Glibc
import NIOCore
import NIOEmbedded
import NIOPosix
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

    /// Works until a byte is received, in pieces that are longer than the pause. The first piece sends the byte.
    private final class Worker: ChannelInboundHandler, @unchecked Sendable {
        // @unchecked: confined to its loop.
        typealias InboundIn = ByteBuffer
        private static let pieceLimit = 2_000
        private let queue: TurnQueue
        private let pause: TimeAmount
        private let sender: Int32
        private let end: EventLoopPromise<Int>
        private var pieceCount = 0
        private var isHeard = false

        /// - Parameter end: The number of pieces before the byte was received, or the limit.
        init(_ queue: TurnQueue, _ pause: TimeAmount, sender: Int32, end: EventLoopPromise<Int>) {
            (self.queue, self.pause, self.sender, self.end) = (queue, pause, sender, end)
        }

        func work() {
            if pieceCount == 0 {
                var byte: UInt8 = 1
                #expect(write(sender, &byte, 1) == 1)
            }
            pieceCount += 1
            let end = NIODeadline.now() + pause + pause
            while NIODeadline.now() < end {}
            if isHeard { return }
            if pieceCount < Self.pieceLimit { queue.add { self.work() } } else { self.end.succeed(pieceCount) }
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            isHeard = true
            end.succeed(pieceCount)
        }
    }

    @Test func `the loop polls its sockets between two long pieces of work`() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let loop = group.next()
        var ends: [Int32] = [-1, -1]
        try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
        let end = loop.makePromise(of: Int.self)
        let queue = TurnQueue(on: loop, pause: pause)
        let worker = Worker(queue, pause, sender: ends[1], end: end)
        let channel = try await ClientBootstrap(group: loop).channelInitializer { channel in
            channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(worker) }
        }.withConnectedSocket(ends[0]).get()
        // Two pieces at a time, so that one is always due while the other runs.
        try await loop.submit { for _ in 0..<2 { queue.add { worker.work() } } }.get()
        let pieceCount = try await end.futureResult.get()
        // Usually a few pieces; more if the machine stops this thread at the wrong moment.
        #expect(pieceCount < 1_000)
        try await channel.close().get()
        close(ends[1])
        try await group.shutdownGracefully()
    }
}
