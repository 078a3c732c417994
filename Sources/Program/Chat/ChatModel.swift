import Control
import Messaging

/// The chat without terminal, socket or clock: inputs change its state and return effects, and ``picture(_:)`` draws
/// it.
///
/// The node's state is authoritative. An event marks a part as changed, and the model requests that part again.
struct ChatModel {
    enum Overlay {
        case help
        case text(title: String, lines: [String])
        /// `url` is the text for a QR code.
        case invite(title: String, lines: [String], url: String)
        case code([String])
        case image(message: String, title: String, rows: [Row])
    }

    /// The meaning of the keys while the storage is locked.
    enum Lock: Equatable {
        /// Text is dropped, since the user may not have seen the lock; the Enter after it only says so. Enter on an
        /// empty line unlocks.
        case closed(hasDropped: Bool)
        case asking
        /// Keys are dropped until the node answers.
        case unlocking
    }

    enum Question {
        case explode(room: String, params: ExplodeParams, isScheduled: Bool)
        case leave(room: String)
        /// A paste with several lines or many bytes.
        case paste(String)
        case reaction(message: String)
        /// The user types their name; then `line`, `/create` or `/join`, runs.
        case name(line: String)
        case invitation(JoinStatus)
    }

    /// The user has no name in `config.json` and was not asked yet.
    var asksName: Bool
    var ownName: String?
    /// Lists the paths with this prefix; a directory ends with a slash.
    let paths: @Sendable (String) -> [String]
    var isQuitAsked = false
    var rooms: [Room] = []
    var joins: [JoinStatus] = []
    /// The room on the screen; `nil` for the list.
    var currentID: String?
    /// The room to open first, as named on the command line.
    var wantedRoom: String?
    var listIndex = 0
    private var listDraft = LineEditor()
    var selection: HexID?
    /// `nil` while the storage is open. The unlock clears the input line, which may hold a part of the passphrase.
    var lock: Lock? { didSet { if lock == nil, oldValue != nil { forgetList() } } }
    var isLocked: Bool { lock != nil }
    /// The screen is below ``smallest``, so keys are ignored.
    var isTooSmall = false
    /// 80 and 24 until the terminal reports its size.
    var size = Picture.Size(columns: 80, rows: 24)
    var overlay: Overlay? { didSet { overlayScroll = 0 } }
    var overlayScroll = 0
    var search: Search?
    /// The plain chat shows no old page: it prints what it finds.
    var isPlain = false
    var question: Question?
    /// A message for the user, until the next key, ``noticeTime`` at most: it hides the lifetime of the next text.
    var notice: (text: String, isFailure: Bool)? { didSet { (isNoticePassing, noticedAt) = (false, now) } }
    private(set) var isNoticePassing = false
    private var noticedAt: Timestamp
    private static let noticeTime: Int64 = 5_000
    var lostConnection: String?
    var now: Timestamp
    let calendar: LocalCalendar
    let makeQRCode: @Sendable (String) -> [String]?

    /// True on a new connection, until the visible room is refreshed.
    private var isNew = false
    /// Unanswered requests and their times; dirty when the state has changed and the request must be repeated.
    private var pending: [ChatRequest: (at: Timestamp, isDirty: Bool)] = [:]
    /// Conversations on the pages of the list so far.
    private var listed: [Conversation] = []
    /// The node's process, if known.
    var process: Int32?
    /// Milliseconds after which a node that owes an answer counts as hanging.
    static let answerTime: Int64 = 1_500
    /// The time of the oldest request or text that the node has not answered.
    var unansweredSince: Timestamp? {
        guard lostConnection == nil else { return nil }
        let texts = rooms.flatMap(\.unanswered).filter { $0.state == Room.sending }
        return (pending.values.map(\.at) + texts.map(\.sentAt)).min()
    }
    var isSilent: Bool { unansweredSince.map { now - $0 >= Self.answerTime } ?? false }
    var silence: String {
        "\(process.map { "process \($0)" } ?? "the node") does not answer: it may be stopped, or its disk hangs"
    }

    /// - Parameter room: opened first; `nil` for the list.
    init(
        room: String?, now: Timestamp, calendar: @escaping LocalCalendar, asksName: Bool = false,
        paths: @escaping @Sendable (String) -> [String] = { _ in [] },
        makeQRCode: @escaping @Sendable (String) -> [String]? = { _ in nil }
    ) {
        self.asksName = asksName
        self.paths = paths
        self.makeQRCode = makeQRCode
        wantedRoom = room
        (self.now, noticedAt) = (now, now)
        self.calendar = calendar
    }

