import Cryptography
import Messaging

extension Agreement {
    /// Builds the signed bytes from the specification, independently of the code under test.
    package func hasSpecifiedSignatures(of members: Set<PublicKey>) -> Bool {
        func field(_ bytes: [UInt8]) -> [UInt8] { number(UInt64(bytes.count)) + bytes }
        func number(_ value: UInt64) -> [UInt8] { (0..<8).map { UInt8(truncatingIfNeeded: value >> (56 - 8 * $0)) } }
        func tagged(_ tag: String, _ bytes: [UInt8]) -> [UInt8] {
            let hash = SHA256.hash(Array(tag.utf8))
            return SHA256.hash(hash + hash + bytes)
        }
        let terms = proposal.terms
        let proposed = tagged(
            "mayfly/lifetime_proposal",
            field(proposal.conversation.bytes) + number(proposal.membership) + number(proposal.epoch)
                + field(proposal.previous.bytes) + field(Array(proposal.lifetime.rawValue.utf8))
                + number(UInt64(proposal.proposedAt.milliseconds)) + field(proposal.nonce)
                + field(proposal.proposer.bytes) + field(Array((terms.attachment?.rawValue ?? "").utf8))
                + number(UInt64(terms.unopened ?? 0)) + field(Array(terms.timer.rawValue.utf8))
                + (terms.mailbox == .no ? [] : field(Array(terms.mailbox.rawValue.utf8))))
        for accept in accepts {
            let accepted = tagged(
                "mayfly/lifetime_accept",
                field(proposal.conversation.bytes) + field(proposed) + field(Array(proposal.lifetime.rawValue.utf8))
                    + number(UInt64(accept.acceptedAt.milliseconds)) + field(accept.acceptor.bytes))
            guard accept.acceptor.isValid(accept.signature, for: accepted) else { return false }
        }
        let signers = [proposal.proposer] + accepts.map(\.acceptor)
        return members.count >= 2 && members.isSubset(of: signers) && Set(signers).count == signers.count
            && proposal.proposer.isValid(proposal.signature, for: proposed)
            && id.bytes == tagged("mayfly/lifetime_agreement", field(proposed))
    }
}

extension Conversation {
    /// Bounds that it exceeds (I7).
    package var excesses: [String] {
        let bounds: [(String, Int, Int)] = [
            ("held bytes", heldByteCount, Limits.memoryByteCount), ("outbox", outboxCount, Limits.outboxCount),
            ("known agreements", record.lifetime.known.count, Limits.agreementCount),
            ("whole agreements", record.lifetime.earlier.count, Limits.agreementRecordCount),
            ("ballot floors", record.lifetime.floors.count, Limits.ballotFloorCount),
            ("invites", record.issuer?.invites.count ?? 0, Limits.inviteCount),
            ("members", currentMembers.count + 1, Limits.memberCount),
            // Departed members are remembered for a while.
            ("descriptions", record.members.count, 2 * Limits.memberCount),
            ("departures", record.departures.count, Limits.memberCount),
            ("removed members", record.former.count, Limits.departedCount),
            ("members told", record.told.count, 2 * Limits.memberCount),
            ("members missed", max(record.missed.count, record.undelivered.count), 2 * Limits.memberCount),
            ("receipts", record.schedule?.receipts.count ?? 0, Limits.memberCount),
        ]
        return bounds.filter { $1 > $2 }.map { "\($0): \($1) of \($2)" }
    }

    /// The differences between two members that reach each other; `nil` if there are none.
    package func unrest(with other: Conversation) -> String? {
        for (one, key) in [(self, other.key.publicKey), (other, key.publicKey)] {
            if !one.isOnline(key) { return "have no link" }
            let waiting = one.outbox(to: key).count
            if waiting > 0 { return "have \(waiting) messages for each other" }
        }
        if agreement?.id != other.agreement?.id { return "are under different agreements" }
        return groupDigest == other.groupDigest ? nil : "know different things of their group"
    }
}
