/// One method of the control socket: its name, and the types of its parameters and result.
///
/// Names are those of the commands (`conversation.create`); field names are those of the command line's contract. A
/// parameter `conversation` takes an id, an alias, an unambiguous prefix of an id, or an unambiguous name. Results give
/// ids in hex.
package protocol ControlMethod: SendableMetatype {
    associatedtype Params: JSONRecord & Hashable & Sendable
    associatedtype Result: JSONConvertible & Hashable & Sendable
    static var name: String { get }
    /// One sentence for `mayfly schema`.
    static var summary: String { get }
    /// Whether body bytes follow the request line. `body` in the request is their count.
    static var takesBody: Bool { get }
    /// Whether a call with these parameters blocks or occupies its connection. ``ControlLimits/waitingConnections``
    /// limits the number of such connections.
    static func waits(_ params: Params) -> Bool
}

extension ControlMethod {
    package static var takesBody: Bool { false }
    package static func waits(_ params: Params) -> Bool { false }
}

package struct Nothing: JSONRecord, Hashable, Sendable {
    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {}
}

package struct Acknowledged: JSONRecord, Hashable, Sendable {
    package var ok = true

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("ok", &ok)
    }
}

package struct ConversationParams: JSONRecord, Hashable, Sendable {
    package var conversation = ""

    package init(conversation: String) { self.conversation = conversation }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("conversation", &conversation)
    }
}

package struct PeerParams: JSONRecord, Hashable, Sendable {
    /// As in `peers.json`.
    package var name = ""

    package init(name: String) { self.name = name }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("name", &name)
    }
}

package struct MessageParams: JSONRecord, Hashable, Sendable {
    /// Id, or a prefix of it.
    package var message = ""

    package init(message: String) { self.message = message }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("message", &message)
    }
}

package struct JoinParams: JSONRecord, Hashable, Sendable {
    /// Id, or a prefix of it.
    package var join = ""

    package init(join: String) { self.join = join }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("join", &join)
    }
}

package struct InboxParams: JSONRecord, Hashable, Sendable {
    /// Client id, or a prefix of it.
    package var inbox = ""

    package init(inbox: String) { self.inbox = inbox }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("inbox", &inbox)
    }
}
