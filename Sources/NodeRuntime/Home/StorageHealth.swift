import Messaging
import Store

/// What the disk has refused of late, and how much more of what peers send it may take. On the node's loop alone.
final class StorageHealth {
    /// Between two looks at a disk in trouble.
    static let probePause: Milliseconds = 5 * .second

    /// The error of the newest change that the store has refused. Whoever makes a change sets it to `nil` first.
    var refusal: StoreError?
    /// The newest failure of the disk, for `status`.
    private(set) var trouble: (error: StoreError, at: Timestamp)?
    /// When a disk in trouble was looked at last.
    private var probedAt: Timestamp?
    var room: StorageRoom

    init(room: StorageRoom) { self.room = room }

    func failed(_ error: StoreError, at now: Timestamp) {
        refusal = error
        trouble = (error, now)
    }

    /// As ``failed(_:at:)``, for a change that no user has asked for.
    func note(_ error: StoreError, at now: Timestamp) { trouble = (error, now) }

    /// A disk that was full or read-only is looked at again: whether it still is shows only when something new is written.
    func probe(_ store: Store, after pause: Milliseconds, now: Timestamp) {
        guard let trouble, now - max(probedAt ?? trouble.at, trouble.at) >= pause else { return }
        switch trouble.error.kind {
        case .full, .readOnly: break
        // What failed once may not fail everywhere: said for a minute.
        case .passphrase, .locked, .busy, .missing, .exists, .permission, .damaged, .resources, .misuse, .io:
            if now - trouble.at >= .minute { self.trouble = nil }
            return
        }
        probedAt = now
        do throws(StoreError) {
            try store.probe()
            self.trouble = nil
            room.look()
        } catch { self.trouble = (error, now) }
    }
}
