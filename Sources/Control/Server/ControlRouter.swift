/// Answers the requests of the control socket.
package protocol ControlService: Sendable {
    /// Creates a call. On the control loop.
    /// - Parameter params: the service reads one value; an empty object when the request has no parameters.
    func call(_ method: String, id: RequestID?, params: inout JSONReader, session: ControlSession) throws(ControlError)
        -> ControlCall

    /// Runs the calls of one socket read, in order. On the service's loop.
    func perform(_ calls: [ControlCall])
}

/// The node's method table. Parameters are parsed on the control loop, bodies run on the node's loop.
///
///     var router = ControlRouter()
///     router.on(method) { call in call.succeed(result) }
package struct ControlRouter: ControlService {
    private var methods: [String: any Served] = [:]
    private let isDescribed: @Sendable (String) -> Bool
    private let batch: @Sendable (_ perform: () -> Void) -> Void

    /// - Parameters:
    ///   - isDescribed: whether the schema has a method of this name.
    ///   - batch: runs its argument, which executes a batch of calls, on the service's loop.
    package init(
        isDescribed: @escaping @Sendable (String) -> Bool = { _ in false },
        batch: @escaping @Sendable (_ perform: () -> Void) -> Void = { perform in perform() }
    ) {
        self.isDescribed = isDescribed
        self.batch = batch
    }

    /// Registers `body` for `method`. It runs on the service's loop, with validated parameters.
    package mutating func on<Params: MethodParams, Output: MethodResult>(
        _ method: RPCMethod<Params, Output>, _ body: @escaping MethodCall<Params, Output>.Body
    ) { methods[method.name] = ServedMethod(method: method, body: body) }

    /// Described methods without a body are answered "not supported by this version", all others "unknown".
    package func call(_ method: String, id: RequestID?, params: inout JSONReader, session: ControlSession)
        throws(ControlError) -> ControlCall
    {
        if let served = methods[method] { return try served.call(id, &params, session) }
        guard !isDescribed(method) else { throw .unsupportedMethod(method) }
        throw .unknownMethod(method)
    }

    package func perform(_ calls: [ControlCall]) { batch { for call in calls { call.perform() } } }
}

private protocol Served: Sendable {
    func call(_ id: RequestID?, _ params: inout JSONReader, _ session: ControlSession) throws(ControlError)
        -> ControlCall
}

private struct ServedMethod<Params: MethodParams, Output: MethodResult>: Served {
    let method: RPCMethod<Params, Output>
    let body: MethodCall<Params, Output>.Body

    func call(_ id: RequestID?, _ params: inout JSONReader, _ session: ControlSession) throws(ControlError)
        -> ControlCall
    {
        var read = Params()
        do throws(JSONMismatch) {
            // Strict, so that a misspelled option fails.
            try params.strictRecord(&read) { _ in "`\(method.name)` has no such parameter" }
        } catch { throw .invalidParameter(error) }
        return MethodCall(method, id: id, session: session, params: read, body: body)
    }
}
