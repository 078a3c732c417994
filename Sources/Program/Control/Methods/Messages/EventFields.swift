import Control
import Messaging

/// The fields of each event kind, for `mayfly schema`.
extension EventKind {
    /// Present in every event, except `inbox`, which only inbox events have.
    static let commonFields = ["cursor", "event", "conversation", "at", "inbox"]

    /// Fields beyond the common ones.
    var fields: [String] {
        switch self {
        case .message: FieldSchema.fields(of: Message.self).map(\.name).filter { !Self.commonFields.contains($0) }
        case .messageState: ["message", "state", "stored"]
        case .messageDelivery: ["message", "member", "state"]
        case .attachmentProgress: ["message", "member", "percent"]
        case .messageExpired: ["message"]
        case .lifetimeProposed: ["lifetime", "attachments", "unopened", "timer", "mailbox", "ours", "proposal"]
        case .lifetimeAgreed: ["lifetime", "attachments", "unopened", "timer", "mailbox", "agreement", "automatic"]
        case .lifetimeSigned: ["proposal", "member"]
        case .lifetimeRejected: ["proposal", "reason"]
        case .lifetimeWithdrawn, .lifetimeExpired: ["proposal"]
        case .lifetimeReset, .lifetimeSuspended: ["previous"]
        case .memberJoined: ["member", "profile"]
        case .memberLeft, .joinRequested, .deletionReceipt, .peerOnline, .peerOffline: ["member"]
        case .joinFailed: ["errorType", "inviteTag", "title", "message"]
        case .invited: ["join", "from"]
        case .explosionScheduled, .explosionReminder: ["expiresAt"]
        case .inboxAwake: ["wakeReason"]
        case .joined, .exploded, .inboxAsleep, .locked, .unlocked: []
        case .gap: ["lost"]
        case .conversationUpdated: ["name", "locked"]
        case .groupConflict: ["version"]
        case .memberRemoved: ["member"]
        case .removed: []
        case .profileChanged: ["member", "profile"]
        case .messagesMissed: ["member", "count"]
        case .twoCopies: ["member", "ours"]
        case .codeEnded: ["number", "outcome"]
        }
    }

    /// The possible values of a field; empty when they are not enumerable.
    static func values(of field: String) -> [String] {
        switch field {
        case "state": Message.states
        case "lifetime", "attachments", "previous": Lifetime.allCases.map(\.rawValue)
        case "outcome": CodeOutcome.allCases.map(\.rawValue)
        case "timer": LifetimeTimer.allCases.map(\.rawValue)
        case "mailbox": MailboxConsent.allCases.filter { $0 != .no }.map(\.rawValue)
        case "stored", "ours", "automatic", "locked", "removed": ["true", "false"]
        default: []
        }
    }
}
