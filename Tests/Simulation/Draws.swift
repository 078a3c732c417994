import Cryptography
import Messaging

extension Randomness {
    package mutating func roll(_ bound: Int64) -> Int64 { Int64(next(upperBound: UInt64(max(1, bound)))) }
    package mutating func chance(_ percent: Int64) -> Bool { roll(100) < percent }
    package mutating func one<Element>(of elements: [Element]) -> Element { elements[Int(roll(Int64(elements.count)))] }
}

/// Draws everything from one seed. The order of the draws is part of what a seed means.
package protocol Drawing: AnyObject { var dice: Randomness { get set } }

extension Drawing {
    package func roll(_ bound: Int64) -> Int64 { dice.roll(bound) }
    package func chance(_ percent: Int64) -> Bool { dice.chance(percent) }
    package func one<Element>(of elements: [Element]) -> Element { dice.one(of: elements) }
    package func pick<Element>(_ elements: [Element]) -> Element? { elements.isEmpty ? nil : dice.one(of: elements) }
}

extension LifetimeCap {
    /// Most nodes have no cap.
    package static let drawn: [LifetimeCap] = [
        .none, .none, .none, .none, .none, .none, .atMost(.oneHour), .atMost(.ephemeral),
    ]
    /// What users choose for a conversation; `nil`: their node's.
    package static let set: [LifetimeCap?] = [
        nil, LifetimeCap.none, .atMost(.oneDay), .atMost(.oneHour), .atMost(.ephemeral),
    ]
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

    /// What is not settled between two members that reach each other; `nil` if all is.
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