    /// The first requests of a connection. The subscription comes first, so that no change is missed. A lock lasts
    /// until the node has listed the conversations.
    mutating func begin() -> [ChatEffect] {
        lostConnection = nil
        if isNoticePassing { notice = nil }
        pending = [:]
        isNew = true
        // The node may have restarted, so its agreements may have ended.
        for index in rooms.indices {
            if rooms[index].retention != .ephemeral { rooms[index].keptBefore = rooms[index].retention }
            rooms[index].lifetime = nil
            rooms[index].reading = nil
        }
        return [.call(.subscription, EventMethods.subscribe, .init(marksRead: false))] + ask(.conversations)
            + ask(.joins)
    }

    mutating func say(_ text: String) -> [ChatEffect] {
        if isLocked { return refuseLocked() }
        return text.contains { !$0.isWhitespace } ? send(text) : []
    }

    private mutating func refuseLocked() -> [ChatEffect] {
        refuse("not done, the storage is locked: `mayfly unlock` opens it")
    }

    mutating func refuse(_ why: String) -> [ChatEffect] {
        notice = (why, true)
        return []
    }

    static let chooseFirst = "choose a conversation first: Alt-1, or Enter on its line"

    func act<Method: ControlMethod>(_ action: ChatRequest.Action, _ method: Method, _ params: Method.Params)
        -> [ChatEffect]
    { [.call(.action(action), method, params)] }

    /// Why the last text was not sent.
    var refusal: String? { notice.flatMap { $0.isFailure ? $0.text : nil } }

    mutating func enter(line: String) -> [ChatEffect] {
        if isLocked { return refuseLocked() }
        // The plain chat does not show a pending reply, so it must not apply to this line.
        if let currentID { change(currentID) { $0.reply = nil } }
        editor.set(line)
        return press(.enter)
    }

    mutating func handle(_ input: ChatInput) -> [ChatEffect] {
        switch input {
        case .key(let key): return unlessLost { $0.press(key) }
        case .event(let event): return happened(event)
        case .answer(let request, let answer): return answered(request, answer)
        case .dropped: return begin()
        case .resized(let size):
            self.size = size
            isTooSmall = size.columns < Self.smallest.columns || size.rows < Self.smallest.rows
            return []
        case .said(let text):
            if !isLocked { notice = (safe(text), false) }
            return []
        case .failed(let error):
            if !isLocked { notice = (words(error), true) }
            return []
        case .image(let id, let message, let title, let rows):
            show(image: rows, of: message, title: title, in: id)
            return []
        case .disconnected(let why):
            // Repeated on each attempt, so a later notice stays.
            if lostConnection == nil { notice = nil }
            lostConnection = why
            return []
        case .tick:
            if notice != nil, now - noticedAt >= Self.noticeTime { notice = nil }
            for index in rooms.indices { rooms[index].expire(now: now) }
            listDraft.expire(now: now.milliseconds)
            dropSelection()
            return []
        }
    }

    /// Without a node, a key that needs one only shows an error; the state stays unchanged.
    private mutating func unlessLost(_ body: (inout ChatModel) -> [ChatEffect]) -> [ChatEffect] {
        guard let lostConnection else { return body(&self) }
        var changed = self
        let effects = body(&changed)
        let needsNode = effects.contains { effect in
            switch effect {
            case .call(.action, _, _), .upload, .save, .preview: true
            default: false
            }
        }
        if needsNode {
            sayUntilChange("not done, there is no node: \(lostConnection)", isFailure: true)
            return []
        }
        self = changed
        return effects
    }

    var nextChange: Int64? {
        let shown =
            room.map { $0.nextChange(after: now) }
            ?? rooms.compactMap { $0.explodesAt == nil ? nil : now.milliseconds + 1_000 }.min()
        let ends = [
            shown, notice.map { _ in noticedAt.milliseconds + Self.noticeTime },
            isSilent ? nil : unansweredSince.map { $0.milliseconds + Self.answerTime },
        ]
        return ends.compactMap(\.self).min()
    }

    // MARK: Rooms

