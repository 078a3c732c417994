/// Whether a third node may hold sealed contents for an absent member. All members sign it as a term of the agreement
/// (Mailbox.md).
package enum MailboxConsent: String, Hashable, Sendable, Codable, CaseIterable, Comparable {
    case no
    /// In the memory of that node only.
    case ram
    /// Also on its disk.
    case disk

    package static func < (left: MailboxConsent, right: MailboxConsent) -> Bool {
        left != right && (left == .no || right == .disk)
    }
}
