/// One method of the control socket: its name, and the types of its parameters and result.
///
/// Names are those of the commands (`conversation.create`); field names are those of the command line's contract.
package protocol ControlMethod: SendableMetatype {
    associatedtype Params: JSONRecord & Hashable & Sendable
    associatedtype Result: JSONConvertible & Hashable & Sendable
    static var name: String { get }
    /// One sentence for `mayfly schema`.
    static var summary: String { get }
    /// Whether bytes may follow the request: `body` of the request says how many.
    static var takesBody: Bool { get }
    /// Whether a call with these parameters waits for others, or its connection is used for longer: there is a limit of
    /// such connections, ``ControlLimits/waitingConnections``.
    static func waits(_ params: Params) -> Bool
}

extension ControlMethod {
    package static var takesBody: Bool { false }
    package static func waits(_ params: Params) -> Bool { false }
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
