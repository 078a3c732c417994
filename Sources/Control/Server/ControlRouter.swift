import NIOCore

/// Answers the requests of the control socket, on its loop.
package protocol ControlService: Sendable {
    /// Creates a call.
    /// - Parameter params: the service reads one value; an empty object when the request has no parameters.
    func call(_ method: String, id: RequestID?, params: inout JSONReader, session: ControlSession) throws(ControlError)
        -> ControlCall

    /// Runs the calls of one socket read, in order.
    func perform(_ calls: [ControlCall])
}

/// The node's method table.
///
///     var router = ControlRouter()
///     router.on(method) { call in call.succeed(result) }
package struct ControlRouter: ControlService {
    private typealias Make =
        @Sendable (RequestID?, inout JSONReader, ControlSession) -> Result<ControlCall, ControlError>

    private var methods: [String: Make] = [:]
    private let isDescribed: @Sendable (String) -> Bool
    private let batch: @Sendable (_ perform: () -> Void) -> Void

    /// - Parameters:
    ///   - isDescribed: whether the schema has a method of this name.
    ///   - batch: runs its argument, which executes a batch of calls.
    package init(
        isDescribed: @escaping @Sendable (String) -> Bool = { _ in false },
        batch: @escaping @Sendable (_ perform: () -> Void) -> Void = { perform in perform() }
    ) {
        self.isDescribed = isDescribed
        self.batch = batch
    }

    /// Registers `body` for `method`. It runs with validated parameters.
    /// - Parameter joins: whether a call of the same client may run together with the call directly before it: see
    ///   ``MethodCall/followers``. `nil` for a body that takes one call at a time.
    package mutating func on<Params: MethodParams, Output: MethodResult>(
        _ method: some ControlMethod<Params, Output>, joins: MethodCall<Params, Output>.Joins? = nil,
        _ body: @escaping MethodCall<Params, Output>.Body
    ) {
        methods[method.name] = { id, params, session in
            var values = Params()
            do throws(JSONMismatch) {
                // Strict, so that a misspelled option fails.
                try values.read(from: &params) { _ in "`\(method.name)` has no such parameter" }
            } catch { return .failure(.invalidParameter(error)) }
            return .success(MethodCall(method, id: id, session: session, params: values, joins: joins, body: body))
        }
    }

    /// Described methods without a body are answered "not supported by this version", all others "unknown".
    package func call(_ method: String, id: RequestID?, params: inout JSONReader, session: ControlSession)
        throws(ControlError) -> ControlCall
    {
        if let make = methods[method] { return try make(id, &params, session).get() }
        guard !isDescribed(method) else { throw .unsupportedMethod(method) }
        throw .unknownMethod(method)
    }

    package func perform(_ calls: [ControlCall]) {
        batch {
            var rest = calls[...]
            while let call = rest.popFirst() {
                while let next = rest.first, call.take(next) { rest.removeFirst() }
                call.perform()
            }
        }
    }
}

/// A request in progress, the only allocation per request. On the loop.
package class ControlCall: @unchecked Sendable {
    // @unchecked: mutable state is confined to the loop.

    /// The client that sent the request.
    package let session: ControlSession
    package let method: String
    /// `nil` for a notification, which gets no answer.
    let id: RequestID?
    let takesBody: Bool
    /// See ``ControlMethod/waits``.
    let waits: Bool
    /// Bytes of the request line.
    final var byteCount = 0
    /// Raw bytes after the request line.
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

    /// Runs the method, which settles the call now or later.
    package func perform() { preconditionFailure("a call has a method") }

    /// Takes the call directly after this one, if both may run together.
    func take(_ next: ControlCall) -> Bool { false }

    func writeResult(to writer: inout JSONWriter) { preconditionFailure("a call has a result") }

    /// Delivers the result. Only the first call has an effect.
    package final func settle() {
        guard !isSettled else { return }
        isSettled = true
        session.deliver(self)
    }

    /// Delivers a failure.
    package final func fail(_ error: any Error) {
        guard !isSettled else { return }
        // An error of another type may name files or addresses, which must not reach the client.
        failure = error as? ControlError ?? .internalFailure("`\(method)` failed inside the node")
        settle()
    }

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

package final class MethodCall<Params: MethodParams, Output: MethodResult>: ControlCall, @unchecked Sendable {
    package typealias Body = @Sendable (MethodCall) -> Void
    package typealias Joins = @Sendable (_ first: Params, _ next: Params) -> Bool

    /// Cleared when the body returns, so that a text does not stay in memory until its message is delivered.
    package private(set) var params: Params
    /// Calls that run together with this one, and that its body settles too.
    package private(set) var followers: [MethodCall] = []
    private let joins: Joins?
    private let answer: Body
    private var result: Output?

    package init(
        _ method: some ControlMethod<Params, Output>, id: RequestID?, session: ControlSession, params: Params,
        joins: Joins? = nil, body: @escaping Body
    ) {
        self.params = params
        self.joins = joins
        answer = body
        super.init(
            id: id, method: method.name, takesBody: method.takesBody, waits: method.waits(params), session: session)
    }

    override package func perform() {
        answer(self)
        for call in followers { call.forget() }
        followers = []
        forget()
    }

    private func forget() {
        params = Params()
        body = nil
    }

    override func take(_ next: ControlCall) -> Bool {
        guard let joins, next.session === session, let next = next as? MethodCall, joins(params, next.params) else {
            return false
        }
        followers.append(next)
        return true
    }

    package func succeed(_ result: Output) {
        guard self.result == nil else { return }
        self.result = result
        settle()
    }

    /// Delivers a result or a failure.
    package func complete(_ outcome: Result<Output, any Error>) {
        switch outcome {
        case .success(let result): succeed(result)
        case .failure(let error): fail(error)
        }
    }

    override func writeResult(to writer: inout JSONWriter) { result?.write(to: &writer) }
}
