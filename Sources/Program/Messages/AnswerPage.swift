import Control
import Messaging
import NodeRuntime

/// A page of a list result. It bounds memory on both sides: the client reads lines up to
/// `ControlLimits.responseByteCount`.
struct AnswerPage {
    /// Largest page in bytes of JSON; its first element may be larger.
    private static let byteCountLimit = 1 << 20

    private let countLimit: Int
    private var byteCount = 0
    private var count = 0
    private(set) var isFull = false

    init(atMost countLimit: Int = 4_096) { self.countLimit = countLimit }

    /// - Parameter size: upper bound of the element's JSON, in bytes.
    /// - Returns: whether the element fits.
    mutating func take(byteCount size: Int) -> Bool {
        isFull = isFull || count > 0 && (byteCount + size > Self.byteCountLimit || count == countLimit)
        guard !isFull else { return false }
        byteCount += size
        count += 1
        return true
    }
}

/// Sort key of a list: a time, then an id.
struct ListPlace: Comparable, CustomStringConvertible {
    let at: Timestamp
    let id: String

    var description: String { "\(at.milliseconds)-\(id)" }

    static func < (one: Self, other: Self) -> Bool { (one.at, one.id) < (other.at, other.id) }
}

extension AnswerPage {
    /// - Parameters:
    ///   - all: sorted by their places.
    ///   - from: the `next` of the previous page; `nil` for the first page.
    static func list<Element, Shown>(
        _ all: [(Element, ListPlace)], from: String?, atMost countLimit: Int = 4_096, byteCount: (Shown) -> Int,
        show: (Element) -> Shown
    ) throws(ControlError) -> (shown: [Shown], next: String?) {
        let parts = from?.split(separator: "-", maxSplits: 1) ?? []
        let place = parts.count == 2 ? Int64(parts[0]).map { (Timestamp(milliseconds: $0), parts[1]) } : nil
        guard from == nil || place != nil else {
            throw ControlError(.usage, "`from` is not a position in the list", hint: "give the `next` of an answer")
        }
        let after = place.map { ListPlace(at: $0, id: String($1)) }
        var page = AnswerPage(atMost: countLimit)
        var shown: [Shown] = []
        var last: ListPlace?
        for (element, place) in all where after.map({ $0 < place }) ?? true {
            let one = show(element)
            guard page.take(byteCount: byteCount(one)) else { break }
            shown.append(one)
            last = place
        }
        return (shown, page.isFull ? last?.description : nil)
    }
}

/// Upper bounds of JSON sizes, computed without writing the JSON.
extension AnswerPage {
    /// A message's field names, ids, times, numbers, states and type.
    private static let messageByteCount = 2_048
    private static let partByteCount = 192
    private static let entryByteCount = 448
    private static let recordByteCount = 1_024
    /// A member's name, with its id.
    private static let nameByteCount = 6 * Limits.nameByteCount + 16

    static func largestByteCount(of read: Node.ReadMessage, _ conversation: Messaging.Conversation) -> Int {
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
        return recordByteCount + jsonByteCount(status.error ?? "") + memberCount * partByteCount + nameByteCount
    }

    static func largestByteCount(of conversation: Conversation) -> Int {
        let names = [conversation.alias, conversation.name, conversation.profile]
        return recordByteCount + names.reduce(0) { $0 + jsonByteCount($1 ?? "") }
            + conversation.members.reduce(0) {
                $0 + recordByteCount + jsonByteCount($1.profile ?? "") + jsonByteCount($1.peer ?? "")
            }
    }

    static func largestByteCount(of entry: OutboxEntry) -> Int { entryByteCount + jsonByteCount(entry.to) }

    /// Size of a string as JSON: an escaped character takes 6 bytes, beyond U+FFFF 12.
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
