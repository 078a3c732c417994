import Control

/// The kinds of ``Messaging/Event/Kind``, and `gap`.
enum EventKind: String, JSONChoice, Hashable, Sendable {
    case message, messageState, messageExpired
    case lifetimeProposed, lifetimeSigned, lifetimeAgreed, lifetimeRejected, lifetimeWithdrawn, lifetimeExpired
    case lifetimeReset
    case memberJoined, memberLeft, joinRequested, joined, joinFailed, joinValidated, invited
    case exploded, explosionScheduled, deletionReceipt
    case peerOnline, peerOffline, inboxAwake, inboxAsleep, locked, unlocked
    case messageDelivery, attachmentProgress, conversationUpdated, groupConflict, memberRemoved, removed
    case profileChanged, messagesMissed, twoCopies, explosionReminder
    /// Events between the requested cursor and this one are no longer kept. `lost` is their number. It is null when
    /// some belong to a run that crashed, or when the cursor belongs to another home.
    case gap
    case lifetimeSuspended, codeEnded
}
