import Control

struct AttachmentBeginParams: CodableRecord {
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

struct AttachmentBeginResult: CodableRecord {
    /// Upload id, valid on this connection; also the id of the message.
    var upload = ""
}

struct AttachmentAppendParams: CodableRecord { var upload = "" }

struct AttachmentAppendResult: CodableRecord {
    /// Bytes received so far.
    var byteCount: Int64 = 0
}

struct AttachmentCommitParams: CodableRecord {
    var upload = ""
    /// Answer only after this delivery stage.
    var wait: DeliveryStage?
    var timeout: Interval?
}

struct AttachmentCancelParams: CodableRecord { var upload = "" }

struct AttachmentReadParams: CodableRecord {
    var conversation = ""
    var message = ""
    /// Index of the first piece: 0, then `next` of the previous answer.
    var from: Int?
}

struct AttachmentReadResult: CodableRecord {
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
