/// How long messages are kept (seed 004, "Message Lifetime Options").
package enum Lifetime: String, Sendable, Hashable, CaseIterable, Codable, Comparable {
    /// In memory only.
    case ephemeral
    case oneHour = "1h"
    case sixHours = "6h"
    case oneDay = "1d"
    case sevenDays = "7d"
    case thirtyDays = "30d"

    /// `nil` for ``ephemeral``.
    package var milliseconds: Milliseconds? {
        switch self {
        case .ephemeral: nil
        case .oneHour: .hour
        case .sixHours: 6 * .hour
        case .oneDay: .day
        case .sevenDays: 7 * .day
        case .thirtyDays: 30 * .day
        }
    }

    /// The text in system messages, as in the seed but for ``ephemeral``.
    package var displayName: String {
        switch self {
        case .ephemeral: "memory only"
        case .oneHour: "1 Hour"
        case .sixHours: "6 Hours"
        case .oneDay: "1 Day"
        case .sevenDays: "7 Days"
        case .thirtyDays: "30 Days"
        }
    }

    package static func < (left: Lifetime, right: Lifetime) -> Bool {
        (left.milliseconds ?? 0) < (right.milliseconds ?? 0)
    }
}

/// A node's standing answer to proposals.
package enum LifetimePolicy: Hashable, Sendable, Codable {
    case ask
    /// Accepts up to this lifetime and this use of a mailbox; asks for more.
    case acceptUpTo(Lifetime, mailbox: MailboxConsent = .no)
    case refuse

    /// Parses `ask`, `refuse`, or `accept-up-to:` and a lifetime, then `:ram`, `:disk` or nothing.
    package init?(_ text: some StringProtocol) {
        switch text {
        case "ask": self = .ask
        case "refuse": self = .refuse
        default:
            let parts = String(text).split(separator: Character(":"), omittingEmptySubsequences: false).map(String.init)
            guard parts.first == "accept-up-to", (2...3).contains(parts.count),
                let lifetime = Lifetime(rawValue: parts[1]),
                let mailbox = parts.count == 2 ? .no : MailboxConsent(rawValue: parts[2]),
                (mailbox == .no) == (parts.count == 2)
            else { return nil }
            self = .acceptUpTo(lifetime, mailbox: mailbox)
        }
    }

    package var text: String {
        switch self {
        case .ask: "ask"
        case .acceptUpTo(let lifetime, let mailbox):
            "accept-up-to:\(lifetime.rawValue)\(mailbox == .no ? "" : ":\(mailbox.rawValue)")"
        case .refuse: "refuse"
        }
    }

    /// Whether it accepts these terms without asking the user.
    package func accepts(_ terms: LifetimeTerms) -> Bool {
        switch self {
        case .acceptUpTo(let longest, let mailbox):
            terms.longest <= longest.milliseconds ?? 0 && terms.mailbox <= mailbox
        case .ask, .refuse: false
        }
    }
}
