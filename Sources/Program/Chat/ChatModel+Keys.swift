import Control

import enum Messaging.Limits

extension ChatModel {
    /// Longer pastes, and those of several lines, need a confirmation.
    private static let pasteByteCount = 500

    static let reactions = ["👍", "❤️", "😂", "😮", "😢", "🙏"]

    mutating func press(_ key: Key) -> [ChatEffect] {
        notice = nil
        let wasQuitAsked = isQuitAsked
        isQuitAsked = false
        switch key {
        case .control("c") where !editor.isEmpty && question == nil && !wasQuitAsked && !isLocked && !isTooSmall:
            isQuitAsked = true
            return refuse("the draft is not sent: Ctrl-C again ends the chat")
        case .control("c"),
            .control("d") where editor.isEmpty && question == nil:
            return [.quit]
        case _ where isTooSmall: return []
        case _ where isLocked: return pressLocked(key)
        case .alt(let digit) where digit.isASCII && digit.isNumber:
            if case .name = question { return [] }
            return openNumber(digit)
        default: break
        }
        if let shown = overlay {
            // Two rows are the title's.
            let count = bodyCount(size) - 2
            let end = max(0, content(of: shown, size.columns).lines.count - count)
            switch key {
            case .up: overlayScroll -= 1
            case .down: overlayScroll += 1
            case .pageUp: overlayScroll -= max(1, count - 1)
            case .pageDown: overlayScroll += max(1, count - 1)
            case .home: overlayScroll = 0
            case .end: overlayScroll = end
            default: return close(shown, key)
            }
            overlayScroll = max(0, min(end, overlayScroll))
            return []
        }
        let isBrowsing = editor.isEmpty && question == nil && currentID != nil
        switch key {
        case .pageUp, .pageDown:
            selection = nil
            // One row of overlap.
            let step = max(1, bodyCount(size) - 1)
            return look { $0.moved($0.top($1), by: key == .pageUp ? -step : step) }
        case .home where isBrowsing, .end where isBrowsing:
            selection = nil
            return go(to: key == .home ? .first : .newest)
        case .escape where search?.isRunning ?? false:
            search = nil
            return refuse("the search was ended")
        default: break
        }
        if question != nil { return answer(key) }
        if currentID == nil { return pressInList(key) }
        if selection != nil, let effects = pressOnMessage(key) { return effects }
        if let effects = pressOnCard(key) { return effects }
        return pressInRoom(key)
    }

    private mutating func pressLocked(_ key: Key) -> [ChatEffect] {
        switch (lock, key) {
        case (.closed(hasDropped: false), .enter): return unlock()
        case (.asking, .enter) where !editor.isEmpty: return unlock()
        case (.closed(hasDropped: true), .enter), (.closed, .escape): lock = .closed(hasDropped: false)
        case (.closed, .character), (.closed, .paste):
            lock = .closed(hasDropped: true)
            notice = ("the storage is locked: what you type is dropped", true)
        case (.asking, .escape):
            editor.clear()
            lock = .closed(hasDropped: false)
        case (.asking, .paste(let text)): editor.insert(text.filter { !$0.isNewline })
        case (.asking, _): _ = editor.edit(key)
        case (.closed, _), (.unlocking, _), (nil, _): break
        }
        return []
    }

    private mutating func unlock() -> [ChatEffect] {
        let passphrase = editor.line
        editor.clear()
        lock = .unlocking
        sayUntilChange("unlocking …")
        return act(.unlock(hasPassphrase: !passphrase.isEmpty), NodeMethods.unlock, .init(passphrase: passphrase))
    }

    private mutating func close(_ shown: Overlay, _ key: Key) -> [ChatEffect] {
        overlay = nil
        guard key == .character("q"), case .invite(_, _, let url) = shown else { return [] }
        if let code = makeQRCode(url) {
            overlay = .code(code)
        } else {
            notice = ("the invitation is too long for a QR code", true)
        }
        return []
    }

    private mutating func openNumber(_ digit: Character) -> [ChatEffect] {
        let number = digit.wholeNumberValue ?? 0
        if number == 0 { return open(nil) }
        guard number <= rooms.count else { return [] }
        return open(rooms[number - 1].id)
    }

