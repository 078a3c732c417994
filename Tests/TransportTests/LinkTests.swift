import Cryptography
import NIOCore
import NIOEmbedded
import Testing
import Transport

@Suite struct LinkTests {
    @Test(arguments: [1, 7, 50]) func `a link works with bytes that arrive in pieces of any size`(piece: Int) throws {
        let (wire, _, _) = try Wire.met()
        try wire.pump(piece: piece)
        let frames = [[1, 2, 3], [UInt8](repeating: 4, count: 1_000)]
        try wire.say(frames)
        try wire.pump(piece: piece)
        #expect(wire.responder.frames == frames)
    }

    @Test func `frames leave together at a flush, none before it, and one of 65,536 bytes is refused`() throws {
        let wire = try Wire.linked()
        let link = wire.dialer.links[0]
        #expect(throws: LinkSendError.tooLong) { try link.send([UInt8](repeating: 9, count: 65_536)) }
        for byte in 0..<10 { try link.send([UInt8(byte)]) }
        #expect(try wire.near.readOutbound(as: ByteBuffer.self) == nil)
        link.flush()
        #expect(try wire.near.readOutbound(as: ByteBuffer.self)?.readableBytes == 350)
        #expect(try wire.near.readOutbound(as: ByteBuffer.self) == nil && link.bytesOut == 350)
    }

    private final class ReadCounter: ChannelOutboundHandler {
        typealias OutboundIn = ByteBuffer
        var count = 0

        func read(context: ChannelHandlerContext) {
            count += 1
            context.read()
        }
    }

    @Test func `a link reads nothing while frames wait for another turn`() throws {
        let wire = try Wire.linked()
        let reads = ReadCounter()
        try wire.far.pipeline.syncOperations.addHandler(reads, position: .first)
        wire.responder.onFrame = { link, frame in
            try? link.send(frame)
            link.flush()
        }
        try wire.say([[UInt8]](repeating: [1], count: 400))
        try wire.send(try wire.written(wire.near), to: wire.far)
        // A channel reads again after each read.
        wire.far.pipeline.read()
        for count in [128, 256, 384] {
            #expect(wire.responder.frames.count == count && reads.count == 0)
            wire.loop.advanceTime(by: TransportLimits().turnPause)
        }
        #expect(wire.responder.frames.count == 400 && reads.count == 1)
    }

    @Test func `frames waiting for another turn are handed over when the peer closes, and none later`() throws {
        for closes in [false, true] {
            let wire = try Wire.linked()
            try wire.say([[UInt8]](repeating: [1], count: 400))
            try wire.send(try wire.written(wire.near), to: wire.far)
            #expect(wire.responder.frames.count == 128)
            if closes { wire.responder.onFrame = { link, _ in link.close() } }
            wire.far.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
            #expect(wire.responder.frames.count == 400)
            #expect(wire.responder.closed == [closes ? .requested : .closedByPeer])
            wire.loop.advanceTime(by: .seconds(1))
            #expect(wire.responder.frames.count == 400 && wire.responder.closed.count == 1)
        }
    }

    @Test func `a flipped bit in any byte of a frame closes the link`() throws {
        for index in 0..<39 {
            let wire = try Wire.linked()
            try wire.say([Array("hello".utf8)])
            var bytes = try wire.written(wire.near)
            #expect(bytes.count == 39)
            bytes[index] ^= 0x80
            try wire.send(bytes, to: wire.far)
            #expect(wire.responder.closed == [.notAuthentic], "byte \(index)")
            #expect(wire.responder.frames.isEmpty && !wire.far.isActive)
            #expect(try wire.written(wire.far).isEmpty)
        }
    }

    @Test func `a closed link sends nothing more and reports its close once`() throws {
        let wire = try Wire.linked()
        let link = wire.dialer.links[0]
        try link.send([1])
        link.close(.duplicate)
        #expect(throws: LinkSendError.closed) { try link.send([2]) }
        link.close()
        link.abort()
        #expect(wire.dialer.closed == [.duplicate] && !link.isWritable)
        // Frames sent before the close have left.
        try wire.pump()
        #expect(wire.responder.frames == [[1]])
        _ = try? wire.far.finish()
        #expect(wire.responder.closed == [.closedByPeer])
    }

