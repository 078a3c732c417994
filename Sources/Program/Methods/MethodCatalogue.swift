import Control
import Messaging

/// The methods of the control socket, by the names of the commands.
enum Methods {
    static let schema = RPCMethod<Nothing, JSONValue>("schema", "List methods, events and failures.")
    /// The methods that the node serves, topic by topic.
    private static let served: [any ServedMethod] =
        NodeMethods.all + ProtectionMethods.all + PeerMethods.all + ConversationMethods.all + InviteMethods.all
        + JoinMethods.all + MessageMethods.all + AttachmentMethods.all + OutboxMethods.all + LifetimeMethods.all
        + ExplodeMethods.all + InboxMethods.all + EventMethods.all
    static let all: [any ControlMethod] = [schema] + served

    static func method(named name: String) -> (any ControlMethod)? { all.first { $0.name == name } }

    /// The machine-readable list of methods, events and failures.
    static var description: JSONValue {
        [
            "methods": .array(all.map { describe($0) }),
            "events": .array(EventKind.allCases.map { .string($0.rawValue) }),
            "eventFields": .object(
                Dictionary(
                    uniqueKeysWithValues: EventKind.allCases.map { kind in
                        (kind.rawValue, .array((EventKind.commonFields + kind.fields).map { .string($0) }))
                    })),
            "failures": .array(
                FailureKind.allCases.map { kind in
                    [
                        "kind": .string(kind.rawValue), "exitCode": .integer(Int64(kind.exitCode)),
                        "code": .integer(kind.rpcCode),
                    ]
                }),
        ]
    }

    /// The router of a running node. A request without a wait is answered in the turn of the node's loop that received
    /// it.
    static func router(_ service: MethodService, _ stack: StackWiper) -> ControlRouter {
        var router = router { perform in
            stack.wipeSoon()
            perform()
        }
        for method in served { method.register(in: &router, service) }
        return router
    }

    /// A router that answers `schema`, and tells methods of this list apart from unknown ones.
    static func router(batch: @escaping @Sendable (_ perform: () -> Void) -> Void = { perform in perform() })
        -> ControlRouter
    {
        var router = ControlRouter(isDescribed: { method(named: $0) != nil }, batch: batch)
        router.on(schema) { call in call.succeed(description) }
        return router
    }

    private static func describe<Method: ControlMethod>(_ method: Method) -> JSONValue {
        [
            "name": .string(method.name), "summary": .string(method.summary),
            "params": .array(FieldSchema.fields(of: Method.Params.self).map(\.jsonValue)),
            "result": .array(FieldSchema.fields(of: Method.Result.self).map(\.jsonValue)),
        ]
    }
}

extension FieldSchema {
    var jsonValue: JSONValue {
        var value: [String: JSONValue] = ["name": .string(name), "type": .string(shape.type)]
        if isOptional { value["optional"] = true }
        if !shape.values.isEmpty { value["values"] = .array(shape.values.map(JSONValue.string)) }
        if !shape.fields.isEmpty { value["fields"] = .array(shape.fields.map(\.jsonValue)) }
        return .object(value)
    }
}