    /// Each room has its own input line, and so has the list.
    var editor: LineEditor {
        get { room?.draft ?? listDraft }
        set {
            guard let id = currentID, index(of: id) != nil else {
                listDraft = newValue
                return
            }
            change(id) { $0.draft = newValue }
        }
    }

    mutating func forgetList() { listDraft.forget() }

    var room: Room? { currentID.flatMap { id in rooms.first { $0.id == id } } }

    func index(of id: String) -> Int? { rooms.firstIndex { $0.id == id } }

    mutating func change(_ id: String, _ body: (inout Room) -> Void) {
        if let index = index(of: id) { body(&rooms[index]) }
    }

    mutating func open(_ id: String?) -> [ChatEffect] {
        if let left = currentID, left != id { change(left) { $0.firstNew = nil } }
        currentID = id
        selection = nil
        search = nil
        overlay = nil
        question = nil
        guard let id else { return [] }
        change(id) { $0.open() }
        // Before the request that marks them as read.
        return (room(id)?.unreadCount ?? 0 > 0 ? ask(.firstNew(id)) : []) + refresh(id)
    }

    mutating func refresh(_ id: String) -> [ChatEffect] {
        if room(id)?.isExploded ?? false { return ask(.explosion(id)) }
        return ask(.messages(id)) + ask(.lifetime(id)) + ask(.conversation(id))
    }

    func room(_ id: String) -> Room? { rooms.first { $0.id == id } }

    // MARK: Asking

    /// Requests a part of the node's state. A request in progress is repeated after its answer.
    mutating func ask(_ request: ChatRequest) -> [ChatEffect] {
        if pending[request] != nil {
            pending[request]?.isDirty = true
            return []
        }
        if case .messages(let id) = request, room(id) == nil { return [] }
        pending[request] = (now, false)
        switch request {
        case .conversations:
            listed = []
            return [.call(request, ConversationMethods.list, .init())]
        case .joins: return [.call(request, JoinMethods.list, Nothing())]
        case .messages(let id):
            // Some screens on each side, so that the next page is there when it is wanted.
            let count = max(100, 2 * size.rows)
            change(id) { $0.reading = $0.reading ?? Room.Reading($0.goal ?? $0.position, count: count) }
            guard let params = room(id)?.reading?.params(id) else { return [] }
            return [.call(request, MessageMethods.read, params)]
        case .firstNew(let id):
            return [
                .call(request, MessageMethods.read, .init(conversation: id, first: 1, unread: true, marksRead: false))
            ]
        case .search(let id):
            let (words, before) = (search?.words, search?.before?.description)
            return [
                .call(request, MessageMethods.read, .init(conversation: id, last: 1, before: before, containing: words))
            ]
        case .conversation(let id): return [.call(request, ConversationMethods.show, .init(conversation: id))]
        case .lifetime(let id): return [.call(request, LifetimeMethods.show, .init(conversation: id))]
        case .explosion(let id): return [.call(request, ExplodeMethods.status, .init(conversation: id))]
        case .subscription, .action: preconditionFailure("made where they are needed")
        }
    }

    private mutating func answered(_ request: ChatRequest, _ answer: Result<JSONValue, ControlError>) -> [ChatEffect] {
        let isDirty = pending.removeValue(forKey: request)?.isDirty ?? false
        if isLocked, case .success = answer {
            // Other answers predate the lock, or come before the event that ends it.
            guard isNew, request == .conversations else { return [] }
            (lock, notice) = (nil, nil)
        }
        var effects: [ChatEffect]
        switch answer {
        case .success(let value):
            do throws(JSONMismatch) { effects = try take(value, for: request) } catch {
                notice = ("the node's answer cannot be understood: `\(error.field)` \(error.message)", true)
                effects = []
            }
        case .failure(let error): effects = failed(request, error)
        }
        if isDirty { effects += ask(request) }
        return effects
    }

