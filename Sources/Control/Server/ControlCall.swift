import NIOCore

/// One request under way, the one object that a request costs. It crosses to the loop of the service with its parameters
/// and comes back to the control loop with its answer.
package class ControlCall: @unchecked Sendable {
    // @unchecked: one loop has a call at a time. The control loop makes it and gives it away, the service's loop performs
    // and settles it and gives it back.

    /// Of the client that asked.
    package let session: ControlSession
    package let method: String
    /// `nil` for a notification, which gets no answer.
    let id: RequestID?
    /// Whether a body may follow the request.
    let takesBody: Bool
    /// Whether the answer may take long; see ``ControlMethod/waits(_:)``.
    let waits: Bool
    /// Of the request's line.
    final var byteCount = 0
    /// What followed the request, as it came.
    package final var body: ByteBuffer?
    private(set) var failure: ControlError?
    private var isSettled = false

    init(id: RequestID?, method: String, takesBody: Bool, waits: Bool, session: ControlSession) {
        self.id = id
        self.method = method
        self.takesBody = takesBody
        self.waits = waits
        self.session = session
    }

    /// Does what was asked. On the service's loop, which settles the call then or later.
    package func perform() { preconditionFailure("a call has a method") }

    /// On the control loop, after a success.
    func writeResult(to writer: inout JSONWriter) { preconditionFailure("a call has a result") }

    /// The result is there. On the service's loop; the first word counts.
    package final func settle() {
        guard !isSettled else { return }
        isSettled = true
        session.deliver(.answer(self))
    }

    /// There will be no result. On the service's loop.
    package final func fail(_ error: any Error) {
        guard !isSettled else { return }
        // What a foreign error says may name files or addresses: it is the node's to log, not ours to pass on.
        failure = error as? ControlError ?? .internalFailure("`\(method)` failed inside the node")
        settle()
    }

    /// The line that the client gets.
    final func writeAnswer(to writer: inout JSONWriter) {
        guard let id else { return }
        if let failure {
            writer.failure(id, failure)
        } else {
            writer.beginSuccess(id)
            writeResult(to: &writer)
            writer.endLine()
        }
    }
}

/// A call of a method of the catalogue.
package final class MethodCall<Method: ControlMethod>: ControlCall, @unchecked Sendable {
    package typealias Body = @Sendable (MethodCall<Method>) -> Void

    /// Only until the body returns: a text is not kept for as long as its message is on its way.
    package private(set) var params: Method.Params
    private let answer: Body
    private var result: Method.Result?

    /// - Parameter name: of the method, as it was asked for.
    package init(
        id: RequestID?, name: String = Method.name, session: ControlSession, params: Method.Params, body: @escaping Body
    ) {
        self.params = params
        answer = body
        super.init(id: id, method: name, takesBody: Method.takesBody, waits: Method.waits(params), session: session)
    }

    override package func perform() {
        answer(self)
        params = Method.Params()
        body = nil
    }

    /// Answers. On the service's loop.
    package func succeed(_ result: Method.Result) {
        guard self.result == nil else { return }
        self.result = result
        settle()
    }

    /// Answers with what `body` returns or throws. On the service's loop.
    package func complete(_ outcome: Result<Method.Result, any Error>) {
        switch outcome {
        case .success(let result): succeed(result)
        case .failure(let error): fail(error)
        }
    }

    override func writeResult(to writer: inout JSONWriter) { result?.write(to: &writer) }
}
