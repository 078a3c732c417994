/// Whether contents for a member that is away may be held, sealed, by a third node: a term of the agreement, so all members
/// have signed it (Mailbox.md).
package enum MailboxConsent: String, Hashable, Sendable, Codable, CaseIterable, Comparable {
    case no
    /// In that node's memory and nowhere else.
    case ram
    /// Also on its disk.
    case disk

    private var rank: Int {
        switch self {
        case .no: 0
        case .ram: 1
        case .disk: 2
        }
    }

    package static func < (left: MailboxConsent, right: MailboxConsent) -> Bool { left.rank < right.rank }
}
