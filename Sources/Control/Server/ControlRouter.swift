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
///     router.on(SendMethod.self) { call in call.succeed(result) }
package struct ControlRouter: ControlService {
    private var methods: [String: any ServedMethod] = [:]
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
    package mutating func on<Method: ControlMethod>(_ method: Method.Type, _ body: @escaping MethodCall<Method>.Body) {
        methods[method.name] = MethodBody<Method>(body: body)
    }

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

private protocol ServedMethod: Sendable {
    func call(_ id: RequestID?, _ params: inout JSONReader, _ session: ControlSession) throws(ControlError)
        -> ControlCall
}

private struct MethodBody<Method: ControlMethod>: ServedMethod {
    let body: MethodCall<Method>.Body

    func call(_ id: RequestID?, _ params: inout JSONReader, _ session: ControlSession) throws(ControlError)
        -> ControlCall
    {
        var read = Method.Params()
        do throws(JSONMismatch) {
            // Strict, so that a misspelled option fails.
            try params.strictRecord(&read) { _ in "`\(Method.name)` has no such parameter" }
        } catch { throw ControlError.invalidParameter(error) }
        return MethodCall<Method>(id: id, session: session, params: read, body: body)
    }
}
