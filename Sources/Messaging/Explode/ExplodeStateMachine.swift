import Primitives

/// What is left of an exploded conversation: who has confirmed, who must still be told (section 7). It lives from the
/// moment the keys are gone, in a tombstone, and knows no content, no name and no endpoint.
///
///     waiting ──receipt of the last member──▶ confirmed
///        │ ──45 d──▶ gone
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
        /// The first 8 bytes of each token with which a late member may knock, one per member and day.
        package var knockTokens: [[UInt8]] = []

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

    /// The tokens that the shell has derived, 8 bytes each.
    package mutating func setKnockTokens(_ tokens: [[UInt8]]) {
        record.knockTokens = tokens
    }

    /// What a late member's knock is answered with: our receipt to the creator's, the notice to anyone else's.
    package var knockAnswer: [UInt8] { record.receipt ?? record.notice }
}