    private mutating func pressInRoom(_ key: Key) -> [ChatEffect] {
        switch key {
        case .enter:
            if let room, room.reply?.isGone ?? false, !editor.isEmpty {
                change(room.id) { $0.reply = nil }
                return refuse("not sent, the message to reply to is gone: Enter sends it without")
            }
            let length = room?.retention.milliseconds
            let line = editor.take(until: length.map { now.milliseconds + $0 })
            return enter(line)
        case .escape:
            guard let room, room.reply != nil else { return go(to: .newest) }
            change(room.id) { $0.reply = nil }
        case .selectUp: return select(-1)
        case .selectDown: return select(1)
        case .tab:
            let matches = editor.complete(
                completesPath ? paths(editor.word) : candidates, isWhole: { !$0.hasSuffix("/") })
            if !matches.isEmpty { notice = (matches.map(safe).joined(separator: "  "), false) }
        case .paste(let text):
            let shown = text.replacing("\r\n", with: "\n").replacing("\r", with: "\n")
            if shown.utf8.count > Limits.textByteCount {
                notice = (Self.tooLong(shown), true)
            } else if shown.contains("\n") || shown.utf8.count > Self.pasteByteCount {
                question = .paste(shown)
            } else {
                editor.insert(shown)
                if !editor.isCommand { selection = nil }
            }
        default: if editor.edit(key), !editor.isEmpty, !editor.isCommand { selection = nil }
        }
        return []
    }

    mutating func enter(_ line: String) -> [ChatEffect] {
        guard line.contains(where: { !$0.isWhitespace }) else { return [] }
        if LineEditor.isCommand(line) { return command(line) }
        return send(line.hasPrefix("/") ? String(line.dropFirst()) : line)
    }

    mutating func send(_ text: String) -> [ChatEffect] {
        guard let room else { return refuse(Self.chooseFirst) }
        guard text.utf8.count <= Limits.textByteCount else {
            editor.set(text)
            return refuse(Self.tooLong(text))
        }
        selection = nil
        search = nil
        let reply = room.reply
        let now = now
        change(room.id) { room in
            room.send(text, to: reply, at: now)
            room.reply = nil
        }
        let params = SendParams(conversation: room.id, text: text, replyTo: reply?.message.description)
        return go(to: .newest) + act(.send(room.id, text: text, reply: reply), MessageMethods.send, params)
    }

    private static func tooLong(_ text: String) -> String {
        "\(text.utf8.count) bytes are more than the \(Limits.textByteCount) of a message: send a file, /file PATH"
    }

    private var completesPath: Bool { ["/file ", "/save "].contains { editor.line.hasPrefix($0) } }

    private var candidates: [String] {
        let commands = SlashCommand.allCases.map { "/\($0.rawValue)" }
        let names = room.map { room in room.conversation.members.map { room.name(of: $0.member) } } ?? []
        return commands + names + rooms.compactMap(\.conversation.alias)
    }

    private mutating func select(_ step: Int) -> [ChatEffect] {
        guard let room else { return [] }
        let messages = room.messages.filter { !$0.isOfNode }
        guard let index = selection.flatMap({ id in messages.firstIndex { $0.message == id } }) else {
            let rows = MessageRows(self, room, size.columns)
            let count = bodyCount(size)
            selection = step < 0 ? rows.lastMessage(from: rows.top(count), count) : nil
            return []
        }
        let next = index + step
        selection = next < messages.count ? messages[max(0, next)].message : room.isAtEnd ? nil : selection
        return look { $0.top($1) }
    }

