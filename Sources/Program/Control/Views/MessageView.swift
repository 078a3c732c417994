import Control
import Crypto
import Messaging
import NodeRuntime

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
                member: MemberName.shown(one.member, conversation, node), state: one.state.rawValue, at: one.at)
        }
        for member in conversation.currentMembers {
            guard !said.contains(where: { $0.member == member.key }),
                let entry = conversation.outboxEntry(message.content.id, to: member.key)
            else { continue }
            result.append(
                MessageDelivery(member: MemberName.shown(member.key, conversation, node), state: entry.state.rawValue))
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

/// Upper bounds of JSON sizes, computed without writing the JSON.
extension AnswerPage {
    /// A message's field names, ids, times, numbers, states and type.
    private static let messageByteCount = 2_048
    private static let partByteCount = 192
    private static let entryByteCount = 448
    private static let explosionByteCount = 1_024
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
        return explosionByteCount + jsonByteCount(status.error ?? "") + memberCount * partByteCount + nameByteCount
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
