/// Files move in pieces, so memory use does not depend on their size.
package enum AttachmentMethods {
    package static let all: [any ControlMethod.Type] = [
        AttachmentBeginMethod.self, AttachmentAppendMethod.self, AttachmentCommitMethod.self,
        AttachmentCancelMethod.self, AttachmentReadMethod.self,
    ]
    package static let pieceByteCount = ControlLimits.bodyByteCount
}

/// The node drops the upload when the connection closes.
package enum AttachmentBeginMethod: ControlMethod {
    package static let name = "attachment.begin"
    package static let summary = "Begins to hand over a file."

    package static func waits(_ params: Params) -> Bool { true }

    package struct Params: JSONRecord, Hashable, Sendable {
        package var conversation = ""
        /// File name; the node removes a leading path.
        package var name = ""
        /// Absent when unknown.
        package var byteCount: Int64?
        /// Caption.
        package var text: String?
        /// Id of the message being answered.
        package var replyTo: String?

        package init(
            conversation: String, name: String, byteCount: Int64? = nil, text: String? = nil, replyTo: String? = nil
        ) {
            self.conversation = conversation
            self.name = name
            self.byteCount = byteCount
            self.text = text
            self.replyTo = replyTo
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("name", &name)
            try fields.field("byteCount", &byteCount)
            try fields.field("text", &text)
            try fields.field("replyTo", &replyTo)
        }
    }

    package struct Result: JSONRecord, Hashable, Sendable {
        /// Upload id, valid on this connection; also the id of the message.
        package var upload = ""

        package init(upload: String) { self.upload = upload }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("upload", &upload)
        }
    }
}

package enum AttachmentAppendMethod: ControlMethod {
    package static let name = "attachment.append"
    package static let summary = "Hands over the next bytes of a file: `body` of them follow the line as they are."
    package static let takesBody = true

    package struct Params: JSONRecord, Hashable, Sendable {
        package var upload = ""

        package init(upload: String) { self.upload = upload }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("upload", &upload)
        }
    }

    package struct Result: JSONRecord, Hashable, Sendable {
        /// Bytes received so far.
        package var byteCount: Int64 = 0

        package init(byteCount: Int64) { self.byteCount = byteCount }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("byteCount", &byteCount)
        }
    }
}

package enum AttachmentCommitMethod: ControlMethod {
    package static let name = "attachment.commit"
    package static let summary = "Sends a file that has been handed over."
    package typealias Result = SentMessage

    package static func waits(_ params: Params) -> Bool { params.wait != nil }

    package struct Params: JSONRecord, Hashable, Sendable {
        package var upload = ""
        /// Answer only after this delivery stage.
        package var wait: DeliveryStage?
        package var timeout: Interval?

        package init(upload: String, wait: DeliveryStage? = nil, timeout: Interval? = nil) {
            self.upload = upload
            self.wait = wait
            self.timeout = timeout
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("upload", &upload)
            try fields.field("wait", &wait)
            try fields.field("timeout", &timeout)
        }
    }
}

package enum AttachmentCancelMethod: ControlMethod {
    package static let name = "attachment.cancel"
    package static let summary = "Gives up handing over a file."
    package typealias Result = Acknowledged

    package struct Params: JSONRecord, Hashable, Sendable {
        package var upload = ""

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("upload", &upload)
        }
    }
}

package enum AttachmentReadMethod: ControlMethod {
    package static let name = "attachment.read"
    package static let summary = "Reads a piece of the file of a message."

    package struct Params: JSONRecord, Hashable, Sendable {
        package var conversation = ""
        package var message = ""
        /// Index of the first piece: 0, then `next` of the previous answer.
        package var from: Int?

        package init(conversation: String, message: String, from: Int? = nil) {
            self.conversation = conversation
            self.message = message
            self.from = from
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("message", &message)
            try fields.field("from", &from)
        }
    }

    package struct Result: JSONRecord, Hashable, Sendable {
        package var message = ""
        /// Sanitized for use as a local file name.
        package var name = ""
        package var mediaType = ""
        package var byteCount: Int64 = 0
        /// Base64.
        package var data = ""
        /// Index of the next piece; absent at the end.
        package var next: Int?

        package init(message: String, name: String, mediaType: String, byteCount: Int64, data: String, next: Int? = nil)
        {
            self.message = message
            self.name = name
            self.mediaType = mediaType
            self.byteCount = byteCount
            self.data = data
            self.next = next
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("message", &message)
            try fields.field("name", &name)
            try fields.field("mediaType", &mediaType)
            try fields.field("byteCount", &byteCount)
            try fields.field("data", &data)
            try fields.field("next", &next)
        }
    }
}

package enum ReactMethod: ControlMethod {
    package static let name = "react"
    package static let summary = "Puts a sign at a message, or takes it back."
    package typealias Result = SentMessage

    package static func waits(_ params: Params) -> Bool { params.wait != nil }

    package struct Params: JSONRecord, Hashable, Sendable {
        package var conversation = ""
        /// Id of the message, or a prefix of it.
        package var message = ""
        /// An emoji, or a short text.
        package var reaction = ""
        package var remove: Bool?
        /// Answer only after this delivery stage.
        package var wait: DeliveryStage?
        package var timeout: Interval?

        package init(
            conversation: String, message: String, reaction: String, remove: Bool? = nil, wait: DeliveryStage? = nil,
            timeout: Interval? = nil
        ) {
            self.conversation = conversation
            self.message = message
            self.reaction = reaction
            self.remove = remove
            self.wait = wait
            self.timeout = timeout
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("message", &message)
            try fields.field("reaction", &reaction)
            try fields.field("remove", &remove)
            try fields.field("wait", &wait)
            try fields.field("timeout", &timeout)
        }
    }
}

package enum ConversationSetMethod: ControlMethod {
    package static let name = "conversation.set"
    package static let summary = "Changes a setting of a conversation, or of those that have none of their own."

    package struct Params: JSONRecord, Hashable, Sendable {
        /// Absent for the default.
        package var conversation: String?
        /// `read-receipts`
        package var key = ""
        /// `on` or `off`. Absent reads the setting.
        package var value: String?

        package init(conversation: String? = nil, key: String, value: String? = nil) {
            self.conversation = conversation
            self.key = key
            self.value = value
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("key", &key)
            try fields.field("value", &value)
        }
    }

    /// The setting in force.
    package struct Result: JSONRecord, Hashable, Sendable {
        package var conversation: String?
        package var key = ""
        package var value = ""

        package init(conversation: String?, key: String, value: String) {
            self.conversation = conversation
            self.key = key
            self.value = value
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("key", &key)
            try fields.field("value", &value)
        }
    }
}
