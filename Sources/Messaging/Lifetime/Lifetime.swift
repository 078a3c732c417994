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

    /// As the seed's texts have it.
    package var displayName: String {
        switch self {
        case .ephemeral: "Delete on Leave (Ephemeral)"
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

/// One's own standing answer to proposals.
package enum LifetimePolicy: Hashable, Sendable, Codable {
    /// Ask the user.
    case ask
    /// Accept up to this lifetime without asking; ask for a longer one.
    case acceptUpTo(Lifetime)
    /// Reject every proposal.
    case refuse

    /// `nil` unless it is `ask`, `refuse` or `accept-up-to:` and a lifetime.
    package init?(_ text: some StringProtocol) {
        switch text {
        case "ask": self = .ask
        case "refuse": self = .refuse
        default:
            let prefix = "accept-up-to:"
            guard text.hasPrefix(prefix), let lifetime = Lifetime(rawValue: String(text.dropFirst(prefix.count)))
            else { return nil }
            self = .acceptUpTo(lifetime)
        }
    }

    /// As people write it.
    package var text: String {
        switch self {
        case .ask: "ask"
        case .acceptUpTo(let lifetime): "accept-up-to:\(lifetime.rawValue)"
        case .refuse: "refuse"
        }
    }

    /// The narrowest policy that accepts these terms; `nil` when they may keep something for longer than any lifetime.
    package static func accepting(_ terms: LifetimeTerms) -> LifetimePolicy? {
        Lifetime.allCases.map { .acceptUpTo($0) }.first { $0.accepts(terms) }
    }

    /// Whether it answers a proposal of these terms with yes, without asking: nothing would be kept for longer than it
    /// says.
    package func accepts(_ terms: LifetimeTerms) -> Bool {
        switch self {
        case .acceptUpTo(let longest): terms.longest <= longest.milliseconds ?? 0
        case .ask, .refuse: false
        }
    }
}
