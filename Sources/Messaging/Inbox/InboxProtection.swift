/// Why an inbox was woken (seed 001).
package enum WakeReason: String, Hashable, Sendable, Codable, CaseIterable {
    case userInteraction
    /// A routing token of it was shown, or its mailbox holds something: a member has something to deliver.
    case pushNotification
    /// It is among the most recently active, or its outbox is due.
    case activityRanking
    /// A join is under way in it.
    case pendingInvite
    /// Chosen at the start of the node.
    case appLaunch
}

/// Reasons against putting an inbox to sleep.
package struct InboxProtection: OptionSet, Hashable, Sendable, CustomStringConvertible {
    package let rawValue: UInt8
    package init(rawValue: UInt8) { self.rawValue = rawValue }

    package static let active = InboxProtection(rawValue: 1)
    /// Also while a joiner is being admitted.
    package static let pendingInvite = InboxProtection(rawValue: 2)
    package static let unread = InboxProtection(rawValue: 4)
    package static let undelivered = InboxProtection(rawValue: 8)

    package var description: String {
        var words: [String] = []
        if contains(.active) { words.append("it is being watched") }
        if contains(.pendingInvite) { words.append("a join is under way") }
        if contains(.unread) { words.append("it holds unread messages that are memory only") }
        if contains(.undelivered) { words.append("it holds undelivered messages that are memory only") }
        return words.isEmpty ? "nothing" : words.joined(separator: ", ")
    }
}