    private mutating func take(_ value: JSONValue, for request: ChatRequest) throws(JSONMismatch) -> [ChatEffect] {
        switch request {
        case .subscription: return []
        case .conversations:
            let page = try value.decoded(as: ConversationListResult.self)
            listed += page.conversations
            if let next = page.next {
                pending[request] = (now, false)
                return [.call(request, ConversationMethods.list, .init(from: next))]
            }
            defer { listed = [] }
            return take(listed)
        case .joins:
            joins = try value.decoded(as: JoinListResult.self).joins.filter { $0.state == .joining || $0.isAsking }
            return []
        case .messages(let id):
            let read = try value.decoded(as: ReadResult.self)
            guard var reading = room(id)?.reading else { return [] }
            let isCut = currentID == id && reading.take(read)
            change(id) { $0.reading = isCut ? reading : nil }
            return isCut ? ask(request) : show(reading, in: id)
        case .firstNew(let id):
            let first = try value.decoded(as: ReadResult.self).messages.first?.message
            if currentID == id { change(id) { $0.firstNew = first } }
            return []
        case .search(let id): return searched(try value.decoded(as: ReadResult.self), in: id)
        case .conversation(let id):
            let conversation = try value.decoded(as: Conversation.self)
            change(id) { $0.conversation = conversation }
            return conversation.expiresAt == nil ? [] : ask(.explosion(id))
        case .lifetime(let id):
            let lifetime = try value.decoded(as: LifetimeStatus.self)
            let now = now
            change(id) { room in
                if let shown = room.lifetime?.proposal?.id, shown != lifetime.proposal?.id {
                    room.proposalChangedAt = now
                }
                room.lifetime = lifetime
                if lifetime.lifetime == .ephemeral, let before = room.keptBefore { room.endedLifetime = before }
                room.keptBefore = nil
            }
            return []
        case .explosion(let id):
            let status = try value.decoded(as: ExplosionStatus.self)
            change(id) { room in
                let names =
                    room.explosion?.names
                    ?? room.conversation.members.map { NamedMember(member: $0.member, name: room.name(of: $0.member)) }
                room.explosion = status
                if room.explosion?.names == nil { room.explosion?.names = names }
                if room.isExploded { room.forget() }
            }
            return []
        case .action(let action): return try done(action, value)
        }
    }

    private mutating func failed(_ request: ChatRequest, _ error: ControlError) -> [ChatEffect] {
        if error.kind == .locked {
            isNew = false  // The event of the unlock asks again.
            switch request {
            case .subscription, .action: break
            case .conversations, .joins, .messages, .firstNew, .search, .conversation, .lifetime, .explosion:
                return locked()
            }
        }
        switch request {
        case .messages(let id), .conversation(let id), .lifetime(let id):
            if case .messages = request, currentID == id, let params = room(id)?.reading?.params(id) {
                change(id) { $0.reading = nil }
                if error.kind == .notFound, let gone = params.before ?? params.since {
                    change(id) { $0.drop(gone) }
                    return ask(.conversations) + ask(request)
                }
            }
            // The conversation may just have exploded or been left.
            if error.kind == .notFound || error.kind == .expired {
                if room(id)?.isExploded ?? false { return [] }
                return ask(.conversations)
            }
            notice = (words(error), true)
        case .explosion, .firstNew: break
        case .action(.send(let id, let text?, var reply)):
            if error.kind == .notFound { reply?.isGone = true }
            change(id) { room in
                room.answered(text, isSent: false)
                guard room.draft.isEmpty else { return }
                room.draft.set(text)
                room.reply = reply
            }
            notice = (words(error), true)
        case .action(.unlock(let hasPassphrase)):
            guard isLocked else { return [] }
            // Without a passphrase the request has found out whether the home has one.
            let isFirst = error.kind == .locked && !hasPassphrase
            lock = isFirst || hasPassphrase ? .asking : .closed(hasDropped: false)
            notice = isFirst ? nil : (words(error), true)
        case .subscription, .conversations, .joins, .search, .action:
            search = nil
            notice = (words(error), true)
        }
        return []
    }

    /// Shows a notice that the next event or connection makes stale.
    mutating func sayUntilChange(_ text: String, isFailure: Bool = false) {
        notice = (text, isFailure)
        isNoticePassing = true
    }

    /// The error and its hint. A hint names a slash command, or the room in place of `C`.
    private func words(_ error: ControlError) -> String {
        let subject = error.conversation.flatMap { room($0) } ?? room
        let named = error.about(subject?.handle).naming(home: nil, SlashCommand.inPlace)
        return safe(named.message + (named.hint.map { "; \($0)" } ?? ""))
    }

