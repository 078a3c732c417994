import Control
import Messaging
import NodeRuntime

/// What goes into one answer of a method whose results may be many: the client reads lines up to
/// `ControlLimits.responseByteCount`, and neither side is to hold more than that for a list.
struct AnswerPage {
    /// Most bytes of a page, by the sizes that are given; its first element may be larger.
    private static let byteCountLimit = 1 << 20
    private static let countLimit = 4_096

    private var byteCount = 0
    private var count = 0
    /// There is something that did not fit.
    private(set) var isFull = false

    /// - Parameter size: most bytes that it takes as JSON.
    /// - Returns: whether it goes on the page.
    mutating func take(byteCount size: Int) -> Bool {
        isFull = isFull || count > 0 && (byteCount + size > Self.byteCountLimit || count == Self.countLimit)
        guard !isFull else { return false }
        byteCount += size
        count += 1
        return true
    }
}

/// What the node's values take as JSON at most, found without writing them.
extension AnswerPage {
    /// Names of fields, identifiers, times, numbers and states of a message, and its type.
    private static let messageByteCount = 2_048
    /// The same of a reaction or a delivery.
    private static let partByteCount = 192
    /// The same of an entry of the outbox.
    private static let entryByteCount = 448
    /// Names of fields, identifiers, times and states of an explosion.
    private static let explosionByteCount = 1_024
    /// Of a member's name, with its id where that is shown.
    private static let nameByteCount = 6 * Limits.nameByteCount + 16

    static func largestByteCount(of read: Node.ReadMessage, _ conversation: ConversationStateMachine) -> Int {
        let content = read.message.content
        var count = messageByteCount + nameByteCount + jsonByteCount(content.displayText)
        if content.isUnknown { count += (content.payload.count + 2) / 3 * 4 }
        if content.attachment != nil { count += 6 * (Limits.fileNameByteCount + Limits.mediaTypeByteCount) }
        count += read.reactionCount * (partByteCount + nameByteCount + 6 * Limits.reactionByteCount)
        if read.message.sender == nil {
            let members = conversation.currentMembers.count + read.message.deliveries.count
            count += members * (partByteCount + nameByteCount)
        }
        return count
    }

    static func largestByteCount(of status: ExplosionStatus) -> Int {
        let memberCount = status.confirmed.count + status.waiting.count + (status.receipts?.count ?? 0)
        let nameByteCount = (status.names ?? []).reduce(0) { $0 + partByteCount + jsonByteCount($1.name) }
        return explosionByteCount + jsonByteCount(status.error ?? "") + memberCount * partByteCount + nameByteCount
    }

    static func largestByteCount(of entry: OutboxEntry) -> Int { entryByteCount + jsonByteCount(entry.to) }

    /// Of a string: a character takes six bytes where it is escaped, twelve beyond U+FFFF.
    private static func jsonByteCount(_ text: String) -> Int {
        text.utf8.reduce(0) { count, byte in
            switch byte {
            case 0..<0x20, 0x7F: count + 6
            case UInt8(ascii: "\""), UInt8(ascii: "\\"): count + 2
            case 0x80...: count + 3
            default: count + 1
            }
        }
    }
}
