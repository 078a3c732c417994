import NIOCore

/// The node's table of methods: typed bodies in, one ``ControlHandler`` out.
///
///     var router = ControlRouter()
///     router.on(StatusMethod.self) { _, connection in connection.eventLoop.makeSucceededFuture(status) }
///     ControlServer.start(home: home, on: loop, handler: router.handler)
package struct ControlRouter: Sendable {
    private var bodies: [String: ControlHandler] = [:]

    package init() {
        on(SchemaMethod.self) { _, connection in
            connection.eventLoop.makeSucceededFuture(MethodCatalogue.schema)
        }
    }

    /// Answers `method` with `body`, which is called on the server's event loop with parameters already checked.
    package mutating func on<Method: ControlMethod>(
        _ method: Method.Type,
        _ body:
            @escaping @Sendable (Method.Params, ControlConnection) throws -> EventLoopFuture<
                Method.Result
            >
    ) {
        bodies[method.name] = { request, connection in
            let params = try request.decodeParams(Method.Params.self)
            return try body(params, connection).flatMapThrowing { try JSONValue(encoding: $0) }
        }
    }

    /// Methods of the catalogue without a body are answered "not supported by this version", all others "unknown".
    package var handler: ControlHandler {
        { [bodies] request, connection in
            if let body = bodies[request.method] { return try body(request, connection) }
            guard MethodCatalogue.method(named: request.method) == nil else {
                throw ControlError.unsupportedMethod(request.method)
            }
            throw ControlError.unknownMethod(request.method)
        }
    }
}
