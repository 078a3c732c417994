import Crypto

/// An explosion to come, as one member holds it: the creator's notice with the earliest time that has reached us, and
/// who else is known to have it. Part of the conversation's record, so it dies with it.
package struct ExplosionSchedule: Hashable, Sendable, Codable {
    package var notice: ExplodeNotice
    /// When the conversation ends here, by our clock: the notice's time, at most ``Limits/explosionHorizon`` after it
    /// came.
    package var expiresAt: Timestamp
    /// When it came to be known here, by our clock.
    package var knownAt: Timestamp
    /// The user has been reminded.
    package var isReminded = false
    /// At the creator: the explosion leaves no list of whom to tell.
    package var isTraceless = false
    /// Members that hold the same notice, as they have shown.
    package var confirmed: [PublicKey] = []
    /// Members that have already destroyed their copy: their clocks are ahead of ours.
    package var receipts: [DeletionReceipt] = []

    package init(_ notice: ExplodeNotice, now: Timestamp) {
        self.notice = notice
        expiresAt = min(notice.expiresAt, now + Limits.explosionHorizon)
        knownAt = now
    }

    /// When the user is reminded: a tenth of the time before the end, at most ten minutes.
    package var remindAt: Timestamp { expiresAt - min(Limits.reminderLead, max(0, expiresAt - knownAt) / 10) }
}
