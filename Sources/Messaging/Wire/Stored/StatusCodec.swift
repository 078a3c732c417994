import Cryptography

package struct MessageStatus: Hashable, Sendable {
    package var message: MessageID
    /// `nil`: unchanged.
    package var state: DeliveryState?
    /// At most one per member.
    package var said: [Delivery]

    package init(message: MessageID, state: DeliveryState? = nil, said: [Delivery] = []) {
        (self.message, self.state, self.said) = (message, state, said)
    }
}

/// The format of stored status records, one for each commit and inbox:
///
///     members (1) ‖ { key (33) }
///     ‖ { message id (16) ‖ state (1) ‖ deliveries (1)
///         ‖ { member (1) ‖ state (1) ‖ milliseconds since the epoch (8) } }
///
/// A member is an index into the keys. Numbers are little-endian.
extension StoredCodec {
    /// The index is the code; 0 is no state.
    static let states: [DeliveryState?] = [
        nil, .queued, .sent, .delivered, .expiredUndelivered, .cancelled, .received, .read, .receiving, .failed,
        .mailed,
    ]
    private static let statusLimit = 1_024
    private static let memberLimit = 255

    /// Encodes as many leading statuses as fit into one record, at least one.
    package static func encode(_ statuses: ArraySlice<MessageStatus>) -> (bytes: [UInt8], count: Int) {
        var members: [PublicKey] = []
        var entries: [UInt8] = []
        entries.reserveCapacity(statuses.count * (MessageID.byteCount + 12))
        var count = 0
        for status in statuses.prefix(statusLimit) {
            // A conversation has fewer members.
            let said = status.said.prefix(memberLimit)
            // Adds new members, unless the record would have too many.
            let known = members.count
            for delivery in said where !members.contains(delivery.member) { members.append(delivery.member) }
            guard members.count <= memberLimit else {
                members.removeLast(members.count - known)
                break
            }
            status.message.value.append(to: &entries)
            entries.append(code(status.state))
            entries.append(UInt8(said.count))
            for delivery in said {
                entries.append(UInt8(members.firstIndex(of: delivery.member) ?? 0))
                entries.append(code(delivery.state))
                entries.append(number: delivery.at.milliseconds)
            }
            count += 1
        }
        return ([UInt8(members.count)] + members.flatMap(\.bytes) + entries, count)
    }

    static func code(_ state: DeliveryState?) -> UInt8 { states.firstIndex(of: state).map { UInt8($0) } ?? 0 }

    package static func decodeStatuses(_ bytes: [UInt8]) throws(WireError) -> [MessageStatus] {
        var reader = StoredReader(bytes)
        var members: [PublicKey] = []
        for _ in 0..<(try reader.byte()) { members.append(try reader.key()) }
        var statuses: [MessageStatus] = []
        while !reader.isAtEnd {
            var status = MessageStatus(message: try reader.message(), state: try reader.state())
            for _ in 0..<(try reader.byte()) {
                let member = Int(try reader.byte())
                guard member < members.count, let state = try reader.state() else {
                    throw .malformed("status.delivery")
                }
                let at = Timestamp(milliseconds: try reader.number())
                status.said.append(Delivery(member: members[member], state: state, at: at))
            }
            statuses.append(status)
        }
        return statuses
    }
}
