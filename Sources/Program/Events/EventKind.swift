import Control

enum EventKind: String, JSONChoice, Hashable, Sendable {
    case message
    case messageState
    case messageExpired
    case lifetimeProposed
    /// A member signed the proposal; other signatures are missing.
    case lifetimeSigned
    case lifetimeAgreed
    case lifetimeRejected
    case lifetimeWithdrawn
    case lifetimeExpired
    case lifetimeReset
    case memberJoined
    case memberLeft
    case joinRequested
    case joined
    case joinFailed
    case joinValidated
    case invited
    case exploded
    case explosionScheduled
    case deletionReceipt
    case peerOnline
    case peerOffline
    case inboxAwake
    case inboxAsleep
    case locked
    case unlocked
    case messageDelivery
    case attachmentProgress
    /// The name or the lock state changed.
    case conversationUpdated
    /// The creator signed two different states of one version.
    case groupConflict
    case memberRemoved
    case removed
    case profileChanged
    /// A member gave up messages to us.
    case messagesMissed
    /// Two copies of one home run at once: the member's, or, by the member's report, ours.
    case twoCopies
    case explosionReminder
    /// Events between the requested cursor and this one are no longer kept. `lost` is their number. It is null when
    /// some belong to a run that crashed, or when the cursor belongs to another home.
    case gap
    case lifetimeSuspended
    /// A spoken code was taken or became void.
    case codeEnded
}
