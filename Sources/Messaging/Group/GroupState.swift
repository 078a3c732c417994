import Cryptography

/// Members, name and lock, signed by the creator, so that any member may relay them (`mayfly/group_updated:1.0`).
package struct GroupState: Signed, Hashable, Sendable, Codable {
    package var conversation: ConversationID
    /// The larger version counts.
    package var version: UInt64
    /// Counts changes of the member list only: proposals name it.
    package var membership: UInt64
    package var name: String?
    package var isLocked: Bool
    /// In the order in which they joined, the creator first.
    package var members: [PublicKey]
    package var signature: SchnorrSignature

    package init(
        conversation: ConversationID, version: UInt64, membership: UInt64, name: String?, isLocked: Bool,
        members: [PublicKey], signature: SchnorrSignature = .unsigned
    ) {
        (self.conversation, self.version, self.membership, self.name) = (conversation, version, membership, name)
        (self.isLocked, self.members, self.signature) = (isLocked, members, signature)
    }

    package var transcript: Transcript {
        let transcript = Transcript("mayfly/group_updated").adding(conversation).adding(version).adding(membership)
            .adding(name ?? "").adding(isLocked ? 1 as UInt64 : 0).adding(UInt64(members.count))
        return members.reduce(transcript) { $0.adding($1) }
    }

    /// Whether this state replaces another of the same creator, in an order common to all members. A later version
    /// does; if its members differ, its membership must be larger too, which ends proposals that new members do not
    /// know. An honest creator signs one version twice only after its home was restored from a copy: then the larger
    /// membership counts, else the smaller digest.
    func supersedes(_ known: GroupState) -> Bool {
        if version != known.version {
            return version > known.version
                && (membership > known.membership
                    || (membership == known.membership && Set(members) == Set(known.members)))
        }
        if membership != known.membership { return membership > known.membership }
        return digest.lexicographicallyPrecedes(known.digest)
    }

    /// Whether the creator has signed two states of one version.
    func conflicts(with known: GroupState) -> Bool { version == known.version && digest != known.digest }

    /// It names this conversation, its creator has signed it, and its fields are within their limits.
    package func isValid(for genesis: Genesis) -> Bool {
        conversation == genesis.conversation && members.first == genesis.creator && members.count <= Limits.memberCount
            && Set(members).count == members.count && DisplayName.isValid(name) && hasSignature(of: genesis.creator)
    }
}

/// A signed notice that a member is gone (`mayfly/member_left:1.0`). Signed by the leaving member, any member may relay
/// it until the creator's next state. Signed by the creator, it tells a member of its removal.
package struct Departure: Signed, Hashable, Sendable, Codable {
    package let conversation: ConversationID
    package let member: PublicKey
    package var signature: SchnorrSignature

    package init(conversation: ConversationID, member: PublicKey, signature: SchnorrSignature) {
        (self.conversation, self.member, self.signature) = (conversation, member, signature)
    }

    /// - Parameter key: the member's own, or the creator's.
    package init(
        of member: PublicKey, conversation: ConversationID, key: IdentityKey, _ random: inout some RandomNumberGenerator
    ) {
        self.init(conversation: conversation, member: member, signature: .unsigned)
        self = signed(by: key, &random)
    }

    package var transcript: Transcript { Transcript("mayfly/member_left").adding(conversation).adding(member) }

    /// It names this conversation, and `signer` has signed it: the member or the creator.
    package func isValid(for conversation: ConversationID, by signer: PublicKey) -> Bool {
        self.conversation == conversation && hasSignature(of: signer)
    }
}

/// Group values for another member: all of them when a link opens and the digests differ, later new ones only.
package struct GroupUpdate: Hashable, Sendable {
    /// `nil`: nothing new.
    package var state: GroupState?
    package var members: [Member]
    /// Leave notices of members that the state still lists.
    package var departures: [Departure]

    package init(state: GroupState? = nil, members: [Member] = [], departures: [Departure] = []) {
        (self.state, self.members, self.departures) = (state, members, departures)
    }

    package var isEmpty: Bool { state == nil && members.isEmpty && departures.isEmpty }
}
