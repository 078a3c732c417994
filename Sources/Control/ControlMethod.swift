/// One method of the control socket: its name, and the types of its parameters and result.
///
/// Names are those of the commands (`conversation.create`); field names are those of the command line's contract.
package protocol ControlMethod: SendableMetatype {
    associatedtype Params: Codable & Hashable & Sendable
    associatedtype Result: Codable & Hashable & Sendable
    static var name: String { get }
    /// One sentence for `mayfly schema`.
    static var summary: String { get }
}

/// No parameters, or a result without fields.
package struct Nothing: Codable, Hashable, Sendable {
    package init() {}
}

/// The result of a command that only does something.
package struct Acknowledged: Codable, Hashable, Sendable {
    package let ok: Bool

    package init() {
        self.ok = true
    }
}

/// All methods, in the order in which `mayfly schema` lists them.
package enum MethodCatalogue {
    package static let methods: [any ControlMethod.Type] =
        NodeMethods.all + PeerMethods.all + ConversationMethods.all + InviteMethods.all + JoinMethods.all
        + MessageMethods.all + LifetimeMethods.all + ExplodeMethods.all + OutboxMethods.all + InboxMethods.all
        + EventMethods.all + AttachmentMethods.all

    /// The method of that name.
    package static func method(named name: String) -> (any ControlMethod.Type)? {
        methods.first { $0.name == name }
    }

    /// The machine-readable list of methods, events and failures.
    package static var schema: JSONValue {
        [
            "methods": .array(methods.map { describe($0) }),
            "events": .array(EventKind.allCases.map { .string($0.rawValue) }),
            "eventFields": .object(
                Dictionary(
                    uniqueKeysWithValues: EventKind.allCases.map { kind in
                        (kind.rawValue, .array((EventKind.commonFields + kind.fields).map { .string($0) }))
                    }
                )
            ),
            "failures": .array(
                FailureKind.allCases.map { kind in
                    [
                        "kind": .string(kind.rawValue), "exitCode": .integer(Int64(kind.exitCode)),
                        "code": .integer(kind.rpcCode),
                    ]
                }
            ),
        ]
    }

    private static func describe<Method: ControlMethod>(_ method: Method.Type) -> JSONValue {
        [
            "name": .string(method.name),
            "summary": .string(method.summary),
            "params": .array(FieldSchema.fields(of: Method.Params.self).map(\.jsonValue)),
            "result": .array(FieldSchema.fields(of: Method.Result.self).map(\.jsonValue)),
        ]
    }
}
