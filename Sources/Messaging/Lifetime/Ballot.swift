/// Orders proposals and agreements by version of the member list, then by epoch (a ballot number as in Paxos). Only the
/// creator raises the version. Epochs restart with each version, so a removed member's influence on them ends.
package struct Ballot: Hashable, Sendable, Codable, Comparable {
    /// Version of the member list, from the creator's signed state.
    package var membership: UInt64 = 0
    /// Within that version: 1 or more.
    package var epoch: UInt64 = 0

    package static func < (left: Ballot, right: Ballot) -> Bool {
        left.membership != right.membership ? left.membership < right.membership : left.epoch < right.epoch
    }

    /// The epoch, if it counts under this member list; 0 otherwise.
    func epoch(under membership: UInt64) -> UInt64 { self.membership == membership ? epoch : 0 }
}

extension UInt64 {
    func saturatingAdd(_ other: UInt64) -> UInt64 {
        let (sum, overflow) = addingReportingOverflow(other)
        return overflow ? .max : sum
    }
}
