import Control
import Messaging
import NodeRuntime
import Primitives

/// What members are called: everybody chooses a name of his own, so a name alone proves nothing.
extension NodeView {
    /// Who sent a message, as `from` says it.
    static func from(_ message: Messaging.Message, _ conversation: ConversationStateMachine) -> String {
        if message.content.type == .systemMessage { return MemberName.system }
        return message.sender.map { name($0, conversation) } ?? MemberName.own
    }

    /// What a member is called wherever its word is shown: the name that it has chosen, with its id behind it where that
    /// name could be taken for somebody else's; its id if it has none.
    static func name(_ key: PublicKey, _ conversation: ConversationStateMachine) -> String {
        let record = conversation.record
        if key == conversation.key.publicKey { return MemberName.own }
        guard let profile = record.members.first(where: { $0.key == key })?.profile else { return member(key) }
        // Those that are gone count, too: what they have said is still there.
        let others = record.members.filter { $0.key != key }.map(\.profile) + [record.own.profile]
        return MemberName.isClear(profile, among: others.compactMap(\.self))
            ? profile : "\(MemberName.onOneBlank(profile)) (\(member(key)))"
    }
}

/// Whether the name that a member has chosen may stand alone.
enum MemberName {
    /// What we are called here.
    static let own = "me"
    /// What the node itself is called.
    static let system = "system"

    /// - Parameter others: the names of all others in the conversation, our own among them.
    static func isClear(_ name: String, among others: [String]) -> Bool {
        let folded = folded(name)
        // Wide gaps would end the name where it is shown before a text.
        guard name == onOneBlank(name) else { return false }
        return !folded.isEmpty && folded != own && folded != system && !looksLikeID(folded)
            // Another way to write other characters, such as fullwidth letters: it would have to be NFKC first.
            && !folded.unicodeScalars.contains(where: \.properties.changesWhenNFKCCaseFolded)
            && !others.contains { Self.folded($0) == folded }
    }

    /// The name with one blank between its words.
    static func onOneBlank(_ name: String) -> String {
        name.split(whereSeparator: \.isWhitespace).joined(separator: " ")
    }

    /// The name without case, blanks, and what cannot be seen. Two names that read alike are equal then, if both are
    /// clear otherwise: strings are compared by canonical equivalence.
    private static func folded(_ name: String) -> String {
        var scalars = String.UnicodeScalarView()
        for scalar in name.unicodeScalars {
            if scalar.properties.isWhitespace || scalar.properties.isDefaultIgnorableCodePoint { continue }
            scalars.append(scalar)
        }
        // Both ways, since some letters have one case only: `ß` is `ss` then.
        return String(scalars).uppercased().lowercased()
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
}
