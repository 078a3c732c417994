import Control

/// All methods, in the order in which `mayfly schema` lists them.
enum MethodCatalogue {
    static let methods: [any ControlMethod.Type] =
        NodeMethods.all + PassphraseMethods.all + PeerMethods.all + ConversationMethods.all + InviteMethods.all
        + JoinMethods.all + MessageMethods.all + LifetimeMethods.all + ExplodeMethods.all + OutboxMethods.all
        + InboxMethods.all + MailboxMethods.all + EventMethods.all + AttachmentMethods.all

    static func method(named name: String) -> (any ControlMethod.Type)? { methods.first { $0.name == name } }

    /// The machine-readable list of methods, events and failures.
    static var schema: JSONValue {
        [
            "methods": .array(methods.map { describe($0) }),
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

    /// A router that answers `schema`, and tells methods of this list apart from unknown ones.
    static func router(batch: @escaping @Sendable (_ perform: () -> Void) -> Void = { perform in perform() })
        -> ControlRouter
    {
        var router = ControlRouter(isDescribed: { method(named: $0) != nil }, batch: batch)
        router.on(SchemaMethod.self) { call in call.succeed(schema) }
        return router
    }

    private static func describe<Method: ControlMethod>(_ method: Method.Type) -> JSONValue {
        [
            "name": .string(method.name), "summary": .string(method.summary),
            "params": .array(FieldSchema.fields(of: Method.Params.self).map(\.jsonValue)),
            "result": .array(FieldSchema.fields(of: Method.Result.self).map(\.jsonValue)),
        ]
    }
}

extension FieldSchema {
    var jsonValue: JSONValue {
        var value: [String: JSONValue] = ["name": .string(name), "type": .string(type)]
        if isOptional { value["optional"] = true }
        if !values.isEmpty { value["values"] = .array(values.map(JSONValue.string)) }
        if !fields.isEmpty { value["fields"] = .array(fields.map(\.jsonValue)) }
        return .object(value)
    }
}
