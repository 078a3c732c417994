/// Why an inbox was woken (seed 001).
package enum WakeReason: String, Hashable, Sendable, Codable, CaseIterable {
    /// A user asked for something in it.
    case userInteraction
    /// A token came in: a member has something for it.
    case pushNotification
    /// It is among the most recently active, or its outbox is due.
    case activityRanking
    /// A join is under way in it.
    case pendingInvite
    /// It was chosen when the node started.
    case appLaunch
}

/// What keeps an inbox awake.
package struct InboxProtection: OptionSet, Hashable, Sendable, CustomStringConvertible {
    package let rawValue: UInt8
    package init(rawValue: UInt8) { self.rawValue = rawValue }

    /// Someone watches the conversation: it is open.
    package static let active = InboxProtection(rawValue: 1)
    /// A join is under way in it, or somebody is joining it now.
    package static let pendingInvite = InboxProtection(rawValue: 2)
    /// It holds contents in memory only that nobody has read.
    package static let unread = InboxProtection(rawValue: 4)
    /// It holds messages of ours in memory only that are not delivered.
    package static let undelivered = InboxProtection(rawValue: 8)

    package var description: String {
        var words: [String] = []
        if contains(.active) { words.append("it is being watched") }
        if contains(.pendingInvite) { words.append("a join is under way") }
        if contains(.unread) { words.append("it holds unread messages that are in memory only") }
        if contains(.undelivered) { words.append("it holds undelivered messages that are in memory only") }
        return words.isEmpty ? "nothing" : words.joined(separator: ", ")
    }
}
