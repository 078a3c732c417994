import Control
import Cryptography
import Messaging
import NIOCore
import NodeRuntime

struct MessageHandlers: Sendable {
    private typealias SendCall = MethodCall<SendParams, SendResult>

    let sends: PendingSends

    func add(to router: inout NodeRouter) {
        router.call(Methods.send, joins: SendParams.goTogether) { [fail = router.fail] node, call in
            if let texts = call.params.texts { return try send(texts, call, node) }
            for calls in Self.byConversation([call] + call.followers, node) {
                do { try send(calls, node) } catch { for one in calls { fail(one, error) } }
            }
        }
        router.call(Methods.react) { node, call in
            let params = call.params
            let answer = PendingSend.Answer.each { call.complete($1.result) }
            try sends.send(to: params.conversation, params, call.session, node, answer) { whenDurable in
                let sent = try node.react(
                    params.conversation, to: params.message, emoji: params.reaction, isRemoved: params.remove ?? false,
                    whenDurable: whenDurable)
                return [.success(sent)]
            }
        }
        router.on(Methods.read) { node, params in
            for (name, count) in [("last", params.last), ("first", params.first)] {
                if let count, count < 1 {
                    throw ControlError(.usage, "`\(name)` is \(count)", hint: "it is a number of messages, 1 or more")
                }
            }
            let isUnread = params.unread ?? false
            let goesBack = params.last != nil || params.before != nil || params.containing != nil
            guard !isUnread || !goesBack && params.since == nil, !goesBack || params.first == nil else {
                throw ControlError(
                    .usage,
                    "`last`, `before` and `containing` cannot be combined with `first`, nor `unread` with any but it",
                    field: isUnread ? "unread" : "first")
            }
            if let words = params.containing { return try search(words.lowercased(), params, node) }
            var page = AnswerPage()
            var left = params.first ?? .max
            let (conversation, messages) = try node.read(
                params.conversation, last: params.last, after: params.since, before: params.before, isUnread: isUnread,
                marks: params.marksRead ?? true
            ) {
                left -= 1
                return left >= 0 && page.take(byteCount: AnswerPage.largestByteCount(of: $0, $1))
            }
            if params.marksRead ?? true { node.markRead(messages, client: conversation.client) }
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

    /// Searches as many messages as fit on a page.
    private func search(_ words: String, _ params: ReadParams, _ node: isolated Node) throws -> ReadResult {
        var (searched, page) = (AnswerPage(), AnswerPage())
        let (conversation, messages) = try node.read(
            params.conversation, last: .max, after: params.since, before: params.before, marks: false
        ) { read, _ in searched.take(byteCount: read.message.byteCount) }
        let found = messages.filter { $0.message.content.contains(words) }
        let shown = found.reversed().prefix(params.last ?? .max).prefix {
            page.take(byteCount: AnswerPage.largestByteCount(of: $0, conversation))
        }
        let next = shown.count < found.count ? shown.last : searched.isFull ? messages.first : nil
        return ReadResult(
            messages: shown.reversed().map { MessageView.message($0, conversation, node) },
            next: next?.message.content.id.description, more: next == nil ? nil : true)
    }

    private func send(_ texts: [String], _ call: SendCall, _ node: isolated Node) throws {
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
        let answer = PendingSend.Answer.all { call.succeed(SendResult(results: $0.map(TextOutcome.init))) }
        try sends.send(to: params.conversation, params, call.session, node, answer) { whenDurable in
            try node.send(params.conversation, texts: texts, whenDurable: whenDurable)
        }
    }

    /// Calls of each conversation, in order. An alias and an id may name the same one.
    private static func byConversation(_ calls: [SendCall], _ node: isolated Node) -> [[SendCall]] {
        var groups: [[SendCall]] = []
        var named: [String: Int] = [:]
        var places: [ClientID: Int] = [:]
        for call in calls {
            let name = call.params.conversation
            if named[name] == nil, calls.count > 1 {
                // A name is looked for once, because the search for an unknown one is long.
                let client = try? node.resolve(name)
                named[name] = client.flatMap { places[$0] }
                if let client { places[client] = named[name] ?? groups.count }
            }
            let place = named[name] ?? groups.count
            named[name] = place
            if place == groups.count { groups.append([]) }
            groups[place].append(call)
        }
        return groups
    }

    /// The texts of several calls for one conversation are sent in one turn.
    private func send(_ calls: [SendCall], _ node: isolated Node) throws {
        let params = calls[0].params
        let answer = PendingSend.Answer.each { calls[$0].complete($1.result.map { SendResult($0) }) }
        try sends.send(to: params.conversation, params, calls[0].session, node, answer) { whenDurable in
            guard calls.count > 1 else { return try Self.make(params, node, whenDurable) }
            return try node.send(params.conversation, texts: calls.compactMap(\.params.text), whenDurable: whenDurable)
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

extension SendParams {
    /// One text, and nothing besides.
    fileprivate var isText: Bool {
        text != nil && texts == nil && replyTo == nil && type == nil && payload == nil && fallback == nil
    }

    @Sendable fileprivate static func goTogether(_ first: SendParams, _ next: SendParams) -> Bool {
        first.isText && next.isText && first.wait == next.wait && first.timeout == next.timeout
    }
}

extension PendingSend.Outcome {
    var result: Result<SentMessage, any Error> {
        switch self {
        case .done(let sent): .success(sent)
        case .failed(let error, _): .failure(error)
        case .waiting: .failure(ControlError.internalFailure("a message has no outcome"))
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
            let answer = PendingSend.Answer.each { call.complete($1.result) }
            let conversation = node.client(of: upload)?.description ?? ""
            try sends.send(to: conversation, params, call.session, node, answer) { whenDurable in
                [.success(try node.commitUpload(upload, whenDurable: whenDurable))]
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

extension Content {
    /// - Parameter words: in lower case.
    fileprivate func contains(_ words: String) -> Bool {
        type != .systemMessage && [displayText, attachment?.name ?? ""].contains { $0.lowercased().contains(words) }
    }
}

enum MessageView {
    static func message(_ read: Node.ReadMessage, _ conversation: Messaging.Conversation, _ node: isolated Node)
        -> Message
    {
        let message = read.message
        let content = message.content
        let text = content.displayText
        let reactions = node.reactions(to: content.id, client: conversation.client).map { one in
            MessageReaction(
                from: one.sender.map { MemberName.shown($0, conversation, node) } ?? MemberName.own,
                member: one.sender.map { MemberName.id($0) }, reaction: one.emoji)
        }
        var reaction: Reaction?
        if case .reaction(let one) = content.body { reaction = one }
        return Message(
            message: HexID(content.id), conversation: HexID(conversation.conversation),
            from: MemberName.sender(of: message, conversation, node), member: message.sender.map { MemberName.id($0) },
            type: content.type.description, text: text.isEmpty ? nil : text, sentAt: content.sentAt,
            expiresAt: end(of: message, conversation), stored: read.isStored, state: message.state.rawValue,
            replyTo: content.replyTo?.description, agreement: content.agreement?.description,
            file: content.attachment.map { file($0, message, conversation.client, node) },
            reactions: reactions.isEmpty ? nil : reactions, deliveries: deliveries(message, conversation, node),
            payload: content.isUnknown ? Base64.encode(content.payload) : nil, reactsTo: reaction?.message.description,
            removed: reaction?.isRemoved == true ? true : nil)
    }

    private static func file(
        _ attachment: Attachment, _ message: Messaging.Message, _ client: ClientID, _ node: isolated Node
    ) -> MessageFile {
        let state =
            switch message.state {
            case .receiving: "receiving"
            case .failed: message.sender == nil ? "complete" : "failed"
            case .queued, .sent, .mailed, .delivered, .expiredUndelivered, .cancelled, .received, .read: "complete"
            }
        let progress = node.progress(of: message, client: client) ?? (0, 0)
        return MessageFile(
            name: attachment.safeName, mediaType: attachment.mediaType, byteCount: attachment.byteCount, state: state,
            percent: state == "complete" ? 100 : progress.of == 0 ? 0 : progress.count * 100 / progress.of)
    }

    private static func deliveries(
        _ message: Messaging.Message, _ conversation: Messaging.Conversation, _ node: isolated Node
    ) -> [MessageDelivery]? {
        guard message.sender == nil, message.content.type != .systemMessage else { return nil }
        let said = message.deliveries.filter { $0.state != .queued }
        var result: [MessageDelivery] = said.map { one in
            MessageDelivery(
                member: MemberName.id(one.member), name: MemberName.shown(one.member, conversation, node),
                state: one.state.rawValue, at: one.at)
        }
        for member in conversation.currentMembers {
            guard !said.contains(where: { $0.member == member.key }),
                let entry = conversation.outboxEntry(message.content.id, to: member.key)
            else { continue }
            result.append(
                MessageDelivery(
                    member: MemberName.id(member.key), name: MemberName.shown(member.key, conversation, node),
                    state: entry.state.rawValue))
        }
        return result
    }

    /// Expiry of a message, at the latest with its conversation.
    static func end(of message: Messaging.Message, _ conversation: Messaging.Conversation?) -> Timestamp? {
        [message.expiresAt, conversation?.record.schedule?.expiresAt].compactMap { $0 }.min()
    }
}

enum OutboxView {
    static func outbox(_ item: OutboxItem, _ node: isolated Node) -> OutboxEntry {
        OutboxEntry(
            message: item.entry.message.description, conversation: item.conversation.conversation.description,
            to: MemberName.shown(item.member, item.conversation, node), member: MemberName.id(item.member),
            attempts: item.entry.attempts, nextAttempt: item.entry.nextAttempt,
            expiresAt: min(item.entry.deadline, item.conversation.record.schedule?.expiresAt ?? .latest),
            state: item.entry.state.rawValue)
    }
}

/// Display names of members. Members choose their own names, so a name proves no identity.
enum MemberName {
    static let own = "me"
    static let system = "system"

    /// - Parameter others: the other names in the conversation, our own included.
    static func isClear(_ name: String, among others: [String]) -> Bool {
        let folded = ShownName.folded(name)
        // Wide gaps would look like the end of the name before a text.
        return ShownName.isOrdinary(name) && folded != own && folded != system && !looksLikeID(folded)
            && !others.contains { ShownName.folded($0) == folded }
    }

    /// Rejects a run of at least 8 hexadecimal digits, because displayed ids have 12. Brackets do not interrupt the
    /// check.
    private static func looksLikeID(_ folded: String) -> Bool {
        var count = 0
        for byte in folded.utf8 {
            let isDigit = (0x30...0x39).contains(byte) || (0x61...0x66).contains(byte)
            count = isDigit ? count + 1 : 0
            if count >= 8 { return true }
        }
        return false
    }

    static func id(_ key: PublicKey) -> String { String(InboxID(key).description.prefix(12)) }

    static func sender(of message: Messaging.Message, _ conversation: Messaging.Conversation, _ node: isolated Node)
        -> String
    {
        if message.content.type == .systemMessage { return system }
        return message.sender.map { shown($0, conversation, node) } ?? own
    }

    static func named(_ key: PublicKey, _ conversation: Messaging.Conversation, _ node: isolated Node) -> NamedMember {
        let isOwn = key == conversation.key.publicKey
        return NamedMember(member: isOwn ? nil : id(key), name: shown(key, conversation, node))
    }

    /// Name of a member: its profile, else the name of the peer that got the invite, else its id. An ambiguous name
    /// gets the id appended.
    static func shown(_ key: PublicKey, _ conversation: Messaging.Conversation, _ node: isolated Node) -> String {
        let record = conversation.record
        if key == conversation.key.publicKey { return own }
        func called(_ one: Messaging.Member) -> String? {
            one.profile ?? node.peerName(of: one.key, in: conversation.client)
        }
        guard let chosen = record.members.first(where: { $0.key == key }).flatMap(called) else { return id(key) }
        // Former members count too, because their messages are still shown.
        let others = record.members.filter { $0.key != key }.map(called) + [record.own.profile]
        return isClear(chosen, among: others.compactMap(\.self))
            ? chosen : "\(ShownName.onOneBlank(chosen)) (\(id(key)))"
    }
}

extension HexID {
    init(_ message: Messaging.MessageID) { self.init(message.value.first, message.value.second) }

    init(_ conversation: ConversationID) {
        let (left, right) = (conversation.value.left, conversation.value.right)
        self.init(left.first, left.second, right.first, right.second)
    }
}

/// A page of a list result. It bounds memory on both sides: the client reads lines up to
/// `ControlLimits.responseByteCount`.
struct AnswerPage {
    /// Largest page in bytes of JSON; its first element may be larger.
    private static let byteCountLimit = 1 << 20

    private let countLimit: Int
    private var byteCount = 0
    private var count = 0
    private(set) var isFull = false

    init(atMost countLimit: Int = 4_096) { self.countLimit = countLimit }

    /// - Parameter size: upper bound of the element's JSON, in bytes.
    /// - Returns: whether the element fits.
    mutating func take(byteCount size: Int) -> Bool {
        isFull = isFull || count > 0 && (byteCount + size > Self.byteCountLimit || count == countLimit)
        guard !isFull else { return false }
        byteCount += size
        count += 1
        return true
    }
}

/// Sort key of a list: a time, then an id.
struct ListPlace: Comparable, CustomStringConvertible {
    let at: Timestamp
    let id: String

    var description: String { "\(at.milliseconds)-\(id)" }

    static func < (one: Self, other: Self) -> Bool { (one.at, one.id) < (other.at, other.id) }
}

extension AnswerPage {
    /// - Parameters:
    ///   - all: sorted by their places.
    ///   - from: the `next` of the previous page; `nil` for the first page.
    static func list<Element, Shown>(
        _ all: [(Element, ListPlace)], from: String?, atMost countLimit: Int = 4_096, byteCount: (Shown) -> Int,
        show: (Element) -> Shown
    ) throws(ControlError) -> (shown: [Shown], next: String?) {
        let parts = from?.split(separator: "-", maxSplits: 1) ?? []
        let place = parts.count == 2 ? Int64(parts[0]).map { (Timestamp(milliseconds: $0), parts[1]) } : nil
        guard from == nil || place != nil else {
            throw ControlError(.usage, "`from` is not a position in the list", hint: "give the `next` of an answer")
        }
        let after = place.map { ListPlace(at: $0, id: String($1)) }
        var page = AnswerPage(atMost: countLimit)
        var shown: [Shown] = []
        var last: ListPlace?
        for (element, place) in all where after.map({ $0 < place }) ?? true {
            let one = show(element)
            guard page.take(byteCount: byteCount(one)) else { break }
            shown.append(one)
            last = place
        }
        return (shown, page.isFull ? last?.description : nil)
    }
}

/// Upper bounds of JSON sizes, computed without writing the JSON.
extension AnswerPage {
    /// A message's field names, ids, times, numbers, states and type.
    private static let messageByteCount = 2_048
    private static let partByteCount = 192
    private static let entryByteCount = 448
    private static let recordByteCount = 1_024
    /// A member's name, with its id.
    private static let nameByteCount = 6 * Limits.nameByteCount + 16

    static func largestByteCount(of read: Node.ReadMessage, _ conversation: Messaging.Conversation) -> Int {
        let content = read.message.content
        var count = messageByteCount + nameByteCount + jsonByteCount(content.displayText)
        if content.isUnknown { count += (content.payload.count + 2) / 3 * 4 }
        if content.attachment != nil { count += 6 * (Limits.fileNameByteCount + Limits.mediaTypeByteCount) }
        count += read.reactionCount * (partByteCount + nameByteCount + 6 * Limits.reactionByteCount)
        if read.message.sender == nil {
            let members = conversation.currentMembers.count + read.message.deliveries.count
            count += members * (partByteCount + nameByteCount)
        }
        return count
    }

    static func largestByteCount(of status: ExplosionStatus) -> Int {
        let memberCount = status.confirmed.count + status.waiting.count + (status.receipts?.count ?? 0)
        let nameByteCount = (status.names ?? []).reduce(0) { $0 + partByteCount + jsonByteCount($1.name) }
        return recordByteCount + jsonByteCount(status.error ?? "") + memberCount * partByteCount + nameByteCount
    }

    static func largestByteCount(of conversation: Conversation) -> Int {
        let names = [conversation.alias, conversation.name, conversation.profile]
        return recordByteCount + names.reduce(0) { $0 + jsonByteCount($1 ?? "") }
            + conversation.members.reduce(0) {
                $0 + recordByteCount + jsonByteCount($1.profile ?? "") + jsonByteCount($1.peer ?? "")
            }
    }

    static func largestByteCount(of entry: OutboxEntry) -> Int { entryByteCount + jsonByteCount(entry.to) }

    /// Size of a string as JSON: an escaped character takes 6 bytes, beyond U+FFFF 12.
    private static func jsonByteCount(_ text: String) -> Int {
        text.utf8.reduce(0) { count, byte in
            switch byte {
            case 0..<0x20, 0x7F: count + 6
            case UInt8(ascii: "\""), UInt8(ascii: "\\"): count + 2
            case 0x80...: count + 3
            default: count + 1
            }
        }
    }
}
