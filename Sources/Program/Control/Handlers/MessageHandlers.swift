import Control
import Messaging
import NIOCore
import NodeRuntime

struct MessageHandlers: Sendable {
    let sends: PendingSends

    func add(to router: inout NodeRouter) {
        router.call(Methods.send) { node, call in
            if let texts = call.params.texts { try send(texts, call, node) } else { try sendOne(call, node) }
        }
        router.call(Methods.react) { node, call in
            let params = call.params
            try sends.send(stage: params.wait, timeout: params.timeout, call.session, node) { whenDurable in
                let sent = try node.react(
                    params.conversation, to: params.message, emoji: params.reaction, isRemoved: params.remove ?? false,
                    whenDurable: whenDurable)
                return [.success(sent)]
            } answer: { outcomes in
                call.complete(outcomes.single)
            }
        }
        router.on(Methods.read) { node, params in
            if let last = params.last, last < 1 {
                throw ControlError(.usage, "`last` is \(last)", hint: "it is a number of messages, 1 or more")
            }
            let isUnread = params.unread ?? false
            guard !isUnread || params.last == nil && params.since == nil else {
                throw ControlError(.usage, "`unread` cannot be combined with `last` or `since`", field: "unread")
            }
            var page = AnswerPage()
            let (conversation, messages) = try node.read(
                params.conversation, last: params.last, after: params.since, isUnread: isUnread
            ) { page.take(byteCount: AnswerPage.largestByteCount(of: $0, $1)) }
            node.markRead(messages, client: conversation.client)
            return ReadResult(
                messages: messages.map { MessageView.message($0, conversation, node) }, more: page.isFull ? true : nil)
        }
        router.durably(Methods.conversationSet) { node, params in
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
            let isOn = try params.conversation.map { try node.sendsReadReceipts($0) } ?? node.sendsReadReceiptsByDefault
            return ConversationSetResult(
                conversation: try params.conversation.map { try node.conversation($0).conversation.description },
                key: params.key, value: isOn ? "on" : "off")
        }
    }

    private func send(_ texts: [String], _ call: MethodCall<SendParams, SendResult>, _ node: isolated Node) throws {
        let params = call.params
        guard params.text == nil, params.type == nil, params.replyTo == nil, params.payload == nil,
            params.fallback == nil
        else { throw ControlError(.usage, "`texts` cannot be combined with other content", field: "texts") }
        guard !texts.isEmpty else { throw ControlError(.usage, "there is nothing to send", field: "texts") }
        guard texts.count <= ControlLimits.textsInRequest else {
            throw ControlError(
                .usage,
                "\(texts.count) texts are too many for one request, the limit is \(ControlLimits.textsInRequest)",
                hint: "send them in several requests", field: "texts")
        }
        try sends.send(stage: params.wait, timeout: params.timeout, call.session, node) { whenDurable in
            try node.send(params.conversation, texts: texts, whenDurable: whenDurable)
        } answer: { outcomes in
            call.succeed(SendResult(results: outcomes.map(TextOutcome.init)))
        }
    }

    private func sendOne(_ call: MethodCall<SendParams, SendResult>, _ node: isolated Node) throws {
        let params = call.params
        try sends.send(stage: params.wait, timeout: params.timeout, call.session, node) { whenDurable in
            try Self.make(params, node, whenDurable)
        } answer: { outcomes in
            call.complete(outcomes.single.map { SendResult($0) })
        }
    }

    private static func make(_ params: SendParams, _ node: isolated Node, _ whenDurable: @escaping Node.WhenDurable)
        throws -> [Result<Node.Sent, NodeError>]
    {
        if let type = params.type {
            guard params.text == nil, params.replyTo == nil else {
                throw ControlError(.usage, "content of another type has a payload, and no text or reply")
            }
            guard let payload = Base64.decode(params.payload ?? "") else {
                throw ControlError(.usage, "`payload` is not Base64")
            }
            let sent = try node.send(
                params.conversation, type: ContentType(type), payload: payload, fallback: params.fallback ?? "",
                whenDurable: whenDurable)
            return [.success(sent)]
        }
        guard let text = params.text else {
            throw ControlError(.usage, "there is nothing to send", hint: "give a text, or a type with a payload")
        }
        if let replyTo = params.replyTo {
            let sent = try node.reply(params.conversation, text: text, to: replyTo, whenDurable: whenDurable)
            return [.success(sent)]
        }
        return try node.send(params.conversation, texts: [text], whenDurable: whenDurable)
    }
}

extension [PendingSend.Outcome] {
    var single: Result<SentMessage, any Error> {
        switch first {
        case .done(let sent)?: .success(sent)
        case .failed(let error, _)?: .failure(error)
        case .waiting?, nil: .failure(ControlError.internalFailure("a message has no outcome"))
        }
    }
}

extension TextOutcome {
    init(_ outcome: PendingSend.Outcome) {
        switch outcome {
        case .done(let sent): self.init(sent)
        case .failed(let error, let message): self.init(error, message: message.map { HexID($0) })
        case .waiting(let sent, _):
            self.init(.internalFailure("a message has no outcome"), message: HexID(sent.message))
        }
    }
}

enum OutboxHandlers {
    static func add(to router: inout NodeRouter) {
        router.on(Methods.outboxList) { node, params in
            let only = try params.conversation.map { try node.resolve($0) }
            let from = try params.from.map { text in
                guard let place = OutboxPlace(text) else {
                    throw ControlError(
                        .usage, "`from` is not a position in the outbox", hint: "give the `next` of an answer")
                }
                return place
            }
            var page = AnswerPage()
            var messages: [OutboxEntry] = []
            var last: OutboxPlace?
            try node.visitOutbox(of: only, after: from) { item, place in
                let entry = OutboxView.outbox(item, node)
                guard page.take(byteCount: AnswerPage.largestByteCount(of: entry)) else { return false }
                messages.append(entry)
                last = place
                return true
            }
            return OutboxListResult(messages: messages, next: page.isFull ? last?.description : nil)
        }
        router.durably(Methods.outboxCancel) { node, params in
            var entry = OutboxView.outbox(try node.cancelMessage(params.message), node)
            entry.state = "cancelled"
            return entry
        }
        router.on(Methods.outboxRetry) { node, params in OutboxView.outbox(try node.retryMessage(params.message), node)
        }
    }
}

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
