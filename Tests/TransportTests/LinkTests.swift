import Cryptography
import NIOCore
import NIOEmbedded
import Testing
import Transport

@Suite struct LinkTests {
    @Test(arguments: [1, 7, 50]) func `a link works with bytes that arrive in pieces of any size`(piece: Int) throws {
        let wire = try Wire()
        let (near, far) = try (wire.dial(), wire.connection())
        try wire.pump(near, far, piece: piece)
        let link = try #require(wire.dialer.links.first)
        try link.send([1, 2, 3])
        try link.send([UInt8](repeating: 4, count: 1_000))
        link.flush()
        try wire.pump(near, far, piece: piece)
        #expect(wire.responder.frames == [[1, 2, 3], [UInt8](repeating: 4, count: 1_000)])
    }

    @Test func `empty and longest frames arrive, and a frame one byte longer is refused`() throws {
        let (wire, near, far) = try Wire.linked()
        let link = wire.dialer.links[0]
        let longest = [UInt8](repeating: 9, count: 65_535)
        #expect(throws: LinkSendError.tooLong) { try link.send(longest + [9]) }
        for frame in [[], longest, [1]] { try link.send(frame) }
        link.flush()
        try wire.pump(near, far)
        #expect(wire.responder.frames == [[], longest, [1]])
        #expect(wire.responder.closed.isEmpty)
    }

    @Test func `frames leave together at a flush, and none before it`() throws {
        let wire = try Wire()
        let (near, _) = try wire.link()
        for byte in 0..<10 { try wire.dialer.links[0].send([UInt8(byte)]) }
        #expect(try near.readOutbound(as: ByteBuffer.self) == nil)
        wire.dialer.links[0].flush()
        #expect(try near.readOutbound(as: ByteBuffer.self)?.readableBytes == 350)
        #expect(try near.readOutbound(as: ByteBuffer.self) == nil)
    }

    @Test func `an answer sent within a frame's event leaves with its batch`() throws {
        let (wire, near, far) = try Wire.linked()
        wire.responder.onFrame = { link, frame in try? link.send(frame + frame) }
        for byte in 1...3 { try wire.dialer.links[0].send([UInt8(byte)]) }
        wire.dialer.links[0].flush()
        try wire.pump(near, far)
        #expect(wire.dialer.frames == [[1, 1], [2, 2], [3, 3]])
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
        let (wire, near, far) = try Wire.linked()
        let reads = ReadCounter()
        try far.pipeline.syncOperations.addHandler(reads, position: .first)
        wire.responder.onFrame = { link, frame in
            try? link.send(frame)
            link.flush()
        }
        for _ in 0..<400 { try wire.dialer.links[0].send([1]) }
        wire.dialer.links[0].flush()
        try wire.send(try wire.written(near), to: far)
        // A channel reads again after each read.
        far.pipeline.read()
        for count in [128, 256, 384] {
            #expect(wire.responder.frames.count == count && reads.count == 0)
            wire.loop.advanceTime(by: TransportLimits().turnPause)
        }
        #expect(wire.responder.frames.count == 400 && reads.count == 1)
    }

    @Test func `frames waiting for another turn are handed over when the peer closes, and none later`() throws {
        for closes in [false, true] {
            let (wire, near, far) = try Wire.linked()
            for _ in 0..<400 { try wire.dialer.links[0].send([1]) }
            wire.dialer.links[0].flush()
            try wire.send(try wire.written(near), to: far)
            #expect(wire.responder.frames.count == 128)
            if closes { wire.responder.onFrame = { link, _ in link.close() } }
            far.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
            #expect(wire.responder.frames.count == 400)
            #expect(wire.responder.closed == [closes ? .requested : .closedByPeer])
            wire.loop.advanceTime(by: .seconds(1))
            #expect(wire.responder.frames.count == 400 && wire.responder.closed.count == 1)
        }
    }

    @Test func `a flipped bit in any byte of a frame closes the link`() throws {
        for index in 0..<39 {
            let (wire, near, far) = try Wire.linked()
            try wire.dialer.links[0].send(Array("hello".utf8))
            wire.dialer.links[0].flush()
            var bytes = try wire.written(near)
            #expect(bytes.count == 39)
            bytes[index] ^= 0x80
            try wire.send(bytes, to: far)
            #expect(wire.responder.closed == [.notAuthentic], "byte \(index)")
            #expect(wire.responder.frames.isEmpty)
            #expect(!far.isActive)
            #expect(try wire.written(far).isEmpty)
        }
    }

