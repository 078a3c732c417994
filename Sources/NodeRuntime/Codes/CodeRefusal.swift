import Messaging
import Transport

/// Why a code cannot be made, or led to no invite.
package enum CodeRefusal: Error, Hashable, Sendable {
    /// What was typed is no code.
    case text(SpokenCode.Failure)
    case tooMany(limit: Int)
    /// No such code is open, and it is not one of the last that were.
    case unknown
    /// No node on the networks of this machine has answered.
    case nobody(slot: UInt16)
    /// More than one has.
    case ambiguous(slot: UInt16)
    /// LAN discovery is turned off.
    case discoveryOff
    /// There is no connection to that machine.
    case notReached(host: String, DialFailure)
    case exchange(CodeFailure, slot: UInt16)
}
