/// What members agree on: how long contents are kept, by kind, and from when (section 6, point 12), and whether a mailbox
/// may hold them.
package struct LifetimeTerms: Hashable, Sendable, Codable {
    /// From when a lifetime counts.
    package enum Timer: String, Hashable, Sendable, Codable, CaseIterable {
        case send
        case read
    }

    /// Of texts, and of all that has no lifetime of its own.
    package let lifetime: Lifetime
    /// Of attachments; `nil`: as ``lifetime``.
    package let attachment: Lifetime?
    /// What nobody has opened goes after this long, in milliseconds; `nil`: no sooner than what was opened.
    package let unopened: Milliseconds?
    package let timer: Timer
    package let mailbox: MailboxConsent

    /// A lifetime of attachments that is that of texts is none of its own.
    package init(
        _ lifetime: Lifetime, attachment: Lifetime? = nil, unopened: Milliseconds? = nil, timer: Timer = .send,
        mailbox: MailboxConsent = .no
    ) {
        self.lifetime = lifetime
        self.attachment = attachment == lifetime ? nil : attachment
        self.unopened = unopened
        self.timer = timer
        self.mailbox = mailbox
    }

    /// Memory only, no mailbox: what holds without an agreement.
    package static let ephemeral = LifetimeTerms(.ephemeral)

    /// What ``unopened`` may be: 1 min to 30 d.
    package static let unopenedRange: ClosedRange<Milliseconds> = .minute...30 * .day

    /// Whether it is something that can be proposed: without anything kept there is nothing to count, and nothing for a
    /// mailbox's disk.
    package var isValid: Bool {
        if let unopened, !Self.unopenedRange.contains(unopened) { return false }
        // What is kept by nobody is for no disk, and one slot holds contents of both kinds.
        if mailbox == .disk, lifetime == .ephemeral || attachment == .ephemeral { return false }
        return keepsSomething || unopened == nil && timer == .send
    }

    /// Whether anything differs from what holds without an agreement.
    package var allowsSomething: Bool { keepsSomething || mailbox != .no }

    /// Whether anything is kept on a member's disk.
    package var keepsSomething: Bool { lifetime != .ephemeral || (attachment ?? .ephemeral) != .ephemeral }

    /// Whether nothing may be kept for longer than under `other`, nor be held by a mailbox that could not hold it there.
    package func isNoWider(than other: LifetimeTerms) -> Bool { longest <= other.longest && mailbox <= other.mailbox }

    /// The lifetime of contents of this kind.
    package func lifetime(of kind: ContentKind) -> Lifetime {
        switch kind {
        case .text: lifetime
        case .attachment: attachment ?? lifetime
        }
    }

    /// How long something that nobody opens may stay, in milliseconds.
    package var unreadLimit: Milliseconds { unopened ?? Self.unopenedRange.upperBound }

    /// How long a content of this kind stays with a receiver that does not open it, in milliseconds from its sending;
    /// `nil` for what is not kept.
    package func unreadTime(of kind: ContentKind) -> Milliseconds? {
        lifetime(of: kind).milliseconds.map { length in
            switch timer {
            case .send: min(length, unopened ?? length)
            case .read: unreadLimit
            }
        }
    }

    /// The longest that anything is kept under it, in milliseconds.
    package var longest: Milliseconds {
        let kept = max(lifetime, attachment ?? .ephemeral).milliseconds ?? 0
        return switch timer {
        case .send: kept
        case .read: kept == 0 ? 0 : unreadLimit + kept
        }
    }

    /// For people, in the seed's words: `1 Day`, `1 Day (attachments 7 Days, unopened 1 Hour, from reading)`,
    /// `1 Day (mailbox on disk)`.
    package var displayName: String {
        var more: [String] = []
        if let attachment { more.append("attachments \(attachment.displayName)") }
        if let unopened { more.append("unopened \(Self.name(unopened))") }
        if timer == .read { more.append("from reading") }
        switch mailbox {
        case .no: break
        case .ram: more.append("mailbox in memory")
        case .disk: more.append("mailbox on disk")
        }
        return more.isEmpty ? lifetime.displayName : "\(lifetime.displayName) (\(more.joined(separator: ", ")))"
    }

    private static func name(_ time: Milliseconds) -> String {
        for (unit, name) in [(Milliseconds.day, "Day"), (.hour, "Hour"), (.minute, "Minute")] where time % unit == 0 {
            return "\(time / unit) \(name)\(time == unit ? "" : "s")"
        }
        return "\((time + .second - 1) / .second) Seconds"
    }
}

/// A bound of one's own on how long anything is kept here. It shortens what was agreed, never lengthens it.
package enum LifetimeCap: Hashable, Sendable, Codable {
    /// As agreed.
    case none
    /// Not longer than this; ``Lifetime/ephemeral``: in memory only.
    case atMost(Lifetime)

    /// `nil` unless it is `none` or a lifetime.
    package init?(_ text: some StringProtocol) {
        if text == "none" {
            self = .none
        } else if let lifetime = Lifetime(rawValue: String(text)) {
            self = .atMost(lifetime)
        } else {
            return nil
        }
    }

    /// As people write it.
    package var text: String {
        switch self {
        case .none: "none"
        case .atMost(let lifetime): lifetime.rawValue
        }
    }
}