    @Test func `a closed link sends nothing more and reports its close once`() throws {
        let (wire, near, far) = try Wire.linked()
        let link = wire.dialer.links[0]
        try link.send([1])
        link.close(.duplicate)
        #expect(throws: LinkSendError.closed) { try link.send([2]) }
        link.close()
        link.abort()
        #expect(wire.dialer.closed == [.duplicate])
        // Frames sent before the close have left.
        try wire.pump(near, far)
        #expect(wire.responder.frames == [[1]])
        _ = try? far.finish()
        #expect(wire.responder.closed == [.closedByPeer])
        #expect(!link.isWritable)
    }

    @Test func `an owner can close a link within one of its events`() throws {
        let wire = try Wire()
        wire.responder.onFrame = { link, _ in link.abort(.protocolViolation) }
        let (near, far) = try wire.link()
        for byte in 0..<3 { try wire.dialer.links[0].send([UInt8(byte)]) }
        wire.dialer.links[0].flush()
        try wire.pump(near, far)
        #expect(wire.responder.frames == [[0]])
        #expect(wire.responder.closed == [.protocolViolation])
    }

    @Test func `a paused link hands over no frame and loses none`() throws {
        let (wire, near, far) = try Wire.linked()
        let link = wire.responder.links[0]
        wire.responder.onFrame = { link, frame in if frame == [1] { link.pauseReading() } }
        for byte in 0..<5 { try wire.dialer.links[0].send([UInt8(byte)]) }
        wire.dialer.links[0].flush()
        try wire.pump(near, far)
        #expect(wire.responder.frames == [[0], [1]])
        link.resumeReading()
        #expect(wire.responder.frames == [[0], [1], [2], [3], [4]])
    }

    @Test func `frames before the peer's end arrive after a paused link resumes`() throws {
        let (wire, near, far) = try Wire.linked()
        wire.responder.links[0].pauseReading()
        for byte in 0..<3 { try wire.dialer.links[0].send([UInt8(byte)]) }
        wire.dialer.links[0].flush()
        try wire.pump(near, far)
        far.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        #expect(wire.responder.frames.isEmpty && wire.responder.closed.isEmpty)
        wire.responder.links[0].resumeReading()
        #expect(wire.responder.frames == [[0], [1], [2]])
        #expect(wire.responder.closed == [.closedByPeer])
    }

    @Test(arguments: [false, true]) func `closing a paused link hands over its waiting frames, but only after the call`(
        hasEnded: Bool
    ) throws {
        let (wire, near, far) = try Wire.linked()
        let link = wire.responder.links[0]
        link.pauseReading()
        for byte in 0..<3 { try wire.dialer.links[0].send([UInt8(byte)]) }
        wire.dialer.links[0].flush()
        try wire.pump(near, far)
        if hasEnded { far.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed) }
        // A frame is on its way out. The link must not end before its frames were read, though it has left.
        try link.send([9])
        link.close()
        #expect(wire.responder.frames.isEmpty && wire.responder.closed.isEmpty)
        try wire.pump(near, far)
        #expect(wire.responder.frames == [[0], [1], [2]])
        #expect(wire.dialer.frames == [[9]])
        if hasEnded { #expect(wire.responder.closed == [.requested]) }
    }

    @Test(arguments: [false, true]) func `a connection lost while its link closes still hands over all received frames`(
        hasRest: Bool
    ) throws {
        let (wire, near, far) = try Wire.linked()
        let link = wire.responder.links[0]
        let count = hasRest ? 300 : 3
        if !hasRest { link.pauseReading() }
        for _ in 0..<count { try wire.dialer.links[0].send([1]) }
        wire.dialer.links[0].flush()
        try wire.send(try wire.written(near), to: far)
        #expect(wire.responder.frames.count == (hasRest ? 128 : 0))
        link.pauseReading()
        link.close()
        wire.responder.onFrame = { link, _ in link.pauseReading() }
        link.pauseReading()
        far.pipeline.fireChannelInactive()
        #expect(wire.responder.closed == [.requested])
        #expect(wire.responder.frames.count == count)
        wire.loop.run()
        #expect(wire.responder.frames.count == count)
    }

