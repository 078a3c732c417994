import Control
import Messaging
import NIOCore
import NodeRuntime

struct AttachmentHandlers: Sendable {
    let sends: PendingSends

    func add(to router: inout NodeRouter) {
        router.call(Methods.attachmentBegin) { node, call in
            let params = call.params
            let session = call.session
            if let byteCount = params.byteCount, byteCount < 0 {
                throw ControlError(
                    .usage, "`byteCount` is negative", hint: "give the file's size, or leave it out", field: "byteCount"
                )
            }
            let id = try node.beginUpload(
                params.conversation, name: params.name, byteCount: params.byteCount, text: params.text ?? "",
                replyTo: params.replyTo)
            // The node drops the upload when its client disconnects.
            let closeAction = session.onClose { [node] in node.assumeIsolated { $0.cancelUpload(id) } }
            node.whenUploadEnds(id) { session.removeOnClose(closeAction) }
            call.succeed(AttachmentBeginResult(upload: id.description))
        }
        router.later(Methods.attachmentAppend) { node, call in
            let upload = try Self.upload(call.params.upload)
            return try node.append(call.body ?? ByteBuffer(), to: upload).map { AttachmentAppendResult(byteCount: $0) }
        }
        router.call(Methods.attachmentCommit) { node, call in
            let params = call.params
            let upload = try Self.upload(params.upload)
            try sends.send(stage: params.wait, timeout: params.timeout, call.session, node) { whenDurable in
                [.success(try node.commitUpload(upload, whenDurable: whenDurable))]
            } answer: { outcomes in
                call.complete(outcomes.single)
            }
        }
        router.durably(Methods.attachmentCancel) { node, params in
            node.cancelUpload(try Self.upload(params.upload))
            return Acknowledged()
        }
        router.on(Methods.attachmentRead) { node, params in
            let file = try node.attachment(params.message, in: params.conversation)
            let first = params.from ?? 0
            let chunks = 0..<max(1, file.attachment.chunkCount)
            guard chunks.contains(first) else {
                throw ControlError(.usage, "`from` is not a piece of this file: 0 to \(chunks.upperBound - 1)")
            }
            let count = ControlLimits.bodyByteCount / Limits.chunkByteCount
            let bytes = try node.read(file, from: first, count: count)
            let next = first + count
            return AttachmentReadResult(
                message: file.message.description, name: file.attachment.safeName, mediaType: file.attachment.mediaType,
                byteCount: file.attachment.byteCount, data: Base64.encode(bytes),
                next: next < file.attachment.chunkCount ? next : nil)
        }
    }

    private static func upload(_ text: String) throws -> UploadID {
        guard let id = UploadID(hex: text) else { throw NodeError.unknownUpload(text) }
        return id
    }
}
