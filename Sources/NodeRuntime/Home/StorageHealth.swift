import Messaging
import Store

/// Recent disk errors, and the room left for content of peers. On the node's loop alone.
final class StorageHealth {
    static let probePause: Milliseconds = 5 * .second

    /// The error of the newest refused change. Callers set it to `nil` before a change.
    var refusal: StoreError?
    /// The latest disk failure, for `status`.
    private(set) var trouble: (error: StoreError, at: Timestamp)?
    private var probedAt: Timestamp?
    var room: StorageRoom

    init(room: StorageRoom) { self.room = room }

    func failed(_ error: StoreError, at now: Timestamp) {
        refusal = error
        trouble = (error, now)
    }

    /// ``failed(_:at:)`` for a change that no user requested.
    func note(_ error: StoreError, at now: Timestamp) { trouble = (error, now) }

    /// Probes a full or read-only disk: only a new write shows whether it has recovered.
    func probe(_ store: Store, after pause: Milliseconds, now: Timestamp) {
        guard let trouble, now - max(probedAt ?? trouble.at, trouble.at) >= pause else { return }
        switch trouble.error.kind {
        case .full, .readOnly: break
        // A single failure may not recur: shown for a minute.
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
