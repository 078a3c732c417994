import Messaging
import Primitives

/// What was learned of one message after it was stored.
package struct MessageStatus: Hashable, Sendable {
    package var message: MessageID
    /// `nil`: the state is what it was.
    package var state: DeliveryState?
    /// One of each member.
    package var said: [Delivery]

    package init(message: MessageID, state: DeliveryState? = nil, said: [Delivery] = []) {
        self.message = message
        self.state = state
        self.said = said
    }
}

/// Status records of the store: what one commit has learned of the messages of one inbox.
///
///     members (1) ‖ { key (33) }
///     ‖ { message id (16) ‖ state (1) ‖ deliveries (1) ‖ { member (1) ‖ state (1) ‖ milliseconds since the epoch (8) } }
///
/// A member is an index into the keys. Numbers are little-endian.
extension StoredCodec {
    /// By their codes; 0 is no state.
    private static let states: [DeliveryState?] = [
        nil, .queued, .sent, .delivered, .expiredUndelivered, .cancelled, .received, .read, .receiving, .failed,
    ]
    /// Most statuses of one record.
    private static let statusLimit = 1_024
    private static let memberLimit = 255

    /// Encodes statuses from the beginning of a list, as many as one record takes: one at least.
    package static func encode(_ statuses: ArraySlice<MessageStatus>) -> (bytes: [UInt8], count: Int) {
        var members: [PublicKey] = []
        var numbers: [PublicKey: UInt8] = [:]
        var entries: [UInt8] = []
        var count = 0
        for status in statuses.prefix(statusLimit) {
            // A conversation has fewer members than that.
            let said = status.said.prefix(memberLimit)
            let new = said.map(\.member).filter { numbers[$0] == nil }
            guard members.count + new.count <= memberLimit else { break }
            for member in new {
                numbers[member] = UInt8(members.count)
                members.append(member)
            }
            entries += status.message.bytes
            entries += [code(status.state), UInt8(said.count)]
            for delivery in said {
                entries += [numbers[delivery.member] ?? 0, code(delivery.state)]
                withUnsafeBytes(of: delivery.at.milliseconds.littleEndian) { entries += $0 }
            }
            count += 1
        }
        return ([UInt8(members.count)] + members.flatMap(\.bytes) + entries, count)
    }

    private static func code(_ state: DeliveryState?) -> UInt8 {
        states.firstIndex(of: state).map { UInt8($0) } ?? 0
    }

    package static func decodeStatuses(_ bytes: [UInt8]) throws(WireError) -> [MessageStatus] {
        var rest = bytes[...]
        func take(_ count: Int) throws(WireError) -> ArraySlice<UInt8> {
            guard count <= rest.count else { throw .malformed("status") }
            defer { rest = rest.dropFirst(count) }
            return rest.prefix(count)
        }
        func byte() throws(WireError) -> Int {
            guard let byte = rest.popFirst() else { throw .malformed("status") }
            return Int(byte)
        }
        func state() throws(WireError) -> DeliveryState? {
            let code = try byte()
            guard code < states.count else { throw .malformed("status.state") }
            return states[code]
        }
        var members: [PublicKey] = []
        for _ in 0..<(try byte()) {
            guard let key = PublicKey(unchecked: try take(PublicKey.byteCount)) else {
                throw .malformed("status.member")
            }
            members.append(key)
        }
        var statuses: [MessageStatus] = []
        while !rest.isEmpty {
            guard let id = MessageID(try take(MessageID.byteCount)) else { throw .malformed("status.message") }
            var status = MessageStatus(message: id, state: try state())
            for _ in 0..<(try byte()) {
                let member = try byte()
                guard member < members.count, let state = try state() else { throw .malformed("status.delivery") }
                let time = try take(8).reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
                let at = Timestamp(milliseconds: Int64(bitPattern: time))
                status.said.append(Delivery(member: members[member], state: state, at: at))
            }
            statuses.append(status)
        }
        return statuses
    }
}
