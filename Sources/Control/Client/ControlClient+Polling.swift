import Glibc

/// Non-blocking calls, for a program that polls several descriptors.
extension ControlClient {
    /// Readable when the node sent bytes.
    package var descriptor: Int32 { socket.number }
    /// True when the socket buffer is full. Call ``sendPosted()`` when the descriptor becomes writable.
    package var hasUnsent: Bool { !unsent.isEmpty }

    /// Queues a request and sends as much as the socket takes.
    /// - Returns: the id of the coming answer.
    package func post(_ method: String, _ params: JSONValue) throws(ControlError) -> RequestID {
        let id = takeID()
        let request = ControlRequest(id: id, method: method, params: params)
        unsent += request.jsonValue.utf8 + [UInt8(ascii: "\n")]
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
        var responses: [ControlResponse] = []
        for line in try lines(after: bytes) { responses.append(try ControlResponse(line: line)) }
        return responses
    }
}