    /// - Returns: `nil` when the key does not apply to a message.
    private mutating func pressOnMessage(_ key: Key) -> [ChatEffect]? {
        guard let room, let message = room.message(selection) else { return nil }
        switch key {
        case .selectUp: return select(-1)
        case .selectDown: return select(1)
        case .up where editor.isEmpty: return select(-1)
        case .down where editor.isEmpty: return select(1)
        case .escape: selection = nil
        // A draft becomes the reply; a command is for the selected message.
        case .enter where !editor.isCommand:
            change(room.id) { $0.reply = ReplyTarget(message) }
            selection = nil
        case .alt("e"): question = .reaction(message: message.message.description)
        case .alt("s"): return save(message, to: nil)
        case .alt("v"): return view(message)
        case .alt("w"): overlay = .text(title: "Who has it", lines: whoHas(message))
        case .alt("c"): return cancel(message)
        // A letter starts a text.
        default: return nil
        }
        return []
    }

    /// - Parameter columns: on a narrow screen only the keys are shown, and `/help` explains them.
    func selectionHelp(_ columns: Int) -> String {
        if editor.isCommand { return "Enter runs the command, Esc leaves the message" }
        return columns < 80
            ? "Enter, Alt-E/S/V/W/C, Esc: see /help"
            : "Enter reply · Alt-E react · Alt-S save · Alt-V view · Alt-W who · Alt-C cancel"
    }

    private mutating func view(_ message: Message) -> [ChatEffect] {
        guard let file = message.file, file.mediaType.hasPrefix("image/"), let room else {
            return refuse("there is no image in this message")
        }
        guard file.state == "complete" else { return refuse("\(safe(file.name)) is not here yet: \(file.percent) %") }
        let title = safe(file.name)
        sayUntilChange("looking at \(title) …")
        let body = Picture.Size(columns: size.columns, rows: max(1, bodyCount(size) - 2))
        return [.preview(conversation: room.id, message: message.message.description, title: title, size: body)]
    }

    mutating func save(_ message: Message, to path: String?) -> [ChatEffect] {
        guard let file = message.file, let room else { return refuse("there is no file in this message") }
        guard file.state == "complete" else { return refuse("\(safe(file.name)) is not here yet: \(file.percent) %") }
        return [.save(conversation: room.id, message: message.message.description, path: path)]
    }

    private mutating func cancel(_ message: Message) -> [ChatEffect] {
        guard message.member == nil, message.state == "queued" else {
            return refuse("only a queued message can be cancelled")
        }
        return act(.say("cancelled"), OutboxMethods.cancel, .init(message: message.message.description))
    }

    private func whoHas(_ message: Message) -> [String] {
        var lines: [String] = []
        for one in message.deliveries ?? [] {
            let time = one.at.map { " \(Words.time($0, now: now, calendar))" } ?? ""
            lines.append("\(safe(one.name))  \(one.state)\(time)")
        }
        if lines.isEmpty {
            lines.append("from \(safe(message.from)), sent \(Words.time(message.sentAt, now: now, calendar))")
        }
        lines.append("")
        lines.append(message.stored ? "on the disk" : "memory only")
        if let expiresAt = message.expiresAt { lines.append("expires \(Words.time(expiresAt, now: now, calendar))") }
        if let agreement = message.agreement { lines.append("agreement \(agreement.prefix(12))") }
        return lines
    }

    /// - Returns: `nil` when the key does not apply to a card.
    private mutating func pressOnCard(_ key: Key) -> [ChatEffect]? {
        guard let room else { return nil }
        let proposal = room.lifetime?.proposal
        switch key {
        case .alt("a") where proposal?.member != nil, .alt("o") where proposal?.member != nil,
            .alt("r") where proposal?.member != nil:
            // Protects against a key meant for the previous card.
            if let changedAt = room.proposalChangedAt, now.milliseconds - changedAt.milliseconds < 1_000 {
                return refuse("the proposal has just changed: look again")
            }
            return command(key == .alt("a") ? "/accept" : key == .alt("o") ? "/accept once" : "/reject")
        case .alt("w") where proposal != nil && proposal?.member == nil: return command("/withdraw")
        case .alt("d") where proposal != nil: return command("/agreement")
        case .alt("p") where proposal == nil && room.endedLifetime != nil:
            return command("/propose \(room.endedLifetime?.rawValue ?? "")")
        case .alt("x") where room.endedLifetime != nil: change(room.id) { $0.endedLifetime = nil }
        case .alt("x") where room.isExploded:
            rooms.removeAll { $0.id == room.id }
            return open(nil)
        default: return nil
        }
        return []
    }

