import Crypto

/// A scheduled explosion at one member: the notice with the earliest end so far, and the members known to have it. Part
/// of the conversation's record, so it dies with it.
package struct ExplosionSchedule: Hashable, Sendable, Codable {
    package var notice: ExplodeNotice
    /// The end by our clock: the notice's time, at most ``Limits/explosionHorizon`` after it arrived.
    package var expiresAt: Timestamp
    /// When the notice arrived, by our clock.
    package var knownAt: Timestamp
    package var isReminded = false
    /// At the creator: there is no list of members to tell.
    package var isTraceless = false
    /// Members that have sent the same notice.
    package var confirmed: [PublicKey] = []
    /// From members that have already destroyed their copy: their clocks are ahead of ours.
    package var receipts: [DeletionReceipt] = []

    package init(_ notice: ExplodeNotice, now: Timestamp) {
        self.notice = notice
        expiresAt = min(notice.expiresAt, now + Limits.explosionHorizon)
        knownAt = now
    }

    /// The reminder comes a tenth of the time before the end, at most ten minutes.
    package var remindAt: Timestamp { expiresAt - min(Limits.reminderLead, max(0, expiresAt - knownAt) / 10) }
}
