/// Whether a third node may keep, sealed, what comes for a member that is away.
package enum LifetimeMailbox: String, JSONChoice, Hashable, Sendable {
    case no
    /// In its memory and nowhere else.
    case ram
    /// On its disk, too.
    case disk
}

/// Terms beside the lifetime, as proposals and agreements have them.
package protocol LifetimeTermsFields {
    var lifetime: LifetimeValue { get }
    var attachments: LifetimeValue? { get }
    var unopened: Interval? { get }
    var timer: LifetimeTimer? { get }
    var mailbox: LifetimeMailbox? { get }
}

extension LifetimeTermsFields {
    /// What is agreed about mailboxes, for people; `nil` when nothing goes to one.
    package var mailboxWords: String? { (mailbox ?? .no).words }
}

extension LifetimeMailbox {
    /// For people; `nil` for ``no``.
    package var words: String? {
        switch self {
        case .no: nil
        case .ram: "mailbox in memory"
        case .disk: "mailbox on disk"
        }
    }
}
