/// Orders the proposals and agreements of a conversation: those of a later member list come first, those of one list by
/// epoch. (A ballot number as in Paxos, with the version of the member list as its high part.)
///
/// The creator signs the version of the member list, so no other member can move it. Epochs begin anew with each version:
/// whatever a member did to the epochs is over when it is removed.
package struct Ballot: Hashable, Sendable, Codable, Comparable {
    /// Version of the member list, from the creator's signed state.
    package var membership: UInt64
    /// Within that version: 1 or more.
    package var epoch: UInt64

    package init(membership: UInt64 = 0, epoch: UInt64 = 0) {
        self.membership = membership
        self.epoch = epoch
    }

    package static func < (left: Ballot, right: Ballot) -> Bool {
        left.membership != right.membership ? left.membership < right.membership : left.epoch < right.epoch
    }

    /// The epoch, if it counts under this member list; 0 otherwise.
    func epoch(under membership: UInt64) -> UInt64 { self.membership == membership ? epoch : 0 }
}

extension UInt64 {
    /// The sum, or the largest number there is.
    func saturatingAdd(_ other: UInt64) -> UInt64 {
        let (sum, overflow) = addingReportingOverflow(other)
        return overflow ? .max : sum
    }
}
