import NIOCore

/// Turns the bytes of one connection into requests, and answers into bytes.
///
///     accepted ──credentials──▶ serving ──end of input──▶ draining ──last answer──▶ closed
///         └──refused──▶ closed     └──oversize line──▶ closed
///
/// While ``ControlLimits/requestsInFlight`` requests are under way nothing is read, so a client that pipelines without
/// reading its answers is stopped by its own socket.
final class ControlConnectionHandler: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    enum Admission {
        /// Serve processes of this user, and of root.
        case onlyUser(UInt32)
        /// Say that there are too many connections, and close.
        case full
    }

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
    private let admission: Admission
    private let handler: ControlHandler
    private var state = State.accepted
    private var splitter = LineSplitter(byteLimit: ControlLimits.requestByteCount)
    private var requestsInFlight = 0
    private var isReadHeld = false
    private var isDispatching = false
    /// The client has sent all it will send before it is known who it is.
    private var hasInputEnded = false

    init(connection: ControlConnection, admission: Admission, handler: @escaping ControlHandler) {
        self.connection = connection
        self.admission = admission
        self.handler = handler
    }

    func handlerAdded(context: ChannelHandlerContext) {
        connection.streamDropped = { [unowned self] in finishIfDrained() }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        connection.streamDropped = nil
    }

    func channelActive(context: ChannelHandlerContext) {
        context.fireChannelActive()
        switch admission {
        case .full:
            refuse(ControlError(.failed, "too many connections to the node", hint: "close some clients"))
        case .onlyUser(let user):
            checkPeer(context.channel, user: user)
        }
    }

    private func refuse(_ error: ControlError) {
        state = .closed
        connection.writeAndClose(ControlResponse.failure(id: .null, error: error).line)
    }

    private func checkPeer(_ channel: any Channel, user: UInt32) {
        guard let options = channel as? any SocketOptionProvider else {
            preconditionFailure("the control socket is a socket channel")
        }
        let credentials: EventLoopFuture<ControlSocket.PeerCredentials> = options.unsafeGetSocketOption(
            level: .socket,
            name: .init(rawValue: ControlSocket.peerCredentialsOption)
        )
        credentials.assumeIsolated().whenComplete { [self] outcome in
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
        if requestsInFlight >= ControlLimits.requestsInFlight {
            isReadHeld = true
        } else {
            context.read()
        }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        if case .closed = state { return }
        var bytes = unwrapInboundIn(data)
        splitter.append(&bytes)
        dispatch()
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

    /// Starts every request that has arrived, as far as the limit allows.
    private func dispatch() {
        guard !isDispatching else { return }
        isDispatching = true
        defer { isDispatching = false }
        while isServing, requestsInFlight < ControlLimits.requestsInFlight {
            let line: ByteBuffer?
            do {
                line = try nextLine()
            } catch {
                refuse(.parse("the line is longer than \(ControlLimits.requestByteCount) bytes"))
                return
            }
            guard let line else {
                finishIfDrained()
                return
            }
            start(line)
        }
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

    private func start(_ line: ByteBuffer) {
        let request: ControlRequest
        do {
            request = try ControlRequest(line: line.readableBytesView)
        } catch {
            requestsInFlight += 1
            respond(.failure(id: error.id, error: error.error))
            return
        }
        requestsInFlight += 1
        let outcome: EventLoopFuture<JSONValue>
        do {
            outcome = try handler(request, connection)
        } catch {
            settle(request, .failure(error))
            return
        }
        outcome.hop(to: connection.eventLoop).assumeIsolated().whenComplete { [self] in settle(request, $0) }
    }

    private func settle(_ request: ControlRequest, _ outcome: Result<JSONValue, any Error>) {
        guard let id = request.id else {
            finishRequest()
            return
        }
        switch outcome {
        case .success(let result): respond(.success(id: id, result: result))
        case .failure(let error as ControlError): respond(.failure(id: id, error: error))
        case .failure:
            // What it says may name files or addresses: it is the node's to log, not ours to pass on.
            respond(.failure(id: id, error: .internalFailure("`\(request.method)` failed inside the node")))
        }
    }

    /// A request counts as under way until the kernel has its answer.
    private func respond(_ response: ControlResponse) {
        connection.write(response.line).assumeIsolated().whenComplete { [self] _ in finishRequest() }
    }

    private func finishRequest() {
        requestsInFlight -= 1
        dispatch()
        if isReadHeld, requestsInFlight < ControlLimits.requestsInFlight {
            isReadHeld = false
            connection.resumeReading()
        }
    }

    /// After the end of input: closes when every answer is out, unless events are still wanted.
    private func finishIfDrained() {
        guard case .draining = state, requestsInFlight == 0, !connection.isStreaming else { return }
        state = .closed
        connection.close()
    }
}