    private mutating func pressInList(_ key: Key) -> [ChatEffect] {
        let count = rooms.count + joins.count
        switch key {
        case .up where editor.isEmpty: listIndex = max(0, min(listIndex, count - 1) - 1)
        case .down where editor.isEmpty: listIndex = max(0, min(count - 1, listIndex + 1))
        case .enter where editor.isEmpty:
            if rooms.indices.contains(listIndex) { return open(rooms[listIndex].id) }
            let index = listIndex - rooms.count
            if joins.indices.contains(index), joins[index].isAsking { question = .invitation(joins[index]) }
        case .escape: editor.clear()
        default: return pressInRoom(key)
        }
        return []
    }

    private mutating func answer(_ key: Key) -> [ChatEffect] {
        guard let asked = question else { return [] }
        if key == .escape {
            question = nil
            if case .explode = asked { editor.clear() }
            if case .leave = asked { editor.clear() }
            if case .name(let line) = asked { editor.set(line) }
            notice = ("nothing was done", false)
            return []
        }
        switch asked {
        case .explode where key != .enter, .leave where key != .enter: _ = editor.edit(key)
        case .explode(let id, let params, _):
            return confirms(id) ? act(.explode(id), ExplodeMethods.explode, params) : []
        case .leave(let id):
            return confirms(id) ? act(.leave(id), ConversationMethods.leave, .init(conversation: id)) : []
        case .paste(let text):
            switch key {
            case .enter: editor.insert(text)
            case .character("1"): editor.insert(safe(text))
            default: notice = ("Enter inserts the text, 1 makes one line of it, Esc drops it", false)
            }
            if notice == nil { question = nil }
        case .invitation(let join):
            // This question may appear while the user types. The plain chat enters a line.
            let takesLine = join.state == .validated || isPlain
            if takesLine, key != .enter {
                _ = editor.edit(key)
                return []
            }
            var word = editor.line
            if !takesLine, case .character(let letter) = key { word = String(letter) }
            guard let answer = ["a": "/join", "d": "/decline"][word] else {
                notice = ("a accepts, d declines\(takesLine ? ", each with Enter" : ""), Esc leaves it open", false)
                return []
            }
            editor.clear()
            question = nil
            return command("\(answer) \(join.join)")
        case .name(let line):
            if case .paste(let text) = key { editor.insert(safe(text)) }
            guard key == .enter else {
                _ = editor.edit(key)
                return []
            }
            let name = editor.line.split(separator: " ").joined(separator: " ")
            editor.clear()
            guard !name.hasPrefix("/") else { return refuse("\(safe(name)) is no name: type one, or Enter for none") }
            (question, asksName) = (nil, false)
            ownName = name.isEmpty ? nil : name
            return (name.isEmpty ? [] : [.remember(name: name)]) + command(line)
        case .reaction(let message):
            guard case .character(let sign) = key, let room else { return [] }
            let number = sign.wholeNumberValue.map { $0 - 1 } ?? -1
            let emoji = Self.reactions.indices.contains(number) ? Self.reactions[number] : String(sign)
            guard Words.isEmoji(emoji) else { return refuse("a number from 1 to \(Self.reactions.count), or an emoji") }
            question = nil
            selection = nil
            return react(room, message, emoji)
        }
        return []
    }

    mutating func react(_ room: Room, _ message: String, _ emoji: String) -> [ChatEffect] {
        let target = room.messages.first { $0.message.description == message }
        let isThere = target?.reactions?.contains { $0.member == nil && $0.reaction == emoji } ?? false
        let params = ReactParams(conversation: room.id, message: message, reaction: emoji, remove: isThere ? true : nil)
        return act(.send(room.id, text: nil, reply: nil), MessageMethods.react, params)
    }

    private mutating func confirms(_ id: String) -> Bool {
        let typed = editor.line
        editor.clear()
        question = nil
        if let room = room(id), typed == room.title { return true }
        notice = ("that is not the name: nothing was done", true)
        return false
    }
}
