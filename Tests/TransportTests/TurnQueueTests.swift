import NIOCore
import NIOEmbedded
import NIOPosix
import Testing
import Transport

@Suite struct TurnQueueTests {
    private let loop = EmbeddedEventLoop()
    private let pause = TimeAmount.microseconds(100)

    @Test func `one piece of work runs in each turn, in order, and what it adds is the last`() {
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

    @Test func `the pause begins when the tasks of a turn have run`() {
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

    /// Tells when bytes come.
    private final class Listener: ChannelInboundHandler, Sendable {
        typealias InboundIn = ByteBuffer
        let heard: EventLoopPromise<Void>

        init(heard: EventLoopPromise<Void>) { self.heard = heard }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) { heard.succeed() }
    }

    /// Has work for as long as nothing is heard, each piece of it longer than the pause.
    private final class Worker: @unchecked Sendable {
        // @unchecked: used on its loop alone.
        private let queue: TurnQueue
        private let pause: TimeAmount
        private let loop: any EventLoop
        private(set) var pieceCount = 0
        var isDone = false

        init(_ queue: TurnQueue, _ pause: TimeAmount, _ loop: any EventLoop) {
            self.queue = queue
            self.pause = pause
            self.loop = loop
        }

        func work() {
            pieceCount += 1
            let end = NIODeadline.now() + pause + pause
            while NIODeadline.now() < end {}
            if !isDone, pieceCount < 5_000 { queue.add { self.work() } }
        }
    }

    @Test func `sockets are asked between two pieces, however long they are`() async throws {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let other = MultiThreadedEventLoopGroup.singleton.next()
        let heard = loop.makePromise(of: Void.self)
        let server = try await ServerBootstrap(group: loop)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(Listener(heard: heard))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let client = try await ClientBootstrap(group: other).connect(to: try #require(server.localAddress)).get()
        let queue = TurnQueue(on: loop, pause: pause)
        let workers = (0..<2).map { _ in Worker(queue, pause, loop) }
        try await loop.submit { for worker in workers { queue.add { worker.work() } } }.get()
        try await client.writeAndFlush(ByteBuffer(bytes: [1])).get()
        try await heard.futureResult.get()
        let pieceCount = try await loop.submit {
            for worker in workers { worker.isDone = true }
            return workers.reduce(0) { $0 + $1.pieceCount }
        }.get()
        #expect(pieceCount < 2_000)
        try await client.close().get()
        try await server.close().get()
    }
}