    @Test func `an owner can close a link within one of its events`() throws {
        let wire = try Wire.linked()
        wire.responder.onFrame = { link, _ in link.abort(.protocolViolation) }
        try wire.pass([[0], [1], [2]])
        #expect(wire.responder.frames == [[0]] && wire.responder.closed == [.protocolViolation])
    }

    @Test(arguments: [false, true]) func `a paused link hands over no frame and loses none, even if its peer ends`(
        hasEnded: Bool
    ) throws {
        let wire = try Wire.linked()
        wire.responder.onFrame = { link, frame in if frame == [1] { link.pauseReading() } }
        try wire.pass([[0], [1], [2], [3]])
        if hasEnded { wire.far.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed) }
        #expect(wire.responder.frames == [[0], [1]] && wire.responder.closed.isEmpty)
        wire.responder.links[0].resumeReading()
        #expect(wire.responder.frames == [[0], [1], [2], [3]])
        #expect(wire.responder.closed == (hasEnded ? [.closedByPeer] : []))
    }

    @Test(arguments: [false, true]) func `closing a paused link hands over its waiting frames, but only after the call`(
        hasEnded: Bool
    ) throws {
        let wire = try Wire.linked()
        let link = wire.responder.links[0]
        link.pauseReading()
        try wire.pass([[0], [1], [2]])
        if hasEnded { wire.far.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed) }
        // A frame is on its way out. The link must not end before its frames were read, though it has left.
        try link.send([9])
        link.close()
        #expect(wire.responder.frames.isEmpty && wire.responder.closed.isEmpty)
        try wire.pump()
        #expect(wire.responder.frames == [[0], [1], [2]] && wire.dialer.frames == [[9]])
        if hasEnded { #expect(wire.responder.closed == [.requested]) }
    }

    @Test(arguments: [false, true]) func `a connection lost while its link closes still hands over all received frames`(
        hasRest: Bool
    ) throws {
        let wire = try Wire.linked()
        let link = wire.responder.links[0]
        let count = hasRest ? 300 : 3
        if !hasRest { link.pauseReading() }
        try wire.say([[UInt8]](repeating: [1], count: count))
        try wire.send(try wire.written(wire.near), to: wire.far)
        #expect(wire.responder.frames.count == (hasRest ? 128 : 0))
        link.pauseReading()
        link.close()
        wire.responder.onFrame = { link, _ in link.pauseReading() }
        link.pauseReading()
        wire.far.pipeline.fireChannelInactive()
        #expect(wire.responder.closed == [.requested])
        #expect(wire.responder.frames.count == count)
        wire.loop.run()
        #expect(wire.responder.frames.count == count)
    }

    @Test(arguments: [(110, .unacknowledged), (104, .connectionLost(104))] as [(Int32, LinkCloseReason)])
    func `a timed-out link with bytes on their way closes as unacknowledged`(code: Int32, reason: LinkCloseReason)
        throws
    {
        let wire = try Wire.linked()
        wire.near.pipeline.fireErrorCaught(IOError(errnoCode: code, reason: "read"))
        #expect(wire.dialer.closed == [reason])
    }

    @Test(arguments: [0, 17, 40]) func `a dialer that hangs up before its link opens is forgotten`(byteCount: Int)
        throws
    {
        let (wire, near, far) = try Wire.met()
        try wire.send(Array(wire.written(near).prefix(byteCount)), to: far)
        far.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        #expect(!far.isActive && wire.responder.rejections == [.disconnected])
        #expect(wire.responder.transport.connectionCount == 0)
    }

    @Test(arguments: 0..<4) func `an owner can close the transport within any question or event`(moment: Int) throws {
        let wire = try Wire()
        let transport = wire.responder.transport
        wire.responder.knockTokens = [wire.token]
        let match = wire.responder.routes[wire.token]
        switch moment {
        case 0:
            transport.events.route = { [unowned transport] _ in
                transport.close()
                return match
            }
        case 1:
            transport.events.knock = { [unowned transport] _, _, _ in
                transport.close()
                return [1]
            }
        case 2: transport.events.linkOpened = { [unowned transport] _ in transport.close() }
        default: transport.events.frame = { [unowned transport] _, _ in transport.close() }
        }
        let (_, far) = try (wire.dial(), wire.connection())
        if moment == 1 {
            try wire.send([0x6b] + wire.token.bytes + [0, 1, 9], to: far)
        } else {
            try wire.pump()
            if !wire.dialer.links.isEmpty { try wire.pass([[1]]) }
        }
        #expect(!far.isActive && transport.connectionCount == 0)
    }

    @Test func `closing the transport closes every link and connection at once`() throws {
        let wire = try Wire.linked()
        _ = try wire.connection()
        #expect(wire.responder.transport.connectionCount == 2)
        wire.responder.transport.close()
        #expect(wire.responder.transport.connectionCount == 0)
        #expect(wire.responder.closed == [.shutDown] && wire.responder.rejections == [.shutDown])
    }
}

