import NIOCore
import Synchronization

/// Turns the bytes of one connection into requests, and answers into bytes.
///
///     accepted ──credentials──▶ serving ──end of input──▶ draining ──last answer──▶ closed
///         └──refused──▶ closed     └──oversize line──▶ closed
///
/// While ``ControlLimits/requestsInFlight`` requests are under way nothing is read, so a client that pipelines without
/// reading its answers is stopped by its own socket. All requests that one read brought cross to the service in one hop.
final class ControlConnectionHandler: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private enum State {
        /// Waiting for the kernel's word on who is there.
        case accepted
        case serving
        /// The client has sent all it will send; what is under way is still answered.
        case draining
        /// Nothing is read or answered any more.
        case closed
    }

    private let connection: ControlConnection
    private let session: ControlSession
    private let bridge: ControlBridge
    private let connections: ControlConnections
    /// Whose processes are served, besides root's.
    private let user: UInt32
    /// Called after requests were read.
    private let whenRead: @Sendable () -> Void
    private var state = State.accepted
    private var splitter = LineSplitter(byteLimit: ControlLimits.requestByteCount)
    private var requestsInFlight = 0
    private var isReadHeld = false
    private var isDispatching = false
    /// More may come before the end of this read.
    private var isReading = false
    /// The body that comes next, and whose it is; of no call when the request has been refused already.
    private var awaitedBody: (call: ControlCall?, byteCount: Int)?
    /// Calls for the next hop.
    private var calls: [ControlCall] = []
    /// Answers to what was no call wait.
    private var needsFlush = false
    /// The client has sent all it will send before it is known who it is.
    private var hasInputEnded = false
    /// A call has been taken that may wait, and ``isIdle`` has not been seen since.
    private var mayWait = false
    /// When the last request was answered, or the connection was made.
    private(set) var activeAt = NIODeadline.now()
    private(set) var wasAnswered = false

    init(
        connection: ControlConnection, session: ControlSession, bridge: ControlBridge, connections: ControlConnections,
        user: UInt32, whenRead: @escaping @Sendable () -> Void
    ) {
        self.connection = connection
        self.session = session
        self.bridge = bridge
        self.connections = connections
        self.user = user
        self.whenRead = whenRead
    }

    func handlerAdded(context: ChannelHandlerContext) {
        connection.written = { [unowned self] callCount in finish(callCount) }
    }

    func handlerRemoved(context: ChannelHandlerContext) { connection.written = nil }

    func channelActive(context: ChannelHandlerContext) {
        context.fireChannelActive()
        checkPeer(context.channel)
    }

    private func refuse(_ error: ControlError) {
        state = .closed
        connection.refuse(error)
    }

    private func checkPeer(_ channel: any Channel) {
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
        // The client has gone (reset, broken pipe); there is nobody left to tell.
        state = .closed
        context.close(promise: nil)
    }

    /// Reads every request that has arrived, as far as the limit allows.
    private func dispatch() {
        guard !isDispatching else { return }
        isDispatching = true
        defer { isDispatching = false }
        // The body first: its request counts against the limit already.
        while isServing, takeBody(), requestsInFlight < ControlLimits.requestsInFlight {
            let line: ByteBuffer?
            do { line = try nextLine() } catch {
                submit()
                refuse(.parse("the line is longer than \(ControlLimits.requestByteCount) bytes"))
                return
            }
            guard let line else { break }
            requestsInFlight += 1
            read(line)
        }
        if !isReading { submit() }
        finishIfDrained()
    }

    /// - Returns: false when more of a body has to come.
    private func takeBody() -> Bool {
        guard let (call, byteCount) = awaitedBody else { return true }
        guard let body = splitter.takeBytes(byteCount) else {
            if case .draining = state {
                awaitedBody = nil
                _ = splitter.takeRest()
                guard let call else { return false }
                if let id = call.id {
                    let error = ControlError.invalidRequest("the input ends before the \(byteCount) bytes of the body")
                    connection.add(UnreadableRequest(id: id, error: error))
                } else {
                    connection.addNothing()
                }
                needsFlush = true
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
        // Nothing more comes: what is left is a line, too.
        if case .draining = state { return splitter.takeRest() }
        return nil
    }

    private var isServing: Bool {
        switch state {
        case .serving, .draining: true
        case .accepted, .closed: false
        }
    }

    /// Makes a call of a line, or answers that there is none to be made.
    private func read(_ line: ByteBuffer) {
        line.withUnsafeReadableBytes { bytes in
            do throws(UnreadableRequest) {
                try RequestLine.read(bytes.assumingMemoryBound(to: UInt8.self)) {
                    (head, params) throws(UnreadableRequest) in
                    if head.bodyByteCount > 0 { awaitedBody = (nil, head.bodyByteCount) }
                    do throws(ControlError) {
                        let call = try bridge.makeCall(head.method, id: head.id, params: &params, session: session)
                        call.byteCount = bytes.count
                        if call.waits { try beginWaiting() }
                        if head.bodyByteCount == 0 {
                            calls.append(call)
                        } else if call.takesBody {
                            awaitedBody?.call = call
                        } else {
                            throw .invalidRequest("`\(head.method)` takes no body")
                        }
                    } catch {
                        guard let id = head.id else {
                            connection.addNothing()
                            needsFlush = true
                            return
                        }
                        throw UnreadableRequest(id: id, error: error)
                    }
                }
            } catch {
                if error.endsStream { return refuse(error.error) }
                connection.add(error)
                needsFlush = true
            }
        }
    }

    /// Gives the calls to the service, and the answers to what was none to the client.
    private func submit() {
        if !calls.isEmpty {
            bridge.submit(calls)
            calls = []
            whenRead()
        }
        if needsFlush {
            needsFlush = false
            connection.flush()
        }
    }

    /// No request is under way, no event is wanted, and nothing ends with the client.
    var isIdle: Bool {
        requestsInFlight == 0 && !connection.isStreaming && !connection.hasUnwritten
            && connection.dependentCount.load(ordering: .relaxed) == 0
    }

    var isWaiting: Bool { mayWait && !isIdle }

    private func beginWaiting() throws(ControlError) {
        guard !mayWait else { return }
        guard connections.waitingCount < ControlLimits.waitingConnections else {
            throw ControlError(
                .failed, "\(ControlLimits.waitingConnections) clients of the node wait already",
                hint: "end one: a --wait, a watch, a chat or a read --follow")
        }
        mayWait = true
    }

    /// Ends the connection, which ``isIdle``, for another.
    func giveUp() {
        refuse(
            ControlError(
                .failed,
                "the node closed this idle connection: it has no room for more than \(ControlLimits.connections)",
                hint: "connect again"))
    }

    /// The kernel has the answers of so many requests.
    private func finish(_ count: Int) {
        requestsInFlight -= count
        activeAt = .now()
        wasAnswered = true
        if isIdle { mayWait = false }
        dispatch()
        if isReadHeld, requestsInFlight < ControlLimits.requestsInFlight {
            isReadHeld = false
            connection.resumeReading()
        }
    }

    /// After the end of input: closes when every answer is out, unless events are still wanted.
    private func finishIfDrained() {
        guard case .draining = state, requestsInFlight == 0, !connection.isStreaming, !connection.hasUnwritten else {
            return
        }
        state = .closed
        connection.close()
    }
}