    @Test(arguments: [(110, .unacknowledged), (104, .connectionLost(104))] as [(Int32, LinkCloseReason)])
    func `a timed-out link with bytes on their way closes as unacknowledged`(code: Int32, reason: LinkCloseReason)
        throws
    {
        let wire = try Wire()
        let (near, _) = try wire.link()
        near.pipeline.fireErrorCaught(IOError(errnoCode: code, reason: "read"))
        #expect(wire.dialer.closed == [reason])
    }

    @Test(arguments: [0, 17, 40]) func `a dialer that hangs up before its link opens is forgotten`(byteCount: Int)
        throws
    {
        let wire = try Wire()
        let (near, far) = try (wire.dial(), wire.connection())
        try wire.send(Array(wire.written(near).prefix(byteCount)), to: far)
        far.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        #expect(!far.isActive)
        #expect(wire.responder.rejections == [.disconnected])
        #expect(wire.responder.transport.connectionCount == 0)
    }

    @Test func `an owner can close the transport within any question or event`() throws {
        for moment in 0..<4 {
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
            let (near, far) = try (wire.dial(), wire.connection())
            if moment == 1 {
                try wire.send([0x6b] + wire.token.bytes + [0, 1, 9], to: far)
            } else {
                try wire.pump(near, far)
                try wire.dialer.links.first?.send([1])
                wire.dialer.links.first?.flush()
                try wire.pump(near, far)
            }
            #expect(!far.isActive)
            #expect(transport.connectionCount == 0)
        }
    }

    @Test func `closing the transport closes every link and connection at once`() throws {
        let wire = try Wire()
        _ = try wire.link()
        _ = try wire.connection()
        #expect(wire.responder.transport.connectionCount == 2)
        wire.responder.transport.close()
        #expect(wire.responder.transport.connectionCount == 0)
        #expect(wire.responder.closed == [.shutDown])
        #expect(wire.responder.rejections == [.shutDown])
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

    private func stuckLink(_ limits: TransportLimits) throws -> (Wire, EmbeddedChannel, Stuck) {
        let wire = try Wire(limits: limits)
        let (near, _) = try wire.link()
        let stuck = Stuck()
        try near.pipeline.syncOperations.addHandler(stuck, position: .first)
        return (wire, near, stuck)
    }

    @Test func `a full link is not writable until most bytes have left`() throws {
        let (wire, near, stuck) = try stuckLink(TransportLimits())
        let link = wire.dialer.links[0]
        #expect(link.isWritable)
        for _ in 0..<5 { try link.send([UInt8](repeating: 0, count: 60_000)) }
        #expect(!link.isWritable)
        link.flush()
        near.pipeline.read()
        #expect(stuck.reads == 1)
        stuck.release()
        #expect(link.isWritable)
        #expect(wire.dialer.writable == 1)
    }

    @Test func `a link reads nothing while too many bytes wait to leave`() throws {
        var limits = TransportLimits()
        limits.outboundReadStop = 200_000
        let (wire, near, stuck) = try stuckLink(limits)
        let link = wire.dialer.links[0]
        for _ in 0..<5 { try link.send([UInt8](repeating: 0, count: 60_000)) }
        link.flush()
        near.pipeline.read()
        #expect(stuck.reads == 0)
        stuck.release()
        #expect(stuck.reads == 1)
    }

    @Test func `a link with more unsent bytes than its bound closes`() throws {
        var limits = TransportLimits()
        limits.outboundByteCount = 500_000
        let (wire, near, _) = try stuckLink(limits)
        let link = wire.dialer.links[0]
        #expect(throws: LinkSendError.outboundOverflow) {
            for _ in 0..<1_000 { try link.send([UInt8](repeating: 0, count: 60_000)) }
        }
        #expect(wire.dialer.closed == [.outboundOverflow])
        #expect(!near.isActive)
        #expect(throws: LinkSendError.closed) { try link.send([]) }
    }

    @Test func `a graceful close waits at most five seconds for bytes on their way`() throws {
        for isTaken in [true, false] {
            let (wire, near, stuck) = try stuckLink(TransportLimits())
            try wire.dialer.links[0].send([1])
            wire.dialer.links[0].close()
            #expect(near.isActive && wire.dialer.closed.isEmpty)
            if isTaken {
                stuck.release()
            } else {
                wire.loop.advanceTime(by: .seconds(4))
                #expect(near.isActive)
                wire.loop.advanceTime(by: .seconds(1))
            }
            #expect(!near.isActive)
            #expect(wire.dialer.closed == [.requested])
        }
    }
}
