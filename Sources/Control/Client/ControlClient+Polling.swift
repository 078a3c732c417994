import Glibc

/// For a program that waits for other things beside the node: nothing here waits.
extension ControlClient {
    /// Becomes readable when something has come.
    package var descriptor: Int32 { socket.number }
    /// The socket did not take all that was posted: ``sendPosted()`` when it can be written to again.
    package var hasUnsent: Bool { !unsent.isEmpty }

    /// Posts a request, and sends what the socket takes.
    /// - Returns: the id that its answer has.
    package func post(_ method: String, _ params: JSONValue) throws(ControlError) -> RequestID {
        let id = takeID()
        let request = ControlRequest(id: id, method: method, params: params)
        unsent += request.jsonValue.utf8 + [UInt8(ascii: "\n")]
        try sendPosted()
        return id
    }

    package func sendPosted() throws(ControlError) {
        // When nobody reads any more, reading tells why.
        _ = try sendSome()
    }

    /// What has come.
    /// - Throws: `noNode` when the node has gone; what it had sent before is lost then.
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
