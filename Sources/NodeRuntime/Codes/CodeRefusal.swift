import Messaging
import Transport

/// Why a code cannot be made, or led to no invite.
package enum CodeRefusal: Error, Hashable, Sendable {
    case text(SpokenCode.Failure)
    case tooMany(limit: Int)
    /// The code is neither open nor among the last closed ones.
    case unknown
    /// No node on this machine's networks answered.
    case nobody(slot: UInt16)
    case ambiguous(slot: UInt16)
    case discoveryOff
    case notReached(host: String, DialFailure)
    case exchange(CodeFailure, slot: UInt16)
}
