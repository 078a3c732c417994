import Messaging
import Store

struct UnreadInbox {
    /// `nil` if it has not been read since the start.
    var inbox: Inbox?
    var conversation: ConversationID?
    var error: any Error
    var retryAt: Timestamp
}

/// Unreadable inboxes: those to retry, and damaged ones. On the node's loop alone.
final class UnreadInboxes {
    private var unread: [RowID: UnreadInbox] = [:]
    private var retries = DeadlineQueue<RowID>()
    private(set) var skipped: [String] = []

    var isEmpty: Bool { unread.isEmpty }

    subscript(row: RowID) -> UnreadInbox? { unread[row] }

    func add(_ inbox: UnreadInbox, at row: RowID) {
        unread[row] = inbox
        var queued: Timestamp?
        retries.set(row, inbox.retryAt, queued: &queued)
    }

    @discardableResult func remove(_ row: RowID) -> UnreadInbox? { unread.removeValue(forKey: row) }

    /// The inbox is damaged; there is no retry.
    func skip(_ error: any Error) { skipped.append("\(error)") }

    /// Why a requested item may be missing; `nil` if all inboxes are readable.
    var error: NodeError? {
        switch unread.min(by: { $0.key < $1.key })?.value.error {
        case let error as StoreError: .store(error)
        case let error as NodeError: error
        default: nil
        }
    }

    /// No later than the next retry.
    var retryAt: Timestamp? { retries.next }

    /// Takes at most `count` due retries. The caller removes each, or adds it again.
    func takeDue(now: Timestamp, count: Int) -> [RowID] {
        retries.take(until: now, limit: count).filter { unread[$0.key]?.retryAt == $0.at }.map(\.key)
    }

    func rows(of conversation: ConversationID) -> [RowID] {
        unread.filter { $0.value.conversation == conversation }.keys.sorted()
    }

    func inbox(of client: ClientID) -> Inbox? { unread.values.lazy.compactMap(\.inbox).first { $0.client == client } }

    var damage: [String] { skipped + unread.sorted { $0.key < $1.key }.map { "\($0.value.error)" } }
}
