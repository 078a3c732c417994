/// One method of the control socket: its name, and the types of its parameters and result.
///
/// Names are those of the commands (`conversation.create`); field names are those of the command line's contract.
package protocol ControlMethod: SendableMetatype {
    associatedtype Params: JSONRecord & Hashable & Sendable
    associatedtype Result: JSONConvertible & Hashable & Sendable
    static var name: String { get }
    /// One sentence for `mayfly schema`.
    static var summary: String { get }
}

/// No parameters, or a result without fields.
package struct Nothing: JSONRecord, Hashable, Sendable {
    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {}
}

/// The result of a command that only does something.
package struct Acknowledged: JSONRecord, Hashable, Sendable {
    package var ok = true

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("ok", &ok)
    }
}

/// The parameters of a method that concerns one conversation.
package struct ConversationParams: JSONRecord, Hashable, Sendable {
    /// Id, alias, unambiguous prefix of an id, or unambiguous name.
    package var conversation = ""

    package init(conversation: String) { self.conversation = conversation }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("conversation", &conversation)
    }
}

/// The parameters of a method that concerns one named peer.
package struct PeerParams: JSONRecord, Hashable, Sendable {
    /// As in `peers.json`.
    package var name = ""

    package init(name: String) { self.name = name }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("name", &name)
    }
}

/// The parameters of a method that concerns one message.
package struct MessageParams: JSONRecord, Hashable, Sendable {
    /// Id, or its beginning.
    package var message = ""

    package init(message: String) { self.message = message }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("message", &message)
    }
}

/// The parameters of a method that concerns one join.
package struct JoinParams: JSONRecord, Hashable, Sendable {
    /// Id, or its beginning.
    package var join = ""

    package init(join: String) { self.join = join }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("join", &join)
    }
}

/// The parameters of a method that concerns one inbox.
package struct InboxParams: JSONRecord, Hashable, Sendable {
    /// Its client id, or its beginning.
    package var inbox = ""

    package init(inbox: String) { self.inbox = inbox }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("inbox", &inbox)
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
