import Glibc
import NIOCore

/// A blocking client of the control socket. It has no event loop, to keep the start-up time of a command short.
///
/// Not thread-safe.
package final class ControlClient {
    let home: String
    let socket: ControlSocket.Descriptor
    /// Unsent bytes. They include the rest of an abandoned call, because a line must be completed.
    var unsent: ArraySlice<UInt8> = []
    private var received = LineSplitter(byteLimit: ControlLimits.responseByteCount)
    private var nextID: Int64 = 1
    /// Events received while waiting for an answer.
    private var waitingNotifications: [ControlResponse] = []
    /// The node's reason for closing the connection, if it sent one.
    var closingError: ControlError?
    /// After this time without a byte, a waiting call asks whether the node answers at all, and a stream after
    /// ``quiet``; after as long again the node counts as hanging.
    let patience: Duration
    var quiet: Duration { patience * 6 }

    /// - Throws: `noNode` when no node runs in `home`; `timedOut` when the node does not accept within `timeout`.
    package init(home: String, timeout: Duration? = .seconds(30), patience: Duration = .seconds(5)) throws(ControlError)
    {
        self.home = home
        self.patience = patience
        self.socket = try ControlSocket(home: home).connect(until: timeout.map { ContinuousClock.now + $0 })
    }

    /// Process id of the node, from `SO_PEERCRED`; `nil` in another PID namespace, such as a container.
    package var process: Int32? { ControlSocket.peer(of: socket).flatMap { $0.process > 0 ? $0.process : nil } }

    package var doesNotAnswer: ControlError {
        ControlError(
            .timedOut, "\(process.map { "process \($0)" } ?? "the node in \(home)") does not answer",
            hint: process.map { "`kill -CONT \($0)` continues a stopped process; a disk may hang, see `mayfly doctor`" }
        )
    }

    /// Calls a method and waits for its answer.
    /// - Parameter timeout: for the whole call; `nil` waits for ever. Give more than the method's own timeout.
    /// - Throws: the node's error, `timedOut`, or `noNode` when the node closes the connection.
    package func call(_ method: String, _ params: JSONValue = [:], timeout: Duration? = .seconds(30))
        throws(ControlError) -> JSONValue
    {
        let deadline = timeout.map { ContinuousClock.now + $0 }
        return try answer(to: try send(method, params, until: deadline), until: deadline)
    }

    /// Queues a request with its body.
    /// - Returns: its number.
    private func queue(_ method: String, _ params: JSONValue, body: [UInt8] = []) -> Int64 {
        defer { nextID += 1 }
        let request = ControlRequest(id: .integer(nextID), method: method, params: params, bodyByteCount: body.count)
        unsent += request.jsonValue.utf8 + [UInt8(ascii: "\n")]
        unsent += body
        return nextID
    }

    package struct PendingCall {
        fileprivate let number: Int64
        fileprivate let method: String
        fileprivate let conversation: String?

        fileprivate var id: RequestID { .integer(number) }

        /// Ends the wait: a failure of this request, of the connection (a null id), or of a later request.
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
    /// - Parameter body: bytes after the request line; at most ``ControlLimits/bodyByteCount``.
    package func send(
        _ method: String, _ params: JSONValue, body: [UInt8] = [], until deadline: ContinuousClock.Instant?
    ) throws(ControlError) -> PendingCall {
        let subject = (params["conversation"] ?? params["inbox"])?.stringValue
        // Queued together: the next request first sends the rest of an abandoned one.
        let call = PendingCall(number: queue(method, params, body: body), method: method, conversation: subject)
        guard try sendUnsent(until: deadline) else { throw call.timedOut }
        return call
    }

    /// Waits for the answer to the oldest unanswered request.
    /// - Throws: also the failure of a later request, which may arrive first; ``doesNotAnswer`` when the node hangs.
    package func answer(to call: PendingCall, until deadline: ContinuousClock.Instant?) throws(ControlError)
        -> JSONValue
    {
        while true {
            let step = try readLine(until: deadline, asksAfter: patience)
            guard case .ended(let line) = step else { throw call.timedOut }
            switch try ControlResponse(line: line) {
            case .success(let answered, let result) where answered == call.id: return result
            case .failure(let answered, let error) where call.isEnded(byFailureOf: answered):
                if answered == .null { closingError = error }
                throw error.about(call.conversation)
            case .success, .failure: continue  // late answer of an abandoned call
            case .notification(let name, let params):
                waitingNotifications.append(.notification(method: name, params: params))
            }
        }
    }

    /// Calls a method of the catalogue.
    /// - Returns: the raw result, with fields of newer versions; see ``JSONValue/decoded(as:)``.
    package func call<Method: ControlMethod>(
        _ method: Method, _ params: Method.Params, timeout: Duration? = .seconds(30)
    ) throws(ControlError) -> JSONValue { try call(method.name, JSONValue(of: params), timeout: timeout) }

    package enum StreamStep: Hashable, Sendable {
        case event(JSONValue)
        /// We read too slowly. Events resume with a new `subscribe`, after the last cursor.
        case dropped(ControlError)
        case timedOut
        /// The reader of our output closed it.
        case unread
    }

    /// Waits for the next event of a subscription.
    /// - Parameter output: descriptor for the events. The wait ends when its reader closes.
    /// - Throws: `noNode` when the node closes the connection; ``doesNotAnswer`` when it hangs.
    package func nextEvent(until deadline: ContinuousClock.Instant?, for output: Int32? = nil) throws(ControlError)
        -> StreamStep
    {
        while true {
            let response: ControlResponse
            if waitingNotifications.isEmpty {
                switch try readLine(until: deadline, asksAfter: quiet, for: output) {
                case .ended(let line): response = try ControlResponse(line: line)
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
    package func send<Method: ControlMethod>(
        _ method: Method, _ params: Method.Params, body: [UInt8], until deadline: ContinuousClock.Instant?
    ) throws(ControlError) -> PendingCall { try send(method.name, JSONValue(of: params), body: body, until: deadline) }

    /// - Returns: false when `deadline` passes before ``unsent`` is empty.
    private func sendUnsent(until deadline: ContinuousClock.Instant?) throws(ControlError) -> Bool {
        while true {
            // After EPIPE the caller reads, because the node may have sent the reason before it closed.
            guard try sendSome() else { return true }
            if unsent.isEmpty { return true }
            guard case .ended = try wait(for: POLLOUT, until: deadline) else { return false }
        }
    }

    /// Sends as much as the socket takes now.
    /// - Returns: false when the node no longer reads.
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

    /// The next received line; `nil` when none is complete.
    private func nextLine() throws(ControlError) -> ByteBufferView? {
        do throws(LineSplitter.LineTooLong) { return try received.nextLine()?.readableBytesView } catch {
            throw .internalFailure("the node sent a line longer than \(ControlLimits.responseByteCount) bytes")
        }
    }

    private enum Wait<Value> {
        case ended(Value)
        case timedOut
        /// The reader of our output closed it.
        case unread
    }

    /// The next line. A node that is silent for `time` is asked for something that takes no time. Ends early at
    /// `deadline`, or when the reader of `output` closes.
    private func readLine(until deadline: ContinuousClock.Instant?, asksAfter time: Duration, for output: Int32? = nil)
        throws(ControlError) -> Wait<ByteBufferView>
    {
        var (isAsked, end) = (false, ContinuousClock.now + time)
        while true {
            if let line = try nextLine() { return .ended(line) }
            switch try wait(for: POLLIN, until: min(deadline ?? end, end), output: output) {
            case .ended:
                let bytes = try Self.readSome(from: socket.number)
                guard !bytes.isEmpty else { throw hasGone }
                received.append(bytes)
                (isAsked, end) = (false, .now + time)
            case .timedOut where deadline.map({ $0 <= .now }) ?? false: return .timedOut
            // This process or the machine stood still, and the node may have, too.
            case .timedOut where .now - end > .seconds(1): end = .now + patience
            case .timedOut where isAsked: throw doesNotAnswer
            case .timedOut:
                _ = try post("version", [:])
                (isAsked, end) = (true, .now + patience)
            case .unread: return .unread
            }
        }
    }

    var hasGone: ControlError {
        closingError
            ?? ControlError(.noNode, "the node in \(home) has stopped", hint: "see its log, or `mayfly status`")
    }

    /// - Parameter event: `POLLIN` or `POLLOUT`.
    private func wait(for event: Int32, until deadline: ContinuousClock.Instant?, output: Int32? = nil)
        throws(ControlError) -> Wait<Void>
    {
        while true {
            // poll(2) ignores negative descriptors.
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
            if polled[0].revents != 0 { return .ended(()) }
            if let deadline, deadline <= .now { return .timedOut }
        }
    }

    /// Timeout for poll(2) in milliseconds, at most 24 days.
    package static func pollTime(left: Duration) -> Int32 {
        // Rounded up, to avoid spinning in the last fraction of a millisecond.
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

/// Non-blocking calls, for a program that polls several descriptors.
extension ControlClient {
    /// Readable when the node sent bytes.
    package var descriptor: Int32 { socket.number }
    /// True when the socket buffer is full. Call ``sendPosted()`` when the descriptor becomes writable.
    package var hasUnsent: Bool { !unsent.isEmpty }

    /// Queues a request and sends as much as the socket takes.
    /// - Returns: the id of the coming answer.
    package func post(_ method: String, _ params: JSONValue) throws(ControlError) -> RequestID {
        let id = RequestID.integer(queue(method, params))
        try sendPosted()
        return id
    }

    package func sendPosted() throws(ControlError) {
        // After EPIPE, reading yields the reason.
        _ = try sendSome()
    }

    /// The responses received so far.
    /// - Throws: `noNode` when the node closed the connection; earlier responses of this call are lost then.
    package func responses() throws(ControlError) -> [ControlResponse] {
        var polled = pollfd(fd: socket.number, events: Int16(POLLIN), revents: 0)
        guard poll(&polled, 1, 0) > 0 else { return [] }
        let bytes = try Self.readSome(from: socket.number)
        guard !bytes.isEmpty else { throw hasGone }
        received.append(bytes)
        var responses: [ControlResponse] = []
        while let line = try nextLine() { responses.append(try ControlResponse(line: line)) }
        return responses
    }
}

package enum DescriptorOutput {
    /// Writes all of `bytes`. Waits on a full non-blocking descriptor: another process may have set O_NONBLOCK on it.
    /// - Returns: the errno of a failure; `nil` after success.
    package static func write(_ bytes: some Collection<UInt8>, to descriptor: Int32) -> Int32? {
        var rest = ArraySlice(bytes)
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count >= 0 {
                rest = rest.dropFirst(count)
            } else if errno == EAGAIN {
                var polled = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                if poll(&polled, 1, -1) < 0, errno != EINTR { return errno }
            } else if errno != EINTR {
                return errno
            }
        }
        return nil
    }
}
