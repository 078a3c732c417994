import Control
import Cryptography
import Messaging
import NodeRuntime

struct MessageFile: CodableRecord {
    /// Sanitized for use as a local file name, without a path.
    var name = ""
    /// A guess, such as `image/png`.
    var mediaType = ""
    var byteCount: Int64 = 0
    /// `receiving`, `complete` or `failed`.
    var state = ""
    /// Received part, in percent.
    var percent: Int = 0
}

struct MessageReaction: CodableRecord {
    /// As ``Message/from``.
    var from = ""
    /// As ``Message/member``.
    @OrNull var member: String?
    var reaction = ""
}

struct NamedMember: CodableRecord {
    /// As ``Message/member``.
    @OrNull var member: String?
    /// As ``Message/from``.
    var name = ""
}

/// The delivery of a message to one member.
struct MessageDelivery: JSONRecord, Hashable, Sendable {
    /// As ``Message/member``.
    var member = ""
    /// As ``Message/from``.
    var name = ""
    /// `queued`, `sent`, `mailed`, `delivered`, `read`, `expiredUndelivered` or `failed`.
    var state = ""
    /// Time of the last change of state; absent when unknown.
    var at: Timestamp?

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("member", &member)
        try fields.field("name", &name)
        try fields.field("state", &state)
        try fields.field("at", &at)
    }
}

struct Message: JSONRecord, JSONScalar, Hashable, Sendable {
    var message = HexID()
    var conversation = HexID()
    /// The member's chosen name. `name (id)` where the name is ambiguous, the id without a name, `me` for our own
    /// messages, `system` for the node's. Names are for people: scripts compare `member`.
    var from = ""
    /// Prefix of the member's id; null for our own messages and the node's.
    @OrNull var member: String?
    /// Content type, such as `mayfly/text:1.0`.
    var type = ""
    /// Null for contents without a text.
    @OrNull var text: String?
    /// Sender's clock.
    var sentAt: Timestamp = Timestamp(milliseconds: 0)
    /// Null for ephemeral messages.
    @OrNull var expiresAt: Timestamp?
    /// True on disk, false in memory only.
    var stored = false
    /// One of ``states``.
    var state = ""
    var replyTo: String?
    /// Id of the agreement in force at sending, in hex; absent for ephemeral messages.
    var agreement: String?
    var file: MessageFile?
    /// Absent when there are none.
    var reactions: [MessageReaction]?
    /// Only for our own messages.
    var deliveries: [MessageDelivery]?
    /// Base64; only for types unknown to this program.
    var payload: String?
    /// In a reaction: id of the message, and whether the reaction was removed.
    var reactsTo: String?
    var removed: Bool?

    static let states = [
        "received", "receiving", "queued", "sent", "mailed", "delivered", "read", "failed", "cancelled",
        "expiredUndelivered",
    ]

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("message", &message)
        try fields.field("conversation", &conversation)
        try fields.field("from", &from)
        try fields.field("member", &_member)
        try fields.field("type", &type)
        try fields.field("text", &_text)
        try fields.field("sentAt", &sentAt)
        try fields.field("expiresAt", &_expiresAt)
        try fields.field("stored", &stored)
        try fields.field("state", &state)
        try fields.field("replyTo", &replyTo)
        try fields.field("agreement", &agreement)
        try fields.field("file", &file)
        try fields.field("reactions", &reactions)
        try fields.field("deliveries", &deliveries)
        try fields.field("payload", &payload)
        try fields.field("reactsTo", &reactsTo)
        try fields.field("removed", &removed)
    }
}

extension Message {
    init(_ read: Node.ReadMessage, _ conversation: Messaging.Conversation, _ node: isolated Node) {
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
        self.init(
            message: HexID(content.id), conversation: HexID(conversation.conversation),
            from: MemberName.sender(of: message, conversation, node), member: message.sender.map { MemberName.id($0) },
            type: content.type.description, text: text.isEmpty ? nil : text, sentAt: content.sentAt,
            expiresAt: Self.end(of: message, conversation), stored: read.isStored, state: message.state.rawValue,
            replyTo: content.replyTo?.description, agreement: content.agreement?.description,
            file: content.attachment.map { Self.file($0, message, conversation.client, node) },
            reactions: reactions.isEmpty ? nil : reactions, deliveries: Self.deliveries(message, conversation, node),
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

extension HexID {
    init(_ message: Messaging.MessageID) { self.init(message.value.first, message.value.second) }

    init(_ conversation: ConversationID) {
        let (left, right) = (conversation.value.left, conversation.value.right)
        self.init(left.first, left.second, right.first, right.second)
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
        func isDigit(_ byte: UInt8) -> Bool { (0x30...0x39).contains(byte) || (0x61...0x66).contains(byte) }
        return folded.utf8.split { !isDigit($0) }.contains { $0.count >= 8 }
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
