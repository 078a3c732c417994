import NIOCore

/// Turns the bytes of one connection into requests, and answers into bytes.
///
///     accepted ──credentials──▶ serving ──end of input──▶ draining ──last answer──▶ closed
///         └──refused──▶ closed     └──oversize line──▶ closed
///
/// Backpressure: the connection stops reading at ``ControlLimits/requestsInFlight`` requests. The service gets all
/// requests of one read together. Used on the loop only.
final class ControlConnection: ChannelDuplexHandler, @unchecked Sendable {
    // @unchecked: mutable state is confined to the loop.

    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private enum State {
        case accepted
        case serving
        /// The client ended its input; outstanding requests are still answered.
        case draining
        case closed
    }

    let channel: any Channel
    private let queue: ControlQueue
    private let connections: ControlConnections
    /// Processes of this user, and of root, are served.
    private let user: UInt32
    /// `nil` after the connection has closed.
    private var session: ControlSession?
    private var state = State.accepted
    private var splitter = LineSplitter(byteLimit: ControlLimits.requestByteCount)
    private var requestsInFlight = 0
    private var isReadHeld = false
    private var isDispatching = false
    /// ``dispatch()`` was called while it ran.
    private var dispatchesAgain = false
    /// True until the end of this read.
    private var isReading = false
    /// The expected body and its call; the call is `nil` when the request was refused.
    private var awaitedBody: (call: ControlCall?, byteCount: Int)?
    private var calls: [ControlCall] = []
    private var needsFlush = false
    /// The input ended before the credentials arrived.
    private var hasInputEnded = false
    /// True from a call that may wait until the connection ``isIdle`` again.
    private var mayWait = false
    /// Time of the last answer, at first of the connect.
    private(set) var activeAt = NIODeadline.now()
    private(set) var calledAt = NIODeadline.now()
    private(set) var wasAnswered = false

    private var pending = JSONWriter()
    private var pendingCallCount = 0
    private var pendingEventByteCount = 0
    /// Writes without a completion.
    private var writesInFlight = 0
    /// Bytes of events that the kernel has not taken.
    private(set) var backlogByteCount = 0
    /// Uploads and waiting calls, which end with the client.
    var dependentCount = 0
    /// Subscribed, and not dropped for reading too slowly.
    var isStreaming = false

    init(channel: any Channel, queue: ControlQueue, connections: ControlConnections, user: UInt32) {
        (self.channel, self.queue, self.connections, self.user) = (channel, queue, connections, user)
    }

    /// Joins the channel's pipeline. The session ends with the channel.
    func begin() throws {
        let session = ControlSession(queue: queue, connection: self)
        self.session = session
        connections.add(self)
        channel.closeFuture.whenComplete { [self] _ in
            self.session = nil
            connections.remove(self)
            queue.end(session)
        }
        try channel.pipeline.syncOperations.addHandler(self)
    }

    func channelActive(context: ChannelHandlerContext) {
        context.fireChannelActive()
        checkPeer()
    }

    private func checkPeer() {
        guard let options = channel as? any SocketOptionProvider else {
            preconditionFailure("the control socket is a socket channel")
        }
        let credentials: EventLoopFuture<ControlSocket.PeerCredentials> = options.unsafeGetSocketOption(
            level: .socket, name: .init(rawValue: ControlSocket.peerCredentialsOption))
        credentials.assumeIsolated().whenComplete { [self, user] outcome in
            guard case .accepted = state else { return }
            switch outcome {
            case .success(let peer) where peer.mayCommand(nodeOf: user):
                state = hasInputEnded ? .draining : .serving
                dispatch()
            case .success, .failure:
                refuse(ControlError(.refused, "this node serves only the user who runs it", code: -32002))
            }
        }
    }

    func read(context: ChannelHandlerContext) {
        if requestsInFlight >= ControlLimits.requestsInFlight, awaitedBody == nil {
            isReadHeld = true
        } else {
            context.read()
        }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        if case .closed = state { return }
        var bytes = unwrapInboundIn(data)
        splitter.append(&bytes)
        isReading = true
        dispatch()
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        isReading = false
        submit()
        context.fireChannelReadComplete()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if let event = event as? ChannelEvent, event == .inputClosed {
            switch state {
            case .accepted: hasInputEnded = true
            case .serving:
                state = .draining
                dispatch()
            case .draining, .closed: break
            }
        }
        context.fireUserInboundEventTriggered(event)
    }

    func channelInactive(context: ChannelHandlerContext) {
        state = .closed
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // The client disconnected (reset, broken pipe), so no error can be reported.
        state = .closed
        context.close(promise: nil)
    }

    /// Parses the received requests, up to the limit.
    private func dispatch() {
        guard !isDispatching else {
            dispatchesAgain = true
            return
        }
        isDispatching = true
        defer { isDispatching = false }
        repeat {
            dispatchesAgain = false
            guard dispatchOnce() else { return }
            // Failures are answered at once, which makes room for the next lines.
            if !isReading { submit() }
        } while dispatchesAgain
        finishIfDrained()
    }

    /// - Returns: false after a line that ends the connection.
    private func dispatchOnce() -> Bool {
        // The body first: its request already counts against the limit.
        while isServing, takeBody(), requestsInFlight < ControlLimits.requestsInFlight {
            let line: ByteBuffer?
            do { line = try nextLine() } catch {
                submit()
                refuse(.parse("the line is longer than \(ControlLimits.requestByteCount) bytes"))
                return false
            }
            guard let line else { break }
            requestsInFlight += 1
            calledAt = .now()
            read(line)
        }
        return true
    }

