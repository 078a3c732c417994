import Glibc

/// A client of the control socket: blocking, without an event loop, because a command's start-up time counts.
///
/// Not for use from several threads at once.
package final class ControlClient {
    private let home: String
    private let socket: ControlSocket.Descriptor
    private var received: [UInt8] = []
    /// Bytes of ``received`` already given out.
    private var consumedByteCount = 0
    /// Bytes of ``received`` known to hold no newline.
    private var searchedByteCount = 0
    private var nextID: Int64 = 1
    /// Events that came while an answer was awaited.
    private var waitingNotifications: [ControlResponse] = []

    /// Connects to the node of `home`.
    /// - Throws: `noNode` when none is running there.
    package init(home: String) throws(ControlError) {
        self.home = home
        self.socket = try ControlSocket(home: home).connect()
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
    package func call(
        _ method: String,
        _ params: JSONValue = [:],
        timeout: Duration? = .seconds(30)
    ) throws(ControlError) -> JSONValue {
        let id = RequestID.integer(nextID)
        nextID += 1
        let deadline = timeout.map { ContinuousClock.now + $0 }
        try send(ControlRequest(id: id, method: method, params: params).jsonValue.utf8 + [UInt8(ascii: "\n")])
        while true {
            guard let line = try readLine(until: deadline) else {
                throw ControlError(
                    .timedOut,
                    "the node did not answer `\(method)` in time",
                    hint: "see `mayfly doctor`"
                )
            }
            switch try ControlResponse(line: line) {
            case .success(let answered, let result) where answered == id: return result
            case .failure(let answered, let error) where answered == id || answered == .null: throw error
            case .success, .failure: continue  // the late answer of a call that was given up
            case .notification(let name, let params):
                waitingNotifications.append(.notification(method: name, params: params))
            }
        }
    }

    /// Calls a method of the catalogue.
    /// - Returns: the result as the node sent it, fields of newer versions included; see ``JSONValue/decoded(as:)``.
    package func call<Method: ControlMethod>(
        _ method: Method.Type,
        _ params: Method.Params,
        timeout: Duration? = .seconds(30)
    ) throws(ControlError) -> JSONValue {
        let encoded: JSONValue
        do {
            encoded = try JSONValue(encoding: params)
        } catch {
            throw .internalFailure("cannot write the parameters of `\(method.name)`")
        }
        return try call(method.name, encoded, timeout: timeout)
    }

    /// What a subscription yields.
    package enum StreamStep: Hashable, Sendable {
        case event(JSONValue)
        /// We read too slowly: nothing more comes until the next `subscribe`, which takes up after the last cursor.
        case dropped(ControlError)
        /// The deadline has passed.
        case timedOut
    }

    /// Waits for the next event of a subscription.
    /// - Throws: `noNode` when the node goes away.
    package func nextEvent(until deadline: ContinuousClock.Instant?) throws(ControlError) -> StreamStep {
        while true {
            let response: ControlResponse
            if waitingNotifications.isEmpty {
                guard let line = try readLine(until: deadline) else { return .timedOut }
                response = try ControlResponse(line: line)
            } else {
                response = waitingNotifications.removeFirst()
            }
            switch response {
            case .notification(ControlResponse.eventMethod, let event): return .event(event)
            case .notification(ControlResponse.droppedMethod, let error):
                return .dropped(ControlError(jsonValue: error))
            case .failure(_, let error): throw error
            case .notification, .success: continue
            }
        }
    }

    /// Carries lines both ways until the node closes: `input` to the node, the node's answers to `output`.
    ///
    /// After the end of `input` the node still answers what it was asked.
    package func pump(from input: Int32, to output: Int32) throws(ControlError) {
        var inputIsOpen = true
        while true {
            var polled = [
                pollfd(fd: socket.number, events: Int16(POLLIN), revents: 0),
                pollfd(fd: inputIsOpen ? input : -1, events: Int16(POLLIN), revents: 0),
                pollfd(fd: output, events: 0, revents: 0),
            ]
            guard poll(&polled, nfds_t(polled.count), -1) >= 0 else {
                if errno == EINTR { continue }
                throw .system("cannot wait for the node")
            }
            if polled[2].revents & Int16(POLLERR | POLLHUP) != 0 { return }
            if polled[0].revents != 0 {
                let bytes = try Self.readSome(from: socket.number)
                if bytes.isEmpty { return }
                guard try Self.writeAll(bytes, to: output) else { return }
            }
            if polled[1].revents != 0 {
                let bytes = try Self.readSome(from: input)
                if bytes.isEmpty {
                    inputIsOpen = false
                    _ = shutdown(socket.number, Int32(SHUT_WR))
                } else {
                    try send(bytes)
                }
            }
        }
    }
}

extension ControlClient {
    private func send(_ bytes: [UInt8]) throws(ControlError) {
        var sent = 0
        while sent < bytes.count {
            let count = bytes.withUnsafeBytes { buffer in
                Glibc.send(
                    socket.number,
                    UnsafeRawBufferPointer(rebasing: buffer[sent...]).baseAddress,
                    buffer.count - sent,
                    Int32(MSG_NOSIGNAL)
                )
            }
            if count >= 0 {
                sent += count
            } else if errno == EPIPE || errno == ECONNRESET {
                return  // the node may have said why before it closed: reading tells
            } else if errno != EINTR {
                throw .system("cannot write to the node")
            }
        }
    }

    /// The next line; `nil` when `deadline` passes first.
    private func readLine(until deadline: ContinuousClock.Instant?) throws(ControlError) -> ArraySlice<UInt8>? {
        while true {
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
            guard try waitReadable(until: deadline) else { return nil }
            let bytes = try Self.readSome(from: socket.number)
            guard !bytes.isEmpty else {
                throw ControlError(.noNode, "the node in \(home) has gone", hint: "see its log, or `mayfly status`")
            }
            received.append(contentsOf: bytes)
        }
    }

    private func waitReadable(until deadline: ContinuousClock.Instant?) throws(ControlError) -> Bool {
        while true {
            var timeoutMilliseconds: Int32 = -1
            if let deadline {
                let left = max(.zero, deadline - ContinuousClock.now)
                // Rounded up, so that the last fraction of a millisecond is not spent spinning.
                timeoutMilliseconds = Int32(clamping: Int64((left / .milliseconds(1)).rounded(.up)))
            }
            var polled = pollfd(fd: socket.number, events: Int16(POLLIN), revents: 0)
            let count = poll(&polled, 1, timeoutMilliseconds)
            if count > 0 { return true }
            if count == 0 { return false }
            guard errno == EINTR else { throw .system("cannot wait for the node") }
        }
    }

    /// At least one byte, or none at the end of the stream.
    private static func readSome(from descriptor: Int32) throws(ControlError) -> [UInt8] {
        while true {
            var count = 0
            let bytes = [UInt8](unsafeUninitializedCapacity: 65_536) { buffer, initializedCount in
                count = read(descriptor, buffer.baseAddress, buffer.count)
                initializedCount = max(0, count)
            }
            if count >= 0 { return bytes }
            if errno == ECONNRESET { return [] }
            guard errno == EINTR else { throw .system("cannot read") }
        }
    }

    /// - Returns: false when nobody reads `descriptor` any more.
    private static func writeAll(_ bytes: [UInt8], to descriptor: Int32) throws(ControlError) -> Bool {
        var written = 0
        while written < bytes.count {
            let count = bytes.withUnsafeBytes { buffer in
                write(
                    descriptor,
                    UnsafeRawBufferPointer(rebasing: buffer[written...]).baseAddress,
                    buffer.count - written
                )
            }
            if count >= 0 {
                written += count
            } else if errno == EPIPE {
                return false
            } else if errno != EINTR {
                throw .system("cannot write")
            }
        }
        return true
    }
}
