import Control
import Messaging

extension Message {
    /// True for notices that this node wrote itself.
    var isOfNode: Bool { member == nil && from == "system" }
}

/// A conversation in the chat: the node's last answers, and the user's view.
struct Room {
    let id: String
    var conversation: Conversation { didSet { unreadCount = conversation.unread } }
    var lifetime: LifetimeStatus?
    var explosion: ExplosionStatus?
    /// Some messages around the position.
    private(set) var messages: [Message] = [] { didSet { keepPosition(oldValue) } }
    /// Our texts that no list of the node has shown yet; their state is ``sending`` until the node has answered.
    private(set) var unanswered: [Message] = []
    static let sending = "sending"
    /// True when no message is older than ``messages``, or newer.
    private(set) var isWhole = false
    private(set) var isAtEnd = false
    var position = Position.newest { didSet { if position == .newest { newBelow = 0 } } }
    /// The position to take when its messages are read.
    var goal: Position?
    var reading: Reading?
    /// Messages that came while the position was another one than the newest.
    var newBelow = 0
    /// The newest messages are on the screen, and ours come after them.
    var shownUnanswered: [Message] { position == .newest ? unanswered : [] }
    /// Markers of messages that expired on the screen.
    private(set) var faded: [Faded] = []
    /// Events that are not messages, newest last.
    private(set) var notes: [Note] = []
    private(set) var noteTotal = 0
    var unreadCount = 0
    var draft = LineEditor()
    var reply: ReplyTarget?
    /// The first message that was unread when the room was opened.
    var firstNew: HexID?
    /// An agreement that has ended, until the user reacts.
    var endedLifetime: Lifetime?
    var proposalChangedAt: Timestamp?
    var keptBefore: Lifetime?

    /// Milliseconds that the marker of an expired message stays.
    static let fadeTime: Int64 = 2_000
    private static let noteCount = 50

    /// Marker of an expired message, without its text.
    struct Faded {
        let message: HexID
        let sentAt: Timestamp
        let until: Int64
    }

    struct Note {
        let at: Timestamp
        let text: String
    }

    init(_ conversation: Conversation) {
        id = conversation.conversation
        self.conversation = conversation
        unreadCount = conversation.unread
    }

    var title: String { safe(conversation.alias ?? conversation.name ?? String(id.prefix(12))) }

    /// In a command: another room may have this room's name as its alias.
    var handle: String { conversation.alias.map(safe).flatMap { $0.contains("`") ? nil : $0 } ?? String(id.prefix(12)) }

    var isExploded: Bool { ["exploding", "exploded", "error"].contains(explosion?.state ?? "") }

    var explodesAt: Timestamp? { isExploded ? nil : conversation.expiresAt }

    var retention: Lifetime { lifetime?.lifetime ?? conversation.lifetime }

    func name(of member: String) -> String {
        if let name = explosion?.names?.first(where: { $0.member == member })?.name { return Words.name(name) }
        let known = conversation.members.first { $0.member == member }
        return Words.name(known?.profile ?? known?.peer ?? member)
    }

    var presence: String {
        conversation.members.map { "\(name(of: $0.member))\($0.online ? "●" : "○")" }.joined(separator: " ")
    }

    func message(_ id: HexID?) -> Message? { id.flatMap { id in messages.first { $0.message == id } } }

    /// Begins at the newest messages.
    mutating func open() {
        (position, goal) = (.newest, nil)
        unanswered.removeAll { $0.state != Self.sending }
        if !isAtEnd { messages = [] }
    }

    mutating func show(_ read: Reading, now: Timestamp) {
        if let goal { (position, self.goal) = (goal, nil) }
        messages = read.messages.filter { $0.reactsTo == nil }
        (isWhole, isAtEnd) = (read.isWhole, read.isAtEnd)
        if isAtEnd {
            unreadCount = 0
            unanswered.removeAll { one in
                one.state != Self.sending
                    || messages.contains { $0.member == nil && $0.text == one.text && $0.sentAt >= one.sentAt }
            }
        }
        expire(now: now)
        // An absent message may be older than those that were read.
        if let reply, isWhole, isAtEnd, message(reply.message) == nil { self.reply?.isGone = true }
    }

    /// The message is no longer on the node.
    mutating func drop(_ id: String) {
        let count = messages.count
        messages.removeAll { $0.message.description == id }
        if messages.count == count { position = .newest }
        goal = nil
    }

    /// When the position's message is gone, the message after it takes its place.
    private mutating func keepPosition(_ known: [Message]) {
        guard case .at(let id, _) = position, message(id) == nil else { return }
        let index = known.firstIndex { $0.message == id } ?? known.endIndex
        let next = known[index...].first { message($0.message) != nil } ?? messages.last
        position = next.map { .at($0.message, row: 0) } ?? .newest
    }

