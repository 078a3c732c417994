/// Whether a mailbox may keep sealed contents for an offline member.
package enum LifetimeMailbox: String, JSONChoice, Hashable, Sendable {
    case no
    /// In memory only.
    case ram
    /// On disk too.
    case disk
}

/// The terms that proposals and agreements share.
package protocol LifetimeTermsFields {
    var lifetime: LifetimeValue { get }
    var attachments: LifetimeValue? { get }
    var unopened: Interval? { get }
    var timer: LifetimeTimer? { get }
    var mailbox: LifetimeMailbox? { get }
}

extension LifetimeTermsFields {
    /// Text for people; `nil` without a mailbox.
    package var mailboxWords: String? { (mailbox ?? .no).words }
}

extension LifetimeMailbox {
    /// Text for people; `nil` for ``no``.
    package var words: String? {
        switch self {
        case .no: nil
        case .ram: "mailbox in memory"
        case .disk: "mailbox on disk"
        }
    }
}
