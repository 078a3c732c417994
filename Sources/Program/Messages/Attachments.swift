import Control
import Messaging
import NIOCore
import NodeRuntime

struct AttachmentBeginParams: CodableRecord {
    var conversation = ""
    /// File name; the node removes a leading path.
    var name = ""
    /// Absent when unknown.
    var byteCount: Int64?
    /// Caption.
    var text: String?
    var replyTo: String?
}

struct AttachmentBeginResult: CodableRecord {
    /// Upload id, valid on this connection; also the id of the message.
    var upload = ""
}

struct UploadParams: CodableRecord { var upload = "" }

struct AttachmentAppendResult: CodableRecord { var byteCount: Int64 = 0 }

struct AttachmentCommitParams: CodableRecord, WaitingParams {
    var upload = ""
    /// Answer only after this delivery stage.
    var wait: DeliveryStage?
    var timeout: Interval?
}

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

enum AttachmentMethods {
    static let all: [any ServedMethod] = [begin, append, commit, cancel, read]

    /// The node drops the upload when the connection closes.
    static let begin = NodeMethod<AttachmentBeginParams, AttachmentBeginResult>(
        "attachment.begin", "Begin the upload of a file.", waits: .always
    ) { call, node, _ in
        let params = call.params
        let session = call.session
        if let byteCount = params.byteCount, byteCount < 0 {
            throw ControlError(
                .usage, "`byteCount` is negative", hint: "give the file's size, or leave it out", field: "byteCount")
        }
        let id = try node.beginUpload(
            params.conversation, name: params.name, byteCount: params.byteCount, text: params.text ?? "",
            replyTo: params.replyTo)
        let closeAction = session.onClose { [node] in node.assumeIsolated { $0.cancelUpload(id) } }
        node.whenUploadEnds(id) { session.removeOnClose(closeAction) }
        call.succeed(AttachmentBeginResult(upload: id.description))
    }

    static let append = NodeMethod<UploadParams, AttachmentAppendResult>(
        "attachment.append", "Upload the next bytes of a file: `body` raw bytes follow the line.", takesBody: true
    ) { call, node, service in
        let bytes = call.body ?? ByteBuffer()
        let count = try node.append(bytes, to: try call.params.id)
        service.complete(call, count.map { AttachmentAppendResult(byteCount: $0) }, node)
    }

    static let commit = NodeMethod<AttachmentCommitParams, SentMessage>(
        "attachment.commit", "Send an uploaded file.", waits: .when { $0.wait != nil }
    ) { call, node, service in
        let upload = try UploadParams(upload: call.params.upload).id
        let answer = PendingSend.Answer.each { call.complete($1.result) }
        let conversation = node.client(of: upload)?.description ?? ""
        try service.sends.send(to: conversation, call.params, call.session, node, answer) { whenDurable in
            [.success(try node.commitUpload(upload, whenDurable: whenDurable))]
        }
    }

    static let cancel = NodeMethod<UploadParams, Acknowledged>("attachment.cancel", "Cancel the upload of a file.") {
        params, node in
        node.cancelUpload(try params.id)
        return .durable(Acknowledged(), node)
    }

    static let read = NodeMethod<AttachmentReadParams, AttachmentReadResult>(
        "attachment.read", "Read a chunk of the file of a message."
    ) { params, node in
        let file = try node.attachment(params.message, in: params.conversation)
        let first = params.from ?? 0
        let chunks = 0..<max(1, file.attachment.chunkCount)
        guard chunks.contains(first) else {
            throw ControlError(.usage, "`from` is not a piece of this file: 0 to \(chunks.upperBound - 1)")
        }
        let count = ControlLimits.bodyByteCount / Limits.chunkByteCount
        let next = first + count
        return .now(
            AttachmentReadResult(
                message: file.message.description, name: file.attachment.safeName, mediaType: file.attachment.mediaType,
                byteCount: file.attachment.byteCount,
                data: Base64.encode(try node.read(file, from: first, count: count)),
                next: next < file.attachment.chunkCount ? next : nil))
    }
}

extension UploadParams {
    fileprivate var id: UploadID {
        get throws {
            guard let id = UploadID(hex: upload) else { throw NodeError.unknownUpload(upload) }
            return id
        }
    }
}
