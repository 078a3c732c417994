import Messaging
import Primitives

/// Who is in a conversation, and how its members are called.
extension Node {
    /// - Parameter name: empty for none.
    package func rename(_ text: String, to name: String) throws(NodeError) {
        _ = try command(text) { machine, turn throws(CommandError) in
            ((), try machine.rename(name.isEmpty ? nil : name, &turn))
        }
    }

    /// Our own name in one conversation.
    /// - Parameter profile: empty for none.
    package func setProfile(_ text: String, to profile: String) throws(NodeError) {
        _ = try command(text) { machine, turn throws(CommandError) in
            ((), try machine.setProfile(profile.isEmpty ? nil : profile, &turn))
        }
    }

    /// Locks or unlocks a conversation of our own: a locked one admits nobody.
    package func setLocked(_ text: String, _ isLocked: Bool) throws(NodeError) {
        _ = try command(text) { machine, turn throws(CommandError) in
            ((), try machine.setLocked(isLocked, &turn))
        }
    }

    /// - Parameter member: the beginning of its id, its unambiguous name, or that of the peer as which it was invited.
    package func removeMember(_ text: String, _ member: String) throws(NodeError) {
        let machine = try conversation(text)
        let lowered = member.lowercased()
        let matches = machine.currentMembers.filter { one in
            (one.profile ?? peerName(of: one.key, in: machine.client)) == member
                || !lowered.isEmpty && InboxID(one.key).description.hasPrefix(lowered)
        }
        guard let first = matches.first else { throw .unknownMember(member) }
        guard matches.count == 1 else {
            throw .ambiguous(member, matches: matches.map { String(InboxID($0.key).description.prefix(12)) })
        }
        _ = try command(text) { machine, turn throws(CommandError) in ((), try machine.remove(first.key, &turn)) }
    }
}