    mutating func send(_ text: String, to reply: ReplyTarget?, at: Timestamp) {
        var message = Message()
        (message.from, message.text, message.replyTo) = ("me", text, reply?.message.description)
        (message.sentAt, message.state) = (at, Self.sending)
        message.expiresAt = retention.milliseconds.map { at + $0 }
        unanswered.append(message)
    }

    /// - Parameter isSent: false removes the text, true waits for the list that shows it.
    mutating func answered(_ text: String, isSent: Bool) {
        guard let index = unanswered.firstIndex(where: { $0.state == Self.sending && $0.text == text }) else { return }
        if isSent { unanswered[index].state = "queued" } else { unanswered.remove(at: index) }
    }

    mutating func note(_ text: String, at: Timestamp) {
        notes.append(Note(at: at, text: text))
        noteTotal += 1
        if notes.count > Self.noteCount { notes.removeFirst() }
    }

    mutating func expire(now: Timestamp) {
        unanswered.removeAll { message in message.expiresAt.map { $0 <= now } ?? false }
        let over = messages.filter { message in message.expiresAt.map { $0 <= now } ?? false }
        if !over.isEmpty {
            messages.removeAll { message in message.expiresAt.map { $0 <= now } ?? false }
            let marks = over.map {
                Faded(message: $0.message, sentAt: $0.sentAt, until: ($0.expiresAt ?? now).milliseconds + Self.fadeTime)
            }
            faded += marks.filter { mark in !faded.contains { $0.message == mark.message } }
        }
        faded.removeAll { $0.until <= now.milliseconds }
        draft.expire(now: now.milliseconds)
        if let time = reply?.expiresAt, time <= now { reply?.isGone = true }
    }

    mutating func forget() {
        (messages, unanswered, faded, notes) = ([], [], [], [])
        (position, goal, reading) = (.newest, nil, nil)
        lifetime = nil
        endedLifetime = nil
        unreadCount = 0
        draft.forget()
        reply = nil
    }

    func nextChange(after now: Timestamp) -> Int64? {
        let ends = messages.compactMap(\.expiresAt?.milliseconds) + [explodesAt?.milliseconds].compactMap(\.self)
        let changes = ends.filter { $0 > now.milliseconds }.map { end in
            let left = end - now.milliseconds
            // The last minute of a message, and the whole countdown of an explosion, change every second.
            let step: Int64 = left <= 61_000 || end == explodesAt?.milliseconds ? 1_000 : 60_000
            return now.milliseconds + max(1, left % step == 0 ? step : left % step)
        }
        return (changes + faded.map(\.until)).min()
    }
}

/// The message being answered, without its text.
struct ReplyTarget: Hashable, Sendable {
    let message: HexID
    let expiresAt: Timestamp?
    /// The user is told before the text is sent.
    var isGone = false

    init(_ message: Message) {
        self.message = message.message
        expiresAt = message.expiresAt
    }
}

extension Room {
    /// The place of the screen in the messages.
    enum Position: Hashable {
        case first
        /// Follows new messages.
        case newest
        /// The screen begins this many rows after the first row of a message.
        case at(HexID, row: Int)
    }

    /// Reads the messages around a position, in as many requests as the node's answers need.
    struct Reading {
        let position: Position
        /// Number of messages on each side.
        private let count: Int
        private(set) var messages: [Message] = []
        private(set) var isWhole: Bool
        private(set) var isAtEnd: Bool
        private var goesBack: Bool
        private var left: Int

        init(_ position: Position, count: Int) {
            self.position = position
            self.count = count
            isWhole = position == .first
            isAtEnd = position == .newest
            goesBack = position != .first
            left = isWhole || isAtEnd ? 2 * count : count
        }

        /// The next request.
        func params(_ conversation: String) -> ReadParams {
            guard goesBack else {
                return ReadParams(conversation: conversation, first: left, since: messages.last?.message.description)
            }
            let middle: HexID? = if case .at(let id, _) = position { id } else { nil }
            let before = messages.first?.message ?? middle
            return ReadParams(conversation: conversation, last: left, before: before?.description)
        }

        /// - Returns: whether more requests are needed.
        mutating func take(_ answer: ReadResult) -> Bool {
            let isLast = answer.messages.count < left && answer.more != true
            left -= answer.messages.count
            if goesBack {
                messages = answer.messages + messages
                isWhole = isLast
            } else {
                messages += answer.messages
                isAtEnd = isLast
            }
            guard isLast || left <= 0 else { return true }
            guard goesBack, case .at = position else { return false }
            (goesBack, left) = (false, count + 1)
            return true
        }

        /// False when the user has moved on meanwhile.
        func answers(_ wanted: Position) -> Bool {
            if case .at(let id, _) = wanted, messages.contains(where: { $0.message == id }) { return true }
            return position == wanted
        }
    }
}