    /// - Returns: false when the body is incomplete.
    private func takeBody() -> Bool {
        guard let (call, byteCount) = awaitedBody else { return true }
        guard let body = splitter.takeBytes(byteCount) else {
            if case .draining = state {
                awaitedBody = nil
                _ = splitter.takeRest()
                guard let call else { return false }
                fail(call.id, .invalidRequest("the input ends before the \(byteCount) bytes of the body"))
            }
            return false
        }
        awaitedBody = nil
        if let call {
            call.body = body
            calls.append(call)
        }
        return true
    }

    private func nextLine() throws(LineSplitter.LineTooLong) -> ByteBuffer? {
        if let line = try splitter.nextLine() { return line }
        // After the end of input, the rest is a line.
        if case .draining = state { return splitter.takeRest() }
        return nil
    }

    private var isServing: Bool {
        switch state {
        case .serving, .draining: true
        case .accepted, .closed: false
        }
    }

    /// Parses a line into a call, or queues the failure.
    private func read(_ line: ByteBuffer) {
        line.withUnsafeReadableBytes { bytes in
            do throws(UnreadableRequest) {
                try RequestLine.read(bytes.assumingMemoryBound(to: UInt8.self)) { head, params in
                    if head.bodyByteCount > 0 { awaitedBody = (nil, head.bodyByteCount) }
                    do throws(ControlError) {
                        guard let session else { return }
                        let call = try queue.service.call(head.method, id: head.id, params: &params, session: session)
                        call.byteCount = bytes.count
                        if call.waits { try beginWaiting() }
                        if head.bodyByteCount == 0 {
                            calls.append(call)
                        } else if call.takesBody {
                            awaitedBody?.call = call
                        } else {
                            throw .invalidRequest("`\(head.method)` takes no body")
                        }
                    } catch { fail(head.id, error) }
                }
            } catch {
                if error.endsStream { return refuse(error.error) }
                fail(error.id, error.error)
            }
        }
    }

    /// Submits the calls and flushes the failures.
    private func submit() {
        if !calls.isEmpty {
            queue.submit(calls)
            calls = []
        }
        if needsFlush {
            needsFlush = false
            flush()
        }
    }

    /// No request, subscription, upload or waiting call depends on the connection.
    var isIdle: Bool { requestsInFlight == 0 && !isStreaming && !hasUnwritten && dependentCount == 0 }

    var isWaiting: Bool { mayWait && !isIdle }

    /// For 5 s since the last call, a short call had no answer, or its client sent half a body or read no answer.
    var isHung: Bool { requestsInFlight > 0 && !mayWait && !isStreaming && calledAt + .seconds(5) <= .now() }

    private func beginWaiting() throws(ControlError) {
        guard !mayWait else { return }
        guard connections.waitingCount < ControlLimits.waitingConnections else {
            throw ControlError(
                .failed, "\(ControlLimits.waitingConnections) clients of the node wait already",
                hint: "end one: a --wait, a watch, a chat or a read --follow")
        }
        mayWait = true
    }

    /// Closes this idle or hung connection to make room for another.
    func giveUp() {
        let limit = "the limit is \(ControlLimits.connections) connections"
        refuse(
            isIdle || awaitedBody != nil
                ? ControlError(.failed, "the node closed this idle connection: \(limit)", hint: "connect again")
                : ControlError(
                    .failed,
                    "no answer in 5 s, as when the disk hangs, so the node closed this connection: \(limit). The call "
                        + "goes on: a text is sent once it is stored", hint: "see `mayfly doctor`"))
    }

    /// The kernel took the answers of `count` requests.
    private func finish(_ count: Int) {
        guard session != nil else { return }
        requestsInFlight -= count
        activeAt = .now()
        wasAnswered = true
        if isIdle { mayWait = false }
        dispatch()
        if isReadHeld, requestsInFlight < ControlLimits.requestsInFlight {
            isReadHeld = false
            channel.read()
        }
    }

    /// After the end of input: closes once all answers are written, unless a subscription is open.
    private func finishIfDrained() {
        guard case .draining = state, requestsInFlight == 0, !isStreaming, !hasUnwritten else { return }
        state = .closed
        channel.close(promise: nil)
    }

    var hasUnwritten: Bool { writesInFlight > 0 || pending.buffer.readableBytes > 0 }

    func add(_ call: ControlCall) {
        call.writeAnswer(to: &pending)
        pendingCallCount += 1
    }

    /// Queues the failure of a request. A notification, without an id, gets no answer and is only counted.
    private func fail(_ id: RequestID?, _ error: ControlError) {
        if let id { pending.failure(id, error) }
        pendingCallCount += 1
        needsFlush = true
    }

    func add(_ line: ByteBuffer, isCounted: Bool) {
        pending.buffer.writeImmutableBuffer(line)
        guard isCounted else { return }
        pendingEventByteCount += line.readableBytes
        backlogByteCount += line.readableBytes
    }

    /// Writes all queued lines at once. A request stays in flight until the kernel takes its answer.
    func flush() {
        guard pendingCallCount > 0 || pending.buffer.readableBytes > 0 else { return }
        let calls = pendingCallCount
        let events = pendingEventByteCount
        let lines = pending.buffer
        // A new buffer: freed memory is overwritten, so the text of an answer does not linger.
        pending = JSONWriter()
        pendingCallCount = 0
        pendingEventByteCount = 0
        // Notifications have no answer.
        guard lines.readableBytes > 0 else { return finish(calls) }
        writesInFlight += 1
        channel.writeAndFlush(lines).assumeIsolated().whenComplete { [self] _ in
            writesInFlight -= 1
            backlogByteCount -= events
            finish(calls)
        }
    }

    private func refuse(_ error: ControlError) {
        state = .closed
        pending.failure(.null, error)
        let lines = pending.buffer
        pending = JSONWriter()
        channel.writeAndFlush(lines).whenComplete { [channel] _ in channel.close(promise: nil) }
    }
}