@Suite struct BackPressureTests {
    /// Holds writes without completing them.
    private final class Stuck: ChannelOutboundHandler {
        typealias OutboundIn = ByteBuffer
        var promises: [EventLoopPromise<Void>?] = []
        var reads = 0

        func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
            promises.append(promise)
        }
        func read(context: ChannelHandlerContext) { reads += 1 }
        func release() {
            let all = promises
            promises = []
            for promise in all { promise?.succeed(()) }
        }
    }

    private func stuckWire(_ change: Wire.Change = { _ in }) throws -> (Wire, Stuck) {
        let wire = try Wire.linked(change)
        let stuck = Stuck()
        try wire.near.pipeline.syncOperations.addHandler(stuck, position: .first)
        return (wire, stuck)
    }

    private let frames = [[UInt8]](repeating: [UInt8](repeating: 0, count: 60_000), count: 5)

    @Test(arguments: [(TransportLimits().outboundReadStop, 1), (200_000, 0)])
    func `a full link is not writable until most bytes have left, and reads nothing while too many wait`(
        readStop: Int, reads: Int
    ) throws {
        let (wire, stuck) = try stuckWire { $0.outboundReadStop = readStop }
        #expect(wire.dialer.links[0].isWritable)
        try wire.say(frames)
        #expect(!wire.dialer.links[0].isWritable)
        wire.near.pipeline.read()
        #expect(stuck.reads == reads)
        stuck.release()
        #expect(stuck.reads == 1 && wire.dialer.links[0].isWritable && wire.dialer.writable == 1)
    }

    @Test func `a link with more unsent bytes than its bound closes`() throws {
        let (wire, _) = try stuckWire { $0.outboundByteCount = 500_000 }
        #expect(throws: LinkSendError.outboundOverflow) { for _ in 0..<200 { try wire.say(frames) } }
        #expect(wire.dialer.closed == [.outboundOverflow] && !wire.near.isActive)
        #expect(throws: LinkSendError.closed) { try wire.say([[]]) }
    }

    @Test(arguments: [true, false]) func `a graceful close waits at most five seconds for bytes on their way`(
        isTaken: Bool
    ) throws {
        let (wire, stuck) = try stuckWire()
        try wire.dialer.links[0].send([1])
        wire.dialer.links[0].close()
        #expect(wire.near.isActive && wire.dialer.closed.isEmpty)
        if isTaken {
            stuck.release()
        } else {
            wire.loop.advanceTime(by: .seconds(4))
            #expect(wire.near.isActive)
            wire.loop.advanceTime(by: .seconds(1))
        }
        #expect(!wire.near.isActive && wire.dialer.closed == [.requested])
    }
}
