import Glibc

/// A client of the control socket: blocking, without an event loop, because a command's start-up time counts.
///
/// Not for use from several threads at once.
package final class ControlClient {
    let home: String
    let socket: ControlSocket.Descriptor
    /// Bytes for the node that its socket has not taken: of a call that was given up, too, since a line must be whole.
    var unsent: ArraySlice<UInt8> = []
    private var received: [UInt8] = []
    /// Bytes of ``received`` already given out.
    private var consumedByteCount = 0
    /// Bytes of ``received`` known to hold no newline.
    private var searchedByteCount = 0
    private var nextID: Int64 = 1
    /// Events that came while an answer was awaited.
    private var waitingNotifications: [ControlResponse] = []
    /// Why the node has closed the connection, if it has said so.
    var closingError: ControlError?

    /// Connects to the node of `home`.
    /// - Throws: `noNode` when none is running there; `timedOut` when it does not take us in `timeout`.
    package init(home: String, timeout: Duration? = .seconds(30)) throws(ControlError) {
        self.home = home
        self.socket = try ControlSocket(home: home).connect(until: timeout.map { ContinuousClock.now + $0 })
    }

    /// The process of the node, as the kernel says; `nil` if it is not to be seen from here, as from a container.
    package var process: Int32? {
        var credentials = ControlSocket.PeerCredentials(process: 0, user: 0, group: 0)
        var byteCount = socklen_t(MemoryLayout<ControlSocket.PeerCredentials>.size)
        let option = ControlSocket.peerCredentialsOption
        guard getsockopt(socket.number, SOL_SOCKET, option, &credentials, &byteCount) == 0, credentials.process > 0
        else { return nil }
        return credentials.process
    }

    /// Calls a method and waits for its answer.
    /// - Parameter timeout: for the whole call; `nil` waits for ever. A method that waits itself gets longer than that.
    /// - Throws: the node's error, `timedOut`, or `noNode` when the node goes away.
    package func call(_ method: String, _ params: JSONValue = [:], timeout: Duration? = .seconds(30))
        throws(ControlError) -> JSONValue
    {
        let deadline = timeout.map { ContinuousClock.now + $0 }
        return try answer(to: try send(method, params, until: deadline), until: deadline)
    }

    private func takeNumber() -> Int64 {
        defer { nextID += 1 }
        return nextID
    }

    /// The id of the next request.
    func takeID() -> RequestID { .integer(takeNumber()) }

    /// A request whose answer is awaited later.
    package struct PendingCall {
        fileprivate let number: Int64
        fileprivate let method: String

        fileprivate var id: RequestID { .integer(number) }

        /// Whether a failure ends the wait for this one: its own, one of the connection, or that of a later request.
        fileprivate func isEnded(byFailureOf id: RequestID) -> Bool {
            switch id {
            case .integer(let other): other >= number
            case .null: true
            case .string: false
            }
        }

        fileprivate var timedOut: ControlError {
            ControlError(.timedOut, "the node did not answer `\(method)` in time", hint: "see `mayfly doctor`")
        }
    }

    /// Sends a request without waiting for its answer.
    /// - Parameter body: what follows the request as it is; at most ``ControlLimits/bodyByteCount`` bytes.
    package func send(
        _ method: String, _ params: JSONValue, body: [UInt8] = [], until deadline: ContinuousClock.Instant?
    ) throws(ControlError) -> PendingCall {
        let call = PendingCall(number: takeNumber(), method: method)
        let request = ControlRequest(id: call.id, method: method, params: params, bodyByteCount: body.count)
        // Together: of a request that was given up the rest is sent with the next one.
        unsent += request.jsonValue.utf8 + [UInt8(ascii: "\n")]
        unsent += body
        guard try sendUnsent(until: deadline) else { throw call.timedOut }
        return call
    }

    /// Waits for the answer to the first of the requests that have none yet.
    /// - Throws: also the failure of one of the others, which may come first.
    package func answer(to call: PendingCall, until deadline: ContinuousClock.Instant?) throws(ControlError)
        -> JSONValue
    {
        while true {
            guard case .line(let line) = try readLine(until: deadline) else { throw call.timedOut }
            switch try ControlResponse(line: line) {
            case .success(let answered, let result) where answered == call.id: return result
            case .failure(let answered, let error) where call.isEnded(byFailureOf: answered):
                if answered == .null { closingError = error }
                throw error
            case .success, .failure: continue  // the late answer of a call that was given up
            case .notification(let name, let params):
                waitingNotifications.append(.notification(method: name, params: params))
            }
        }
    }

    /// Calls a method of the catalogue.
    /// - Returns: the result as the node sent it, fields of newer versions included; see ``JSONValue/decoded(as:)``.
    package func call<Method: ControlMethod>(
        _ method: Method.Type, _ params: Method.Params, timeout: Duration? = .seconds(30)
    ) throws(ControlError) -> JSONValue {
        let encoded = JSONValue(of: params)
        return try call(method.name, encoded, timeout: timeout)
    }

    /// What a subscription yields.
    package enum StreamStep: Hashable, Sendable {
        case event(JSONValue)
        /// We read too slowly: nothing more comes until the next `subscribe`, which takes up after the last cursor.
        case dropped(ControlError)
        /// The deadline has passed.
        case timedOut
        /// Nobody reads any more what is made of the events.
        case unread
    }

    /// Waits for the next event of a subscription.
    /// - Parameter output: where the events go, a pipe perhaps whose reader ends.
    /// - Throws: `noNode` when the node goes away.
    package func nextEvent(until deadline: ContinuousClock.Instant?, for output: Int32? = nil) throws(ControlError)
        -> StreamStep
    {
        while true {
            let response: ControlResponse
            if waitingNotifications.isEmpty {
                switch try readLine(until: deadline, for: output) {
                case .line(let line): response = try ControlResponse(line: line)
                case .timedOut: return .timedOut
                case .unread: return .unread
                }
            } else {
                response = waitingNotifications.removeFirst()
            }
            switch response {
            case .notification(ControlResponse.eventMethod, let event): return .event(event)
            case .notification(ControlResponse.droppedMethod, let error):
                return .dropped(ControlError(jsonValue: error))
            case .failure(let answered, let error):
                if answered == .null { closingError = error }
                throw error
            case .notification, .success: continue
            }
        }
    }
}

