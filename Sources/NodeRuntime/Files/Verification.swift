import Crypto
import Messaging

/// A file whose hash is being computed: of what comes in order while it comes, of the rest from the archive when all is
/// here.
final class Verification {
    /// It has the last bytes that were hashed until it goes.
    private(set) var hasher = BLAKE2bHasher()
    /// The chunk that is hashed next.
    var next = 0
    /// Known once all chunks are here.
    var attachment: Attachment?
    /// A later attempt makes the steps of an earlier one void.
    var attempt: UInt64 = 0

    /// From the first chunk on again.
    func restart() {
        hasher = BLAKE2bHasher()
        next = 0
    }
}