    private mutating func take(_ conversations: [Conversation]) -> [ChatEffect] {
        let known = rooms
        // After a second join, the latest copy is the last.
        let latest = Dictionary(conversations.map { ($0.conversation, $0.inbox) }, uniquingKeysWith: { $1 })
        rooms = conversations.filter { latest[$0.conversation] == $0.inbox }.map { conversation in
            guard var room = known.first(where: { $0.id == conversation.conversation }) else {
                return Room(conversation)
            }
            room.conversation = conversation
            return room
        }
        // Exploded rooms stay visible until closed.
        rooms += known.filter { one in one.isExploded && !rooms.contains { $0.id == one.id } }
        if let id = currentID, room(id) == nil {
            currentID = nil
            if notice == nil { notice = ("the conversation is gone", false) }
        }
        defer { isNew = false }
        guard let wanted = wantedRoom else {
            let isShown = known.contains { $0.id == currentID }
            return isNew || !isShown ? currentID.map { refresh($0) } ?? [] : []
        }
        wantedRoom = nil
        return open(word: wanted)
    }

    mutating func open(word: String) -> [ChatEffect] {
        let matches =
            rooms.filter { $0.conversation.alias == word }.first.map { [$0] }
            ?? rooms.filter { $0.conversation.name == word || ($0.id.hasPrefix(word) && word.count >= 4) }
        if let first = matches.first, matches.count == 1 { return open(first.id) }
        let why = matches.isEmpty ? "no conversation" : "several conversations are called"
        let meant = matches.isEmpty ? rooms.map(\.title).nearest(to: word, folded: { $0.lowercased() }) : nil
        notice = ("\(why) \(safe(word))\(meant.map { ": did you mean /open \($0)?" } ?? "")", true)
        return open(nil)
    }

    // MARK: The position

    private mutating func show(_ reading: Room.Reading, in id: String) -> [ChatEffect] {
        guard currentID == id, let room else { return [] }
        let (wanted, now) = (room.goal ?? room.position, now)
        guard reading.answers(wanted) else { return ask(.messages(id)) }
        change(id) { $0.show(reading, now: now) }
        if case .at(let found, _)? = room.goal { selection = found }
        dropSelection()
        if wanted == .first { return look { _, _ in MessageRows.Place() } }
        return reading.position == wanted ? [] : look { $0.top($1) }
    }

    /// Puts a row on top of the screen. Reads on when less than a screen is loaded beyond.
    mutating func look(at place: (_ rows: MessageRows, _ count: Int) -> MessageRows.Place) -> [ChatEffect] {
        guard let room, !room.isExploded else { return [] }
        let count = bodyCount(size)
        let rows = MessageRows(self, room, size.columns)
        let last = rows.moved(rows.end, by: -count)
        let top = min(place(rows, count), last)
        change(room.id) {
            $0.position = top == last && $0.isAtEnd ? .newest : rows.position(of: top)
            $0.goal = nil
        }
        let needsOlder = !room.isWhole && rows.moved(top, by: -count) == MessageRows.Place()
        let needsNewer = !room.isAtEnd && rows.moved(top, by: 2 * count) == rows.end
        return needsOlder || needsNewer ? ask(.messages(room.id)) : []
    }

    mutating func go(to goal: Room.Position) -> [ChatEffect] {
        guard let room else { return [] }
        let isLoaded = goal == .first ? room.isWhole : room.isAtEnd
        if isLoaded { return look { rows, _ in goal == .first ? MessageRows.Place() : rows.end } }
        change(room.id) { $0.goal = goal }
        return ask(.messages(room.id))
    }

    /// After the plain chat has printed the messages: the next ones follow the last of them, however many come.
    mutating func follow() -> [ChatEffect] {
        guard let room, let last = room.messages.last else { return [] }
        change(room.id) { $0.position = .at(last.message, row: 0) }
        return room.isAtEnd ? [] : ask(.messages(room.id))
    }

    // MARK: Images

    /// Shows a requested image, unless its message is gone or the user has moved on.
    private mutating func show(image rows: [Row], of message: String, title: String, in id: String) {
        guard currentID == id, let room, room.messages.contains(where: { $0.message.description == message }),
            overlay == nil, question == nil, editor.isEmpty
        else { return }
        overlay = .image(message: message, title: title, rows: rows)
        notice = nil
    }

    // MARK: Selection

    mutating func dropSelection() {
        guard let room else { return }
        if room.message(selection) == nil { selection = nil }
        if case .image(let id, _, _) = overlay, !room.messages.contains(where: { $0.message.description == id }) {
            overlay = nil
        }
    }
}
