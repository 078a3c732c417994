import Crypto
import Messaging

/// The hash of a file in transfer. Chunks are hashed on arrival while they come in order; the rest is read from the
/// archive once the file is complete.
final class Verification {
    /// Holds up to 64 of the last bytes; they are overwritten when the hasher is released.
    private(set) var hasher = SHA256Hasher()
    var next = 0
    /// Known once all chunks have arrived.
    var attachment: Attachment?
    /// A later attempt cancels the steps of an earlier one.
    var attempt: UInt64 = 0

    func restart() {
        hasher = SHA256Hasher()
        next = 0
    }
}
