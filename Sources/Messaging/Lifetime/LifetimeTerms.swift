/// Terms of an agreement: how long contents are kept, by kind and from which moment, and whether a mailbox may hold
/// them (Lifetime.md, "Terms").
package struct LifetimeTerms: Hashable, Sendable, Codable {
    package enum Timer: String, Hashable, Sendable, Codable, CaseIterable {
        case send
        case read
    }

    /// For texts, and for kinds without a lifetime of their own.
    package let lifetime: Lifetime
    /// For attachments; `nil`: as ``lifetime``.
    package let attachment: Lifetime?
    /// Unopened contents expire after this many milliseconds; `nil`: like opened ones.
    package let unopened: Milliseconds?
    package let timer: Timer
    package let mailbox: MailboxConsent

    /// An attachment lifetime equal to that of texts becomes `nil`.
    package init(
        _ lifetime: Lifetime, attachment: Lifetime? = nil, unopened: Milliseconds? = nil, timer: Timer = .send,
        mailbox: MailboxConsent = .no
    ) {
        self.lifetime = lifetime
        self.attachment = attachment == lifetime ? nil : attachment
        (self.unopened, self.timer, self.mailbox) = (unopened, timer, mailbox)
    }

    /// The terms without an agreement: memory only, no mailbox.
    package static let ephemeral = LifetimeTerms(.ephemeral)

    package static let unopenedRange: ClosedRange<Milliseconds> = .minute...30 * .day

    /// Whether it can be proposed. If nothing is kept, there is nothing to time, and nothing for a mailbox's disk.
    package var isValid: Bool {
        if let unopened, !Self.unopenedRange.contains(unopened) { return false }
        // A mailbox's disk may hold only kinds that members keep, and one slot holds contents of both kinds.
        if mailbox == .disk, lifetime == .ephemeral || attachment == .ephemeral { return false }
        return keepsSomething || unopened == nil && timer == .send
    }

    /// Whether it differs from the terms without an agreement.
    package var allowsSomething: Bool { keepsSomething || mailbox != .no }

    package var keepsSomething: Bool { lifetime != .ephemeral || (attachment ?? .ephemeral) != .ephemeral }

    package func lifetime(of kind: ContentKind) -> Lifetime {
        switch kind {
        case .text: lifetime
        case .attachment: attachment ?? lifetime
        }
    }

    package var unreadLimit: Milliseconds { unopened ?? Self.unopenedRange.upperBound }

    /// How long a receiver keeps an unopened content of this kind, in milliseconds from its sending; `nil`: not kept.
    package func unreadTime(of kind: ContentKind) -> Milliseconds? {
        lifetime(of: kind).milliseconds.map { length in
            switch timer {
            case .send: min(length, unopened ?? length)
            case .read: unreadLimit
            }
        }
    }

    /// The longest time that a content is kept, in milliseconds.
    package var longest: Milliseconds {
        let kept = max(lifetime, attachment ?? .ephemeral).milliseconds ?? 0
        return switch timer {
        case .send: kept
        case .read: kept == 0 ? 0 : unreadLimit + kept
        }
    }

    /// In the seed's words, such as `1 Day (attachments 7 Days, unopened 1 Hour, from reading)`.
    package var displayName: String {
        var more: [String] = []
        if let attachment { more.append("attachments \(attachment.displayName)") }
        if let unopened { more.append("unopened \(Self.name(unopened))") }
        if timer == .read { more.append("from reading") }
        if mailbox != .no { more.append("mailbox \(mailbox == .ram ? "in memory" : "on disk")") }
        return more.isEmpty ? lifetime.displayName : "\(lifetime.displayName) (\(more.joined(separator: ", ")))"
    }

    private static func name(_ time: Milliseconds) -> String {
        for (unit, name) in [(Milliseconds.day, "Day"), (.hour, "Hour"), (.minute, "Minute")] where time % unit == 0 {
            return "\(time / unit) \(name)\(time == unit ? "" : "s")"
        }
        return "\((time + .second - 1) / .second) Seconds"
    }
}

/// A node's own bound on how long it keeps contents. It shortens the agreed time, and never lengthens it.
package enum LifetimeCap: Hashable, Sendable, Codable {
    case none
    /// Not longer than this; ``Lifetime/ephemeral``: in memory only.
    case atMost(Lifetime)

    package init?(_ text: some StringProtocol) {
        if text == "none" {
            self = .none
        } else if let lifetime = Lifetime(rawValue: String(text)) {
            self = .atMost(lifetime)
        } else {
            return nil
        }
    }

    package var text: String {
        switch self {
        case .none: "none"
        case .atMost(let lifetime): lifetime.rawValue
        }
    }
}

/// Kinds with a lifetime of their own (Lifetime.md, "Terms").
package enum ContentKind: String, Hashable, Sendable, Codable, CaseIterable {
    /// Every content but a file.
    case text
    case attachment
}
