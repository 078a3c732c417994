import Crypto

/// What is left of an exploded conversation: who has confirmed, who must still be told (section 7). It lives from the
/// moment the keys are gone, in a tombstone, and knows no content, no name and no endpoint.
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

        package init(
            conversation: ConversationID,
            role: Role,
            explodedAt: Timestamp,
            keepUntil: Timestamp,
            notice: [UInt8],
            receipt: [UInt8]?,
            members: [PublicKey]
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
        package mutating func setKnocks(members: [PublicKey: [UInt8]], invites: [[UInt8]]) {
            memberKnocks = members
            inviteKnocks = invites
            openInvites = []
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
        guard record.role == .creator, receipt.conversation == record.conversation,
            waiting.contains(receipt.member), receipt.isSignatureValid
        else { return false }
        record.confirmed[receipt.member] = receipt.destroyedAt
        return true
    }

    /// What the shell has derived while there were keys.
    package mutating func setKnocks(members: [PublicKey: [UInt8]], invites: [[UInt8]]) {
        record.setKnocks(members: members, invites: invites)
    }

    /// The time of a prepared tombstone has come.
    package mutating func begin() { record.isPrepared = false }

    /// What a member is answered with that asks whether the conversation is gone; `nil` for a stranger.
    package func answer(toQuestionOf member: PublicKey) -> [UInt8]? {
        record.members.contains(member) ? record.notice : nil
    }

    /// What a notice is answered with: our receipt, to the creator that waits for it; `nil` for anybody else.
    package func answer(toNoticeOf member: PublicKey) -> [UInt8]? {
        member == record.creator ? record.receipt : nil
    }
}