extension ControlClient {
    /// Sends a request of the catalogue without waiting for its answer.
    package func send<Method: ControlMethod>(
        _ method: Method.Type, _ params: Method.Params, body: [UInt8], until deadline: ContinuousClock.Instant?
    ) throws(ControlError) -> PendingCall { try send(method.name, JSONValue(of: params), body: body, until: deadline) }

    /// - Returns: false when `deadline` passes before all of ``unsent`` is sent.
    private func sendUnsent(until deadline: ContinuousClock.Instant?) throws(ControlError) -> Bool {
        while true {
            // When nobody reads any more, the node may have said why before it closed: reading tells.
            guard try sendSome() else { return true }
            if unsent.isEmpty { return true }
            guard try wait(for: POLLOUT, until: deadline) == .ready else { return false }
        }
    }

    /// Sends what the socket takes now.
    /// - Returns: false when the node reads nothing any more.
    func sendSome() throws(ControlError) -> Bool {
        while !unsent.isEmpty {
            let count = unsent.withUnsafeBytes { buffer in
                Glibc.send(socket.number, buffer.baseAddress, buffer.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
            }
            if count >= 0 {
                unsent = count == unsent.count ? [] : unsent.dropFirst(count)
            } else if errno == EAGAIN {
                return true
            } else if errno == EPIPE || errno == ECONNRESET {
                unsent = []
                return false
            } else if errno != EINTR {
                throw .system("cannot write to the node")
            }
        }
        return true
    }

    /// The lines that are whole now.
    func lines(after bytes: [UInt8]) throws(ControlError) -> [ArraySlice<UInt8>] {
        received.append(contentsOf: bytes)
        var lines: [ArraySlice<UInt8>] = []
        while let line = try nextLine() { lines.append(line) }
        return lines
    }

    /// The next line of what was received; `nil` if there is none yet.
    private func nextLine() throws(ControlError) -> ArraySlice<UInt8>? {
        if let newline = received[searchedByteCount...].firstIndex(of: UInt8(ascii: "\n")) {
            let line = received[consumedByteCount..<newline]
            consumedByteCount = newline + 1
            searchedByteCount = newline + 1
            return line
        }
        received.removeFirst(consumedByteCount)
        consumedByteCount = 0
        searchedByteCount = received.count
        guard received.count <= ControlLimits.responseByteCount else {
            throw .internalFailure("the node sent a line longer than \(ControlLimits.responseByteCount) bytes")
        }
        return nil
    }

    private enum ReadStep {
        case line(ArraySlice<UInt8>)
        case timedOut
        case unread
    }

    /// The next line, if it comes before `deadline` and the end of who reads `output`.
    private func readLine(until deadline: ContinuousClock.Instant?, for output: Int32? = nil) throws(ControlError)
        -> ReadStep
    {
        while true {
            if let line = try nextLine() { return .line(line) }
            switch try wait(for: POLLIN, until: deadline, output: output) {
            case .ready: break
            case .timedOut: return .timedOut
            case .unread: return .unread
            }
            let bytes = try Self.readSome(from: socket.number)
            guard !bytes.isEmpty else { throw hasGone }
            received.append(contentsOf: bytes)
        }
    }

    /// The node has closed the connection.
    var hasGone: ControlError {
        closingError ?? ControlError(.noNode, "the node in \(home) has gone", hint: "see its log, or `mayfly status`")
    }

    private enum WaitEnd {
        case ready
        case timedOut
        case unread
    }

    /// - Parameter event: `POLLIN` or `POLLOUT`.
    private func wait(for event: Int32, until deadline: ContinuousClock.Instant?, output: Int32? = nil)
        throws(ControlError) -> WaitEnd
    {
        while true {
            // What has a negative number is left out.
            var polled = [
                pollfd(fd: socket.number, events: Int16(event), revents: 0),
                pollfd(fd: output ?? -1, events: 0, revents: 0),
            ]
            let time = deadline.map { Self.pollTime(left: $0 - .now) } ?? -1
            guard poll(&polled, nfds_t(polled.count), time) >= 0 else {
                if errno == EINTR { continue }
                throw .system("cannot wait for the node")
            }
            if polled[1].revents & Int16(POLLERR | POLLHUP) != 0 { return .unread }
            if polled[0].revents != 0 { return .ready }
            if let deadline, deadline <= .now { return .timedOut }
        }
    }

    /// How long poll(2) may wait at a time, in milliseconds: 24 days at most, whatever is left.
    package static func pollTime(left: Duration) -> Int32 {
        // Rounded up, so that the last fraction of a millisecond is not spent spinning.
        Int32(clamping: Int64((max(.zero, left) / .milliseconds(1)).rounded(.up)))
    }

    /// At least one byte, or none at the end of the stream.
    static func readSome(from descriptor: Int32) throws(ControlError) -> [UInt8] {
        while true {
            var count = 0
            let bytes = [UInt8](unsafeUninitializedCapacity: 65_536) { buffer, initializedCount in
                count = read(descriptor, buffer.baseAddress, buffer.count)
                initializedCount = max(0, count)
            }
            if count >= 0 { return bytes }
            switch errno {
            case ECONNRESET: return []
            case EINTR: continue
            case EAGAIN:
                var polled = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
                _ = poll(&polled, 1, -1)
            default: throw .system("cannot read")
            }
        }
    }
}
