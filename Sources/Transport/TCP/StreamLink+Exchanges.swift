import NIOCore

/// Knocks, and the exchanges of spoken codes: connections without a link.
extension StreamLink {
    func receiveKnock(_ token: RoutingToken, _ bytes: [UInt8]) {
        guard knockIsNext else {
            if !awaitKnock(bytes) { end(.requested, .knockTooLong) }
            return
        }
        expected = 0
        let source = DatagramAddress.Network(socket?.remoteAddress)?.number
        answer(transport.events.knock(token, bytes, source))
    }

    /// - Returns: false for a length out of bounds.
    private func awaitKnock(_ length: [UInt8]) -> Bool {
        expected = length.reduce(0) { $0 << 8 | Int($1) }
        knockIsNext = true
        return (1...limits.knockByteCount).contains(expected)
    }

    func receiveAnswer(to dial: ExchangeDial, _ bytes: [UInt8]) {
        if dial.kind == .knock, !knockIsNext {
            if !awaitKnock(bytes) { fail(.badAnswer) }
            return
        }
        expected = 0
        guard inbound.count == 0 else { return fail(.badAnswer) }
        switch dial.answered(bytes) {
        case .send(let message, let byteCount):
            expected = byteCount
            write(message)
            awaitAct(limits.actTimeout)
        case .end: end(.requested, nil)
        }
    }

    /// The first message of a code's exchange needs a free slot.
    func beginExchange(_ token: RoutingToken, _ message: [UInt8]) {
        expected = 0
        transport.waiting.leave(id)
        let network = DatagramAddress.Network(socket?.remoteAddress)
        if let rejection = transport.codes.begin(network) { return end(.requested, rejection) }
        let connection = CodeConnection(id: id, token: token, end: self)
        phase = .exchanging(network, connection)
        awaitAct(limits.actTimeout)
        transport.events.codeMessage(connection, message)
    }

    private func answer(_ answer: [UInt8]?) {
        guard let answer else { return end(.requested, nil) }
        precondition((1...limits.knockByteCount).contains(answer.count), "an answer to a knock has that many bytes")
        write([UInt8(answer.count >> 8), UInt8(answer.count & 0xff)] + answer)
        // The timers continue: they drop a knocker that does not read.
        loseAfterFlush()
    }

    fileprivate func loseAfterFlush() {
        guard let socket, outbound.count > 0 else { return end(.requested, nil) }
        socket.write(ByteBuffer()) { [weak self] _ in self?.end(.requested, nil) }
    }
}

/// An incoming, unauthenticated connection of a spoken code's exchange. Use it only on its transport's event loop.
///
/// The owner answers each message of the peer once: by ``answer(_:expecting:)``, ``deliver(_:)`` or ``close()``.
/// Reading pauses until then, and the timeout keeps running.
package final class CodeConnection {
    package let id: UInt64
    package let token: RoutingToken
    /// `nil` once the connection has ended.
    weak var end: StreamLink?

    init(id: UInt64, token: RoutingToken, end: StreamLink) {
        self.id = id
        self.token = token
        self.end = end
    }

    /// - Parameter byteCount: of the peer's next message.
    package func answer(_ message: [UInt8], expecting byteCount: Int) {
        guard let end else { return }
        end.expected = byteCount
        end.awaitAct(end.limits.actTimeout)
        end.write(message)
    }

    /// Sends the last message, then closes.
    package func deliver(_ message: [UInt8]) {
        end?.write(message)
        end?.loseAfterFlush()
    }

    package func close() { end?.end(.requested, nil) }
}

/// An outgoing exchange without a handshake, such as of a spoken code: the first message, and the reaction to each
/// answer.
package struct ExchangeDial {
    package enum Step {
        case send([UInt8], expecting: Int)
        case end
    }

    package let token: RoutingToken
    /// Sent right after the greeting.
    package let message: [UInt8]
    /// Bytes of the first answer.
    package let byteCount: Int
    /// A knock's one answer has its length before it and may be missing.
    var kind = Preamble.Kind.code
    package let answered: ([UInt8]) -> Step
    /// Called once: with `nil` after ``Step/end``, otherwise with the error.
    package let ended: (DialFailure?) -> Void

    package init(
        token: RoutingToken, message: [UInt8], expecting byteCount: Int, answered: @escaping ([UInt8]) -> Step,
        ended: @escaping (DialFailure?) -> Void
    ) {
        self.token = token
        self.message = message
        self.byteCount = byteCount
        self.answered = answered
        self.ended = ended
    }
}
