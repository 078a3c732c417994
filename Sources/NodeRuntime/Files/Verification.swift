import Crypto
import Messaging

/// The hash of a file that is on its way. Chunks are hashed as they come, as long as they come in order; the others are
/// read from the archive when all are here.
final class Verification {
    /// The hasher holds up to 64 of the bytes hashed last. They are overwritten when it goes.
    private(set) var hasher = SHA256Hasher()
    /// The chunk that is hashed next.
    var next = 0
    /// Known once all chunks are here.
    var attachment: Attachment?
    /// A later attempt makes the steps of an earlier one void.
    var attempt: UInt64 = 0

    /// Forgets all that was hashed: the next chunk is the first.
    func restart() {
        hasher = SHA256Hasher()
        next = 0
    }
}
