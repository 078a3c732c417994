import Cryptography

/// The tombstone of an exploded conversation: which members have confirmed, and which must still be told (Explode.md).
/// It begins when the keys are destroyed, and knows no content and no endpoint.
///
/// A scheduled explosion prepares its tombstone, since the keys may be destroyed while no running node can sign.
package struct ExplosionRecord: Hashable, Sendable, Codable {
    package enum Role: String, Hashable, Sendable, Codable {
        case creator
        case member
    }

    /// A copy of the conversation that was destroyed with the latest one. It has a member key of its own, and the
    /// creator waits for a receipt of that key.
    package struct EarlierCopy: Hashable, Sendable, Codable {
        package var receipt: DeletionReceipt
        /// The creator's knock secret for this copy, 32 bytes; the shell derives it.
        package var knock: [UInt8]?
        /// Its inbox, until the shell has derived ``knock``.
        package var client: ClientID?

        package init(receipt: DeletionReceipt, knock: [UInt8]? = nil, client: ClientID? = nil) {
            (self.receipt, self.knock, self.client) = (receipt, knock, client)
        }
    }

    package struct KnockSecrets: Hashable, Sendable {
        package var members: [PublicKey: [UInt8]]
        package var invites: [[UInt8]]
        package var earlierCopies: [ClientID: [UInt8]]

        package init(members: [PublicKey: [UInt8]], invites: [[UInt8]], earlierCopies: [ClientID: [UInt8]]) {
            (self.members, self.invites, self.earlierCopies) = (members, invites, earlierCopies)
        }
    }

    package var conversation: ConversationID
    package var role: Role
    /// By our clock.
    package var explodedAt: Timestamp
    /// When the tombstone is erased: ``Limits/tombstoneLifetime`` after the explosion.
    package var keepUntil: Timestamp
    /// The sealed notice, for members that connect late.
    package var notice: [UInt8]
    /// Our sealed receipt, at a member.
    package var receipt: [UInt8]?
    /// The other members, and the time that each confirming member named.
    package var members: [PublicKey]
    package var confirmed: [PublicKey: Timestamp]
    /// The creator, at a member: our receipt is for this key.
    package var creator: PublicKey?
    /// The explosion is scheduled for ``explodedAt`` and has not happened.
    package var isPrepared = false
    /// The user's alias, at most ``Limits/nameByteCount`` bytes, so that a user who was away knows which
    /// conversation exploded. `nil` without an alias, and at a creator that leaves no trace.
    package var name: String?
    /// There is no list of members to tell, so none is told actively.
    package var isTraceless = false
    /// At the creator: the answer to late joiners.
    package var statement: ExpiredStatement?
    /// Knock secrets of the members, 32 bytes each; the shell derives them.
    package var memberKnocks: [PublicKey: [UInt8]] = [:]
    /// Knock secrets of invite holders, 32 bytes each; the shell derives them.
    package var inviteKnocks: [[UInt8]] = []
    /// The open invites, newest first, until the shell has derived ``inviteKnocks`` from them.
    package var openInvites: [InviteID] = []
    /// Seeds of its reservations at rendezvous nodes, where members may ask.
    package var relaySeeds: [RelaySeed] = []
    /// Our copies from before the creator removed us and we joined again, oldest first.
    package var earlierCopies: [EarlierCopy] = []

    package init(
        conversation: ConversationID, role: Role, explodedAt: Timestamp, keepUntil: Timestamp, notice: [UInt8],
        receipt: [UInt8]?, members: [PublicKey]
    ) {
        (self.conversation, self.role, self.explodedAt, self.keepUntil) = (conversation, role, explodedAt, keepUntil)
        (self.notice, self.receipt, self.members) = (notice, receipt, members)
        self.confirmed = [:]
    }

    package mutating func set(_ knocks: KnockSecrets, name: String?) {
        self.name = isTraceless ? nil : name
        memberKnocks = knocks.members
        inviteKnocks = knocks.invites
        openInvites = []
        for (index, copy) in earlierCopies.enumerated() {
            guard let client = copy.client else { continue }
            earlierCopies[index].knock = knocks.earlierCopies[client]
            earlierCopies[index].client = nil
        }
    }

    /// At the creator: members that have not confirmed. Empty at others.
    package var waiting: [PublicKey] { role == .creator ? members.filter { confirmed[$0] == nil } : [] }

    /// - Returns: whether the receipt is valid and of a member that has not confirmed.
    package mutating func receive(_ receipt: DeletionReceipt) -> Bool {
        guard role == .creator, receipt.conversation == conversation, waiting.contains(receipt.member),
            receipt.isSignatureValid
        else { return false }
        confirmed[receipt.member] = receipt.destroyedAt
        return true
    }

    /// The answer to a member's question whether the conversation is gone; `nil` for a stranger.
    package func answer(toQuestionOf member: PublicKey) -> [UInt8]? { members.contains(member) ? notice : nil }

    /// The answer to a notice: our receipt to the creator; `nil` for others.
    package func answer(toNoticeOf member: PublicKey) -> [UInt8]? { member == creator ? receipt : nil }

    /// The answer to a notice for the copy with this key: its receipt, else that of the latest copy.
    package func answer(toNoticeFor copy: PublicKey, _ random: inout some RandomNumberGenerator) -> [UInt8]? {
        earlierCopies.first { $0.receipt.member == copy }?.receipt.sealed(&random) ?? receipt
    }
}
