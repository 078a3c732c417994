import Control

extension Message {
    /// Said by the node, here alone.
    var isOfNode: Bool { member == nil && from == "system" }
}

/// A conversation as the chat knows it: what the node last answered, and what a person has looked at.
struct Room {
    /// The conversation's id, in hex.
    let id: String
    var conversation: Conversation { didSet { unreadCount = conversation.unread } }
    var lifetime: LifetimeStatus?
    /// Of a scheduled explosion, or of one that has happened.
    var explosion: ExplosionStatus?
    /// In the order of their arrival.
    private(set) var messages: [Message] = []
    /// Messages whose time was over while they were on the screen.
    private(set) var faded: [Faded] = []
    /// What has happened here and is no message, newest last.
    private(set) var notes: [Note] = []
    /// How many there were, those that are gone included.
    private(set) var noteTotal = 0
    /// Messages of others that nobody was shown.
    var unreadCount = 0
    /// What is being written here.
    var draft = LineEditor()
    /// The message that the draft answers.
    var reply: ReplyTarget?
    /// How many of the newest were unread when the room was opened, until they are here.
    var newCount = 0
    /// The first of them.
    var firstNew: HexID?
    /// The agreement that has ended, until somebody has answered to it.
    var endedLifetime: LifetimeValue?
    /// When another proposal took the place of one that was on the screen.
    var proposalChangedAt: Timestamp?
    /// What was kept before the connection to the node was lost.
    var keptBefore: LifetimeValue?
    /// How many messages were asked for.
    var wantedCount = Room.pageCount
    /// There are no older messages than those that are here.
    var isWhole = false

    /// All messages are more than an answer of the node holds.
    var isCut = false

    /// Messages that are asked for at first.
    static let pageCount = 200
    /// How long a message whose time is over leaves a mark.
    static let fadeTime: Int64 = 2_000
    private static let noteCount = 50

    /// A message that was here a moment ago. Nothing of its text is kept.
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

    /// What it is called here.
    var title: String { ShownText.line(conversation.alias ?? conversation.name ?? String(id.prefix(12))) }

    var isExploded: Bool { ["exploding", "exploded", "error"].contains(explosion?.state ?? "") }

    /// When the whole conversation explodes.
    var explodesAt: Timestamp? { isExploded ? nil : conversation.expiresAt }

    /// How long what is said here is kept.
    var retention: LifetimeValue { lifetime?.lifetime ?? conversation.lifetime }

    func name(of member: String) -> String {
        if let name = explosion?.names?.first(where: { $0.member == member })?.name { return Words.name(name) }
        let known = conversation.members.first { $0.member == member }
        return Words.name(known?.profile ?? known?.peer ?? member)
    }

    func message(_ id: HexID?) -> Message? { id.flatMap { id in messages.first { $0.message == id } } }

    // MARK: Changes

    mutating func show(_ read: [Message], now: Timestamp) {
        messages = read.filter { $0.reactsTo == nil }
        unreadCount = 0
        if newCount > 0 { firstNew = messages.filter { $0.member != nil }.suffix(newCount).first?.message }
        newCount = 0
        expire(now: now)
        // One that is missing may be older than the messages that were asked for.
        if let reply, isWhole, !isCut, message(reply.message) == nil { self.reply?.isGone = true }
    }

    mutating func note(_ text: String, at: Timestamp) {
        notes.append(Note(at: at, text: text))
        noteTotal += 1
        if notes.count > Self.noteCount { notes.removeFirst() }
    }

    /// Takes away what must not be read any more.
    mutating func expire(now: Timestamp) {
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

    /// Nothing of the conversation is kept here.
    mutating func forget() {
        messages = []
        faded = []
        notes = []
        lifetime = nil
        endedLifetime = nil
        unreadCount = 0
        draft.forget()
        reply = nil
    }

    /// When something of it changes by itself, if nothing happens: a second, a minute or an hour of a countdown is over.
    func nextChange(after now: Timestamp) -> Int64? {
        let ends = messages.compactMap(\.expiresAt?.milliseconds) + [explodesAt?.milliseconds].compactMap(\.self)
        let changes = ends.filter { $0 > now.milliseconds }.map { end in
            let left = end - now.milliseconds
            // The last minute of a message, and the whole day before an explosion, are counted by the second.
            let step: Int64 = left <= 61_000 || end == explodesAt?.milliseconds ? 1_000 : 60_000
            return now.milliseconds + max(1, left % step == 0 ? step : left % step)
        }
        return (changes + faded.map(\.until)).min()
    }
}
