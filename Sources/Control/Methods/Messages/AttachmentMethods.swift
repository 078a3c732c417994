/// Files in and out, piece by piece: a file of any size takes little memory on either side.
package enum AttachmentMethods {
    package static let all: [any ControlMethod.Type] = [
        AttachmentBeginMethod.self, AttachmentAppendMethod.self, AttachmentCommitMethod.self,
        AttachmentCancelMethod.self, AttachmentReadMethod.self,
    ]
    /// Bytes of a piece.
    package static let pieceByteCount = ControlLimits.bodyByteCount
}

/// `attachment.begin`: begins to hand over a file. It is given up when the connection closes.
package enum AttachmentBeginMethod: ControlMethod {
    package static let name = "attachment.begin"
    package static let summary = "Begins to hand over a file."

    package static func waits(_ params: Params) -> Bool { true }

    /// What `attachment.begin` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
        package var conversation = ""
        /// The file's name; a path in front of it is left out.
        package var name = ""
        /// As far as it is known.
        package var byteCount: Int64?
        /// What to say to it.
        package var text: String?
        /// The message it answers.
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

    /// What `attachment.begin` answers.
    package struct Result: JSONRecord, Hashable, Sendable {
        /// Names the upload on this connection; the message has the same id.
        package var upload = ""

        package init(upload: String) { self.upload = upload }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("upload", &upload)
        }
    }
}

/// `attachment.append`: the next bytes of a file, which are the body of the request.
package enum AttachmentAppendMethod: ControlMethod {
    package static let name = "attachment.append"
    package static let summary = "Hands over the next bytes of a file: `body` of them follow the line as they are."
    package static let takesBody = true

    /// What `attachment.append` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        package var upload = ""

        package init(upload: String) { self.upload = upload }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("upload", &upload)
        }
    }

    /// What `attachment.append` answers, when more may come.
    package struct Result: JSONRecord, Hashable, Sendable {
        /// Bytes so far.
        package var byteCount: Int64 = 0

        package init(byteCount: Int64) { self.byteCount = byteCount }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("byteCount", &byteCount)
        }
    }
}

/// `attachment.commit`: sends a file that has been handed over.
package enum AttachmentCommitMethod: ControlMethod {
    package static let name = "attachment.commit"
    package static let summary = "Sends a file that has been handed over."
    package typealias Result = SentMessage

    package static func waits(_ params: Params) -> Bool { params.wait != nil }

    /// What `attachment.commit` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        package var upload = ""
        /// Answer only when it has come this far.
        package var wait: DeliveryStage?
        /// How long to wait.
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

/// `attachment.cancel`: gives up handing over a file.
package enum AttachmentCancelMethod: ControlMethod {
    package static let name = "attachment.cancel"
    package static let summary = "Gives up handing over a file."
    package typealias Result = Acknowledged

    /// What `attachment.cancel` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        package var upload = ""

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("upload", &upload)
        }
    }
}

/// `attachment.read`: reads a file of a message, piece by piece.
package enum AttachmentReadMethod: ControlMethod {
    package static let name = "attachment.read"
    package static let summary = "Reads a piece of the file of a message."

    /// What `attachment.read` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
        package var conversation = ""
        package var message = ""
        /// From which piece on; 0 at first, then `next` of the answer before.
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

    /// What `attachment.read` answers.
    package struct Result: JSONRecord, Hashable, Sendable {
        package var message = ""
        /// As a file may be named here.
        package var name = ""
        package var mediaType = ""
        package var byteCount: Int64 = 0
        /// Base64.
        package var data = ""
        /// Where the next piece begins; absent at the end.
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

/// `react`: puts a sign at a message, or takes it back.
package enum ReactMethod: ControlMethod {
    package static let name = "react"
    package static let summary = "Puts a sign at a message, or takes it back."
    package typealias Result = SentMessage

    package static func waits(_ params: Params) -> Bool { params.wait != nil }

    /// What `react` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
        package var conversation = ""
        /// The message, or the beginning of its id.
        package var message = ""
        /// An emoji, or a short text.
        package var reaction = ""
        package var remove: Bool?
        /// Answer only when it has come this far.
        package var wait: DeliveryStage?
        /// How long to wait.
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

/// `conversation.set`: changes a setting of one conversation, or the default of all.
package enum ConversationSetMethod: ControlMethod {
    package static let name = "conversation.set"
    package static let summary = "Changes a setting of a conversation, or of those that have none of their own."

    /// What `conversation.set` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// Absent for the default.
        package var conversation: String?
        /// `read-receipts`
        package var key = ""
        /// `on` or `off`; absent to ask.
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

    /// What `conversation.set` answers: the setting in force.
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
