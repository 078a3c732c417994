import Control

/// Files move in pieces, so memory use does not depend on their size.
enum AttachmentMethods {
    static let all: [any ControlMethod.Type] = [
        AttachmentBeginMethod.self, AttachmentAppendMethod.self, AttachmentCommitMethod.self,
        AttachmentCancelMethod.self, AttachmentReadMethod.self,
    ]
    static let pieceByteCount = ControlLimits.bodyByteCount
}

/// The node drops the upload when the connection closes.
enum AttachmentBeginMethod: ControlMethod {
    static let name = "attachment.begin"
    static let summary = "Begins the upload of a file."

    static func waits(_ params: Params) -> Bool { true }

    struct Params: CodableRecord {
        var conversation = ""
        /// File name; the node removes a leading path.
        var name = ""
        /// Absent when unknown.
        var byteCount: Int64?
        /// Caption.
        var text: String?
        /// Id of the message being answered.
        var replyTo: String?
    }

    struct Result: CodableRecord {
        /// Upload id, valid on this connection; also the id of the message.
        var upload = ""
    }
}

enum AttachmentAppendMethod: ControlMethod {
    static let name = "attachment.append"
    static let summary = "Uploads the next bytes of a file: `body` raw bytes follow the line."
    static let takesBody = true

    struct Params: CodableRecord { var upload = "" }

    struct Result: CodableRecord {
        /// Bytes received so far.
        var byteCount: Int64 = 0
    }
}

enum AttachmentCommitMethod: ControlMethod {
    static let name = "attachment.commit"
    static let summary = "Sends an uploaded file."
    typealias Result = SentMessage

    static func waits(_ params: Params) -> Bool { params.wait != nil }

    struct Params: CodableRecord {
        var upload = ""
        /// Answer only after this delivery stage.
        var wait: DeliveryStage?
        var timeout: Interval?
    }
}

enum AttachmentCancelMethod: ControlMethod {
    static let name = "attachment.cancel"
    static let summary = "Cancels the upload of a file."
    typealias Result = Acknowledged

    struct Params: CodableRecord { var upload = "" }
}

enum AttachmentReadMethod: ControlMethod {
    static let name = "attachment.read"
    static let summary = "Reads a chunk of the file of a message."

    struct Params: CodableRecord {
        var conversation = ""
        var message = ""
        /// Index of the first piece: 0, then `next` of the previous answer.
        var from: Int?
    }

    struct Result: CodableRecord {
        var message = ""
        /// Sanitized for use as a local file name.
        var name = ""
        var mediaType = ""
        var byteCount: Int64 = 0
        /// Base64.
        var data = ""
        /// Index of the next piece; absent at the end.
        var next: Int?
    }
}
