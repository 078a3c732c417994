import Crypto

/// What is left of an exploded conversation: who has confirmed, who must still be told (Explode.md). It lives from the
/// moment the keys are gone, in a tombstone, and knows no content and no endpoint.
///
///     prepared ──its time──▶ waiting ──receipt of the last member──▶ confirmed
///                               │ ──45 d──▶ gone
///
/// A tombstone is prepared when an explosion is scheduled, so that it is there although the keys went at their time
/// without anybody who could still sign.
package struct ExplodeStateMachine: Hashable, Sendable {
    /// Which side of the explosion we are on.
    package enum Role: String, Hashable, Sendable, Codable {
        /// Told the others.
        case creator
        /// Was told.
        case member
    }

    /// A copy of the conversation that was destroyed together with the latest one. The creator knows it by a key of its own
    /// and waits for a receipt of that key.
    package struct EarlierCopy: Hashable, Sendable, Codable {
        package var receipt: DeletionReceipt
        /// The secret by which the creator knocks at this copy, 32 bytes; the shell derives it.
        package var knock: [UInt8]?
        /// Its inbox, until the shell has derived ``knock``.
        package var client: ClientID?

        package init(receipt: DeletionReceipt, knock: [UInt8]? = nil, client: ClientID? = nil) {
            self.receipt = receipt
            self.knock = knock
            self.client = client
        }
    }

    /// What a tombstone holds, sealed.
    package struct Record: Hashable, Sendable, Codable {
        package var conversation: ConversationID
        package var role: Role
        /// By our clock.
        package var explodedAt: Timestamp
        /// ``Limits/tombstoneLifetime`` later the tombstone goes.
        package var keepUntil: Timestamp
        /// The sealed notice, for members that come late.
        package var notice: [UInt8]
        /// Our own sealed receipt, when we were told.
        package var receipt: [UInt8]?
        /// The other members; those that have confirmed, with the time they named.
        package var members: [PublicKey]
        package var confirmed: [PublicKey: Timestamp]
        /// Who made the conversation, if not we: the one who is owed our receipt.
        package var creator: PublicKey?
        /// The explosion is scheduled for ``explodedAt``; until then this is no explosion.
        package var isPrepared = false
        /// The alias of this node's user, at most ``Limits/nameByteCount`` bytes, set by the shell. A user who was away
        /// learns by it which conversation has exploded. `nil` without an alias, and at a creator that leaves no trace.
        package var name: String?
        /// Nobody is told actively: there is no list of whom to tell.
        package var isTraceless = false
        /// What late joiners are told, at the creator.
        package var statement: ExpiredStatement?
        /// The secrets by which each member knocks here, 32 bytes each; the shell derives them.
        package var memberKnocks: [PublicKey: [UInt8]] = [:]
        /// The secrets by which holders of invites knock here, 32 bytes each; the shell derives them.
        package var inviteKnocks: [[UInt8]] = []
        /// The invites that were open, newest first; until the shell has derived ``inviteKnocks`` from them.
        package var openInvites: [InviteID] = []
        /// From which its places at rendezvous nodes follow, so that members may ask there.
        package var relaySeeds: [RelaySeed] = []
        /// Our copies from before the creator removed us and we joined again; the oldest first.
        package var earlierCopies: [EarlierCopy] = []

        package init(
            conversation: ConversationID, role: Role, explodedAt: Timestamp, keepUntil: Timestamp, notice: [UInt8],
            receipt: [UInt8]?, members: [PublicKey]
        ) {
            self.conversation = conversation
            self.role = role
            self.explodedAt = explodedAt
            self.keepUntil = keepUntil
            self.notice = notice
            self.receipt = receipt
            self.members = members
            self.confirmed = [:]
        }

        /// What the shell has derived while there were keys.
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
    }

    /// The secrets by which others knock at a tombstone, 32 bytes each.
    package struct KnockSecrets: Hashable, Sendable {
        package var members: [PublicKey: [UInt8]]
        package var invites: [[UInt8]]
        package var earlierCopies: [ClientID: [UInt8]]

        package init(members: [PublicKey: [UInt8]], invites: [[UInt8]], earlierCopies: [ClientID: [UInt8]]) {
            self.members = members
            self.invites = invites
            self.earlierCopies = earlierCopies
        }
    }

    /// What the tombstone holds now.
    package private(set) var record: Record

    package init(record: Record) { self.record = record }

    /// Members that have not confirmed, at the creator; empty at others.
    package var waiting: [PublicKey] {
        record.role == .creator ? record.members.filter { record.confirmed[$0] == nil } : []
    }

    /// - Returns: whether this is news; a receipt of a stranger, forged or repeated is not.
    package mutating func receive(_ receipt: DeletionReceipt) -> Bool {
        guard record.role == .creator, receipt.conversation == record.conversation, waiting.contains(receipt.member),
            receipt.isSignatureValid
        else { return false }
        record.confirmed[receipt.member] = receipt.destroyedAt
        return true
    }

    /// What the shell has derived while there were keys.
    package mutating func set(_ knocks: KnockSecrets, name: String?) { record.set(knocks, name: name) }

    /// The time of a prepared tombstone has come.
    package mutating func begin() { record.isPrepared = false }

    /// What a member is answered with that asks whether the conversation is gone; `nil` for a stranger.
    package func answer(toQuestionOf member: PublicKey) -> [UInt8]? {
        record.members.contains(member) ? record.notice : nil
    }

    /// What a notice is answered with: our receipt, to the creator that waits for it; `nil` for anybody else.
    package func answer(toNoticeOf member: PublicKey) -> [UInt8]? { member == record.creator ? record.receipt : nil }

    /// The answer to a notice that came to the copy with this key: its receipt, else that of the latest copy.
    package func answer(toNoticeFor copy: PublicKey, _ random: inout some RandomNumberGenerator) -> [UInt8]? {
        record.earlierCopies.first { $0.receipt.member == copy }?.receipt.sealed(&random) ?? record.receipt
    }
}
