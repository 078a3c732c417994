/// Whether a third node may hold sealed contents for an absent member. All members sign it as a term of the agreement
/// (Mailbox.md).
package enum MailboxConsent: String, Hashable, Sendable, Codable, CaseIterable, Comparable {
    case no
    /// In the memory of that node only.
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
