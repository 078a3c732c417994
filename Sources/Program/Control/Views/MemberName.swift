import Control
import Crypto
import Messaging
import NodeRuntime

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

    static func sender(of message: Messaging.Message, _ conversation: ConversationStateMachine, _ node: isolated Node)
        -> String
    {
        if message.content.type == .systemMessage { return system }
        return message.sender.map { shown($0, conversation, node) } ?? own
    }

    /// Name of a member: its profile, else the name of the peer that got the invite, else its id. An ambiguous name
    /// gets the id appended.
    static func shown(_ key: PublicKey, _ conversation: ConversationStateMachine, _ node: isolated Node) -> String {
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
