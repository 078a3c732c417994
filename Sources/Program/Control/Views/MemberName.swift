import Control
import Crypto
import Messaging
import NodeRuntime

/// What members are called: each chooses a name of its own, so a name alone proves nothing.
enum MemberName {
    /// What we are called here.
    static let own = "me"
    /// What the node itself is called.
    static let system = "system"

    /// - Parameter others: the names of all others in the conversation, our own among them.
    static func isClear(_ name: String, among others: [String]) -> Bool {
        let folded = ShownName.folded(name)
        // Wide gaps would end the name where it is shown before a text.
        return ShownName.isOrdinary(name) && folded != own && folded != system && !looksLikeID(folded)
            && !others.contains { ShownName.folded($0) == folded }
    }

    /// As many hexadecimal digits in a row as an id has, or somewhat less: also in brackets, as we write them ourselves.
    private static func looksLikeID(_ folded: String) -> Bool {
        var count = 0
        for byte in folded.utf8 {
            let isDigit = (0x30...0x39).contains(byte) || (0x61...0x66).contains(byte)
            count = isDigit ? count + 1 : 0
            if count >= 8 { return true }
        }
        return false
    }

    /// Short name of a member: the beginning of its inbox id.
    static func id(_ key: PublicKey) -> String { String(InboxID(key).description.prefix(12)) }

    /// Who sent a message, as `from` says it.
    static func sender(of message: Messaging.Message, _ conversation: ConversationStateMachine, _ node: isolated Node)
        -> String
    {
        if message.content.type == .systemMessage { return system }
        return message.sender.map { shown($0, conversation, node) } ?? own
    }

    /// What a member is called wherever its word is shown: the name that it has chosen, else that of the peer as which it
    /// was invited here, with its id behind it where that name could be taken for somebody else's; its id if it has none.
    static func shown(_ key: PublicKey, _ conversation: ConversationStateMachine, _ node: isolated Node) -> String {
        let record = conversation.record
        if key == conversation.key.publicKey { return own }
        func called(_ one: Messaging.Member) -> String? {
            one.profile ?? node.peerName(of: one.key, in: conversation.client)
        }
        guard let chosen = record.members.first(where: { $0.key == key }).flatMap(called) else { return id(key) }
        // Those that are gone count, too: what they have said is still there.
        let others = record.members.filter { $0.key != key }.map(called) + [record.own.profile]
        return isClear(chosen, among: others.compactMap(\.self))
            ? chosen : "\(ShownName.onOneBlank(chosen)) (\(id(key)))"
    }
}
