import Messaging
import Store

/// An inbox that the disk did not give when it was to be read.
struct UnreadInbox {
    /// Unless it has not been read since the start.
    var inbox: Inbox?
    var conversation: ConversationID?
    var error: any Error
    var retryAt: Timestamp
}

/// The inboxes of which the disk has given nothing: those that are read again, and those that are damaged. On the node's
/// loop alone.
final class UnreadInboxes {
    private var unread: [RowID: UnreadInbox] = [:]
    private var retries = DeadlineQueue<RowID>()
    /// Why each damaged inbox could not be loaded.
    private(set) var skipped: [String] = []

    var isEmpty: Bool { unread.isEmpty }

    subscript(row: RowID) -> UnreadInbox? { unread[row] }

    func add(_ inbox: UnreadInbox, at row: RowID) {
        unread[row] = inbox
        var queued: Timestamp?
        retries.set(row, inbox.retryAt, queued: &queued)
    }

    @discardableResult func remove(_ row: RowID) -> UnreadInbox? { unread.removeValue(forKey: row) }

    /// It is damaged: nothing reads it again.
    func skip(_ error: any Error) { skipped.append("\(error)") }

    /// Why something that is asked for may be missing; `nil` when the disk has given all there is.
    var error: NodeError? {
        switch unread.min(by: { $0.key < $1.key })?.value.error {
        case let error as StoreError: .store(error)
        case let error as NodeError: error
        default: nil
        }
    }

    /// Not after the next one is read again.
    var retryAt: Timestamp? { retries.next }

    /// Takes at most `count` of those that are read again by now; each is removed, or added anew.
    func takeDue(now: Timestamp, count: Int) -> [RowID] {
        retries.take(until: now, limit: count).filter { unread[$0.key]?.retryAt == $0.at }.map(\.key)
    }

    func rows(of conversation: ConversationID) -> [RowID] {
        unread.filter { $0.value.conversation == conversation }.keys.sorted()
    }

    func inbox(of client: ClientID) -> Inbox? { unread.values.lazy.compactMap(\.inbox).first { $0.client == client } }

    /// What is wrong with each, for people.
    var damage: [String] { skipped + unread.sorted { $0.key < $1.key }.map { "\($0.value.error)" } }
}
