import Control
import Messaging
import NIOCore
import NodeRuntime
import Primitives

/// Replies, reactions, files, settings.
extension ControlHandlers {
    /// Sends what `send` is asked for.
    static func send(_ params: SendMethod.Params, _ node: isolated Node) throws -> Node.Sent {
        if let type = params.type {
            guard params.text == nil, params.replyTo == nil else {
                throw ControlError(
                    .usage,
                    "a content of another type has a payload, not a text or a message it answers"
                )
            }
            guard let payload = Base64.decode(params.payload ?? "") else {
                throw ControlError(.usage, "`payload` is not Base64")
            }
            return try node.send(
                params.conversation,
                type: ContentType(type),
                payload: payload,
                fallback: params.fallback ?? ""
            )
        }
        guard let text = params.text else {
            throw ControlError(.usage, "there is nothing to send", hint: "give a text, or a type with a payload")
        }
        if let replyTo = params.replyTo { return try node.reply(params.conversation, text: text, to: replyTo) }
        return try node.send(params.conversation, text: text)
    }

    /// Answers when a message has come as far as asked.
    static func answer(
        _ sent: Node.Sent,
        wait: DeliveryStage?,
        timeout: Interval?,
        _ connection: ControlConnection,
        _ node: isolated Node
    ) -> EventLoopFuture<SendMethod.Result> {
        let client = sent.client
        return sent.1.flatMap { [node] id in
            node.assumeIsolated { node in
                Self.wait(
                    node,
                    for: connection,
                    message: id,
                    concerns: { kind in
                        switch kind {
                        // That it was sent is no news to who waits for its delivery.
                        case .messageState(_, .sent, _): wait != .delivered
                        case .attachmentProgress, .messageDelivery: false
                        default: true
                        }
                    },
                    timeout: timeout?.milliseconds ?? 60_000,
                    timedOut: { _ in
                        .failure(
                            NodeError.timedOut(
                                "message \(id) was not \(wait?.rawValue ?? "sent") in time; it stays in the outbox"
                            )
                        )
                    },
                    check: { node in NodeView.sentMessage(id, client, until: wait ?? .queued, node) }
                )
            }
        }
    }

    func addContents(_ router: inout ControlRouter) {
        later(&router, ReactMethod.self) { node, params, connection in
            let sent = try node.react(
                params.conversation,
                to: params.message,
                emoji: params.reaction,
                isRemoved: params.remove ?? false
            )
            return Self.answer(sent, wait: params.wait, timeout: params.timeout, connection, node)
        }
        durably(&router, ConversationSetMethod.self) { node, params in
            guard params.key == "read-receipts" else {
                throw ControlError(.usage, "`\(params.key)` cannot be set", hint: "keys: read-receipts")
            }
            if let value = params.value {
                guard value == "on" || value == "off" else {
                    throw ControlError(.usage, "read-receipts: `\(value)` is neither on nor off")
                }
                if let conversation = params.conversation {
                    try node.setReadReceipts(conversation, value == "on")
                } else {
                    try node.setDefaultReadReceipts(value == "on")
                }
            }
            let isOn =
                try params.conversation.map { try node.sendsReadReceipts($0) } ?? node.sendsReadReceiptsByDefault
            return ConversationSetMethod.Result(
                conversation: try params.conversation.map { try node.conversation($0).conversation.description },
                key: params.key,
                value: isOn ? "on" : "off"
            )
        }
        addAttachments(&router)
    }

    // MARK: Files

    private func addAttachments(_ router: inout ControlRouter) {
        later(&router, AttachmentBeginMethod.self) { node, params, connection in
            let id = try node.beginUpload(
                params.conversation,
                name: params.name,
                byteCount: params.byteCount,
                text: params.text ?? "",
                replyTo: params.replyTo
            )
            // Whoever hands it over has gone: nobody will finish it.
            let waiter = connection.onClose { [node] in node.assumeIsolated { $0.cancelUpload(id) } }
            node.whenUploadEnds(id) { connection.removeOnClose(waiter) }
            return node.loop.makeSucceededFuture(AttachmentBeginMethod.Result(upload: id.description))
        }
        later(&router, AttachmentAppendMethod.self) { node, params, _ in
            guard let bytes = Base64.decode(params.data) else { throw ControlError(.usage, "`data` is not Base64") }
            return try node.append(bytes, to: try Self.upload(params.upload))
                .map { AttachmentAppendMethod.Result(byteCount: $0) }
        }
        later(&router, AttachmentCommitMethod.self) { node, params, connection in
            let sent = try node.commitUpload(try Self.upload(params.upload))
            return Self.answer(sent, wait: params.wait, timeout: params.timeout, connection, node)
        }
        durably(&router, AttachmentCancelMethod.self) { node, params in
            node.cancelUpload(try Self.upload(params.upload))
            return Acknowledged()
        }
        on(&router, AttachmentReadMethod.self) { node, params in
            let file = try node.attachment(params.message, in: params.conversation)
            let first = params.from ?? 0
            let chunks = 0..<max(1, file.attachment.chunkCount)
            guard chunks.contains(first) else {
                throw ControlError(.usage, "`from` is not a piece of this file: 0 to \(chunks.upperBound - 1)")
            }
            let count = AttachmentMethods.pieceByteCount / Limits.chunkByteCount
            let bytes = try node.read(file, from: first, count: count)
            let next = first + count
            return AttachmentReadMethod.Result(
                message: file.message.description,
                name: file.attachment.safeName,
                mediaType: file.attachment.mediaType,
                byteCount: file.attachment.byteCount,
                data: Base64.encode(bytes),
                next: next < file.attachment.chunkCount ? next : nil
            )
        }
    }

    private static func upload(_ text: String) throws -> UploadID {
        guard let id = UploadID(hex: text) else { throw NodeError.unknownUpload(text) }
        return id
    }
}
