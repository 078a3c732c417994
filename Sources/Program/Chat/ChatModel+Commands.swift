import Control
import Messaging

extension ChatModel {
    mutating func command(_ line: String) -> [ChatEffect] {
        let words = line.dropFirst().split(separator: " ", maxSplits: 1, omittingEmptySubsequences: true)
        let word = words.first.map(String.init) ?? ""
        let rest = words.count > 1 ? words[1].trimmingPrefix { $0 == " " }.description : ""
        let matches = SlashCommand.allCases.filter { $0.rawValue.hasPrefix(word.lowercased()) }
        guard let command = SlashCommand(rawValue: word.lowercased()) ?? (matches.count == 1 ? matches.first : nil)
        else {
            editor.set(line)
            let meant = SlashCommand.allCases.map(\.rawValue).nearest(to: word.lowercased())
            let cure = meant.map { "did you mean /\($0)?" } ?? "/help lists the commands, // begins a text with a slash"
            return refuse("there is no /\(safe(word)): \(cure)")
        }
        // A mistyped command must not become a name.
        let needsWord: [SlashCommand] = [.create, .profile, .rename, .join, .decline, .block]
        if needsWord.contains(command), rest.isEmpty || rest.hasPrefix("/") { return usage(command) }
        switch command {
        case .help: overlay = .help
        case .quit: return [.quit]
        case .list: return open(nil)
        case .open: return open(word: rest)
        case .decline: return act(.decline, JoinMethods.cancel, .init(join: rest))
        case .block:
            let said = "blocked: pings and invitations from it are refused"
            return act(.say(said), PeerMethods.block, .init(name: rest))
        case .create where asksName, .join where asksName:
            editor.clear()
            question = .name(line: line)
        case .join: return join(rest)
        case .create: return act(.create(from: currentID), ConversationMethods.create, .init(name: rest, as: ownName))
        default:
            guard let room else { return refuse(Self.chooseFirst) }
            return self.command(command, rest, in: room)
        }
        return []
    }

    private mutating func command(_ command: SlashCommand, _ rest: String, in room: Room) -> [ChatEffect] {
        func simple<Method: ControlMethod>(_ method: Method, _ said: String) -> [ChatEffect]
        where Method.Params == ConversationParams { act(.say(said), method, .init(conversation: room.id)) }
        switch command {
        case .propose:
            let words = rest.split(separator: " ").map(String.init)
            guard (1...3).contains(words.count), let value = Lifetime(rawValue: words[0]) else { return usage(command) }
            var mailbox: MailboxConsent?
            let isOnce = words.contains("once")
            for word in words.dropFirst() where word != "once" {
                guard mailbox == nil, let named = MailboxConsent(rawValue: word) else { return usage(command) }
                mailbox = named
            }
            if mailbox == .no { mailbox = nil }
            change(room.id) { $0.endedLifetime = nil }
            let params = LifetimeProposeParams(
                conversation: room.id, terms: .init(lifetime: value, mailbox: mailbox),
                renew: isOnce || value == .ephemeral && mailbox == nil ? nil : true)
            let said =
                room.conversation.members.isEmpty
                ? "agreed: there are no other members" : "proposed: all other members must accept"
            return act(.say(said), LifetimeMethods.propose, params)
        case .accept:
            // Pins the proposal on the screen, so that a newer one is not accepted.
            guard let proposal = room.lifetime?.proposal?.id else { return refuse("there is no open proposal") }
            guard rest.isEmpty || rest == "once" else { return usage(command) }
            let isKept =
                room.lifetime?.proposal.map { $0.terms.lifetime != .ephemeral || $0.terms.mailbox != nil } ?? false
            let params = LifetimeAcceptParams(
                conversation: room.id, proposal: proposal, renew: rest.isEmpty && isKept ? true : nil)
            return act(.say("accepted"), LifetimeMethods.accept, params)
        case .reject: return simple(LifetimeMethods.reject, "rejected")
        case .withdraw: return simple(LifetimeMethods.withdraw, "withdrawn")
        case .joins:
            switch rest {
            case "off": return simple(ConversationMethods.lock, "new members can no longer join")
            case "on": return simple(ConversationMethods.unlock, "new members can join by new invitations again")
            default: return usage(command)
            }
        case .find: return find(rest, in: room)
        case .agreement: overlay = .text(title: "How long messages are kept", lines: agreement(room))
        case .who: overlay = .text(title: "Members of \(room.title)", lines: members(room))
        case .invite: return invite(rest, room)
        case .file:
            let (path, text) = Self.path(rest)
            guard !path.isEmpty else { return usage(command) }
            sayUntilChange("sending \(safe(path)) …")
            change(room.id) { $0.reply = nil }
            let replyTo = room.reply?.message.description
            return [.upload(conversation: room.id, path: path, text: text, replyTo: replyTo)]
        case .save:
            let target = room.message(selection) ?? room.messages.last { $0.file != nil }
            guard let target else {
                return refuse(
                    room.isWhole
                        ? "no message has a file" : "none of these messages has a file: PageUp shows older ones")
            }
            return save(target, to: rest.isEmpty ? nil : rest)
        case .reply, .react:
            guard room.isAtEnd || selection != nil && !rest.hasPrefix("@") && !rest.hasPrefix("~") else {
                editor.set("/\(command.rawValue) \(rest)")
                return refuse("the newest messages are not loaded: End on an empty line, then again")
            }
            let (target, text) = target(rest, room)
            guard let target, !text.isEmpty else { return usage(command) }
            if command == .react {
                guard Words.isEmoji(text) else { return usage(command) }
                return react(room, target.message.description, text)
            }
            change(room.id) { $0.reply = ReplyTarget(target) }
            return enter(text.hasPrefix("/") ? "/" + text : text)
        case .profile:
            return act(.say("done"), ConversationMethods.profile, .init(conversation: room.id, profile: rest))
        case .rename: return act(.say("done"), ConversationMethods.rename, .init(conversation: room.id, name: rest))
        case .remove:
            let found = room.conversation.members.filter { room.name(of: $0.member) == rest || $0.member == rest }
            guard let member = found.first, found.count == 1 else {
                let why = found.isEmpty ? "no member is called" : "several members are called"
                return refuse("\(why) \(safe(rest)): /who shows their ids")
            }
            return act(.say("removed"), ConversationMethods.remove, .init(conversation: room.id, member: member.member))
        case .explode:
            guard !room.isExploded else { return refuse("the conversation has exploded: Alt-X closes it") }
            var params = ExplodeParams(conversation: room.id)
            if !rest.isEmpty {
                guard let delay = Interval(text: rest) else { return usage(command) }
                params.delay = delay
            }
            editor.clear()
            question = .explode(room: room.id, params: params, isScheduled: !rest.isEmpty)
        case .leave:
            editor.clear()
            question = .leave(room: room.id)
        case .help, .quit, .list, .open, .join, .decline, .create, .block: break
        }
        return []
    }

    /// Selects the newest message with these words, before the selected one if any.
    private mutating func find(_ words: String, in room: Room) -> [ChatEffect] {
        guard !words.isEmpty else { return usage(.find) }
        let last = search?.words == words ? search?.before : nil
        var started = Search(words: words, before: selection ?? last)
        let end =
            started.before.map { id in room.messages.firstIndex { $0.message == id } }
            ?? (room.isAtEnd ? room.messages.count : nil)
        let loaded = end.map { room.messages[..<$0] }
        if let loaded { started.before = loaded.first?.message ?? started.before }
        search = started
        return searched(Array(loaded ?? []), isLast: loaded != nil && room.isWhole, in: room)
    }

    mutating func searched(_ read: ReadResult, in id: String) -> [ChatEffect] {
        guard let room, room.id == id, search?.isRunning ?? false else { return [] }
        let next = read.next.flatMap { HexID(hex: $0) }
        search?.before = next
        return searched(read.messages, isLast: next == nil, in: room)
    }

    /// - Parameter isLast: whether no message is older.
    private mutating func searched(_ messages: [Message], isLast: Bool, in room: Room) -> [ChatEffect] {
        if let found = messages.last(where: { search?.matches($0) ?? false }) {
            search?.before = found.message
            search?.isRunning = false
            notice = nil
            if isPlain {
                let words = safe(found.text ?? found.file?.name ?? "")
                let at = Words.time(found.sentAt, now: now, calendar)
                notice = ("\(at) \(safe(found.from)): \(words)", false)
            } else if room.message(found.message) != nil {
                selection = found.message
                return look { $0.top($1) }
            } else {
                let count = bodyCount(size)
                change(room.id) { $0.goal = .at(found.message, row: -count / 2) }
                return ask(.messages(room.id))
            }
            return []
        }
        if isLast {
            search = nil
            return refuse("no earlier message contains these words")
        }
        sayUntilChange("searching older messages: Esc ends it")
        return ask(.search(room.id))
    }

    /// A search from the newest message to the oldest.
    struct Search {
        let words: String
        /// The oldest message searched, or the one that was found last.
        var before: HexID?
        var isRunning = true

        func matches(_ message: Message) -> Bool {
            let wanted = words.lowercased()
            return !message.isOfNode
                && [message.text, message.file?.name].contains { $0?.lowercased().contains(wanted) ?? false }
        }
    }

    private mutating func usage(_ command: SlashCommand) -> [ChatEffect] {
        refuse("write \(command.usage): \(command.summary)")
    }

    private mutating func join(_ slug: String) -> [ChatEffect] {
        sayUntilChange("joining …")
        return act(.join(from: currentID), JoinMethods.join, .init(slug: slug, profile: ownName, accept: false))
    }

    private mutating func invite(_ rest: String, _ room: Room) -> [ChatEffect] {
        if rest == "--code" || rest == "code" {
            return act(.code(room.id), InviteMethods.code, .init(conversation: room.id))
        }
        var params = InviteCreateParams(conversation: room.id)
        for word in rest.split(separator: " ") {
            if word == "single" {
                params.singleUse = true
            } else if let time = Interval(text: String(word)) {
                params.expiresIn = time
            } else {
                return usage(.invite)
            }
        }
        return act(.invite(room.id), InviteMethods.create, params)
    }

    /// The message named by a word such as `@2`, else the selected one, else the last one of another member; and the
    /// rest.
    private func target(_ rest: String, _ room: Room) -> (Message?, String) {
        if rest.hasPrefix("@") || rest.hasPrefix("~") {
            let words = rest.dropFirst().split(separator: " ", maxSplits: 1)
            let messages = room.messages.filter { !$0.isOfNode }
            guard let number = words.first.flatMap({ Int($0) }), number > 0, number <= messages.count else {
                return (nil, "")
            }
            return (messages[messages.count - number], words.count > 1 ? String(words[1]) : "")
        }
        return (room.message(selection) ?? room.messages.last { $0.member != nil } ?? room.messages.last, rest)
    }

    /// A path, quoted if it has spaces, and the rest.
    private static func path(_ rest: String) -> (String, String?) {
        if let mark = rest.first, mark == "'" || mark == "\"" {
            let parts = rest.dropFirst().split(separator: mark, maxSplits: 1, omittingEmptySubsequences: false)
            let text = parts.count > 1 ? parts[1].trimmingPrefix { $0 == " " }.description : ""
            return (parts.first.map(String.init) ?? "", text.isEmpty ? nil : text)
        }
        let parts = rest.split(separator: " ", maxSplits: 1)
        return (parts.first.map(String.init) ?? "", parts.count > 1 ? String(parts[1]) : nil)
    }

    private func members(_ room: Room) -> [String] {
        var lines = ["you, the \(room.conversation.role)"]
        for member in room.conversation.members {
            let away = member.mailbox == .yes ? "offline, has a mailbox" : "offline"
            let state = member.online ? "online, \(member.path ?? "linked")" : away
            lines.append("\(room.name(of: member.member))  \(member.member)  \(state)")
        }
        if room.conversation.locked { lines += ["", "joining is locked"] }
        return lines
    }

    private func agreement(_ room: Room) -> [String] {
        guard let status = room.lifetime else { return ["the lifetime is not known yet"] }
        var lines = ["in force: \(Words.lifetime(status.lifetime))"]
        if let one = status.agreement {
            let members = Words.list(one.members.map { safe($0.name) })
            lines.append("agreed \(Words.time(one.agreedAt, now: now, calendar)) by \(members)")
            lines += Self.terms(one.terms) + Self.explanation(one.terms)
        }
        if let proposal = status.proposal {
            lines += ["", "proposed: \(Words.lifetime(proposal.terms.lifetime)), by \(safe(proposal.from))"]
            lines += Self.terms(proposal.terms) + Self.explanation(proposal.terms)
            lines.append("waits for \(Words.list((proposal.waiting ?? []).map { Self.you($0.name) }))")
            lines.append("Earlier messages keep the lifetime under which they were sent.")
        }
        return lines
    }

    static func terms(_ terms: LifetimeTermsRecord) -> [String] {
        var lines: [String] = []
        if let attachments = terms.attachments { lines.append("files: \(Words.lifetime(attachments))") }
        if let unopened = terms.unopened { lines.append("unopened: gone after \(Words.left(unopened.milliseconds))") }
        if terms.timer == .read { lines.append("the lifetime starts at reading") }
        if let mailbox = terms.mailboxWords { lines.append(mailbox) }
        return lines
    }

    private static func explanation(_ terms: LifetimeTermsRecord) -> [String] {
        switch terms.mailbox ?? .no {
        case .no: []
        case .ram: ["An offline member's mailbox may keep messages: sealed, memory only."]
        case .disk: ["An offline member's mailbox may keep messages: sealed, on its disk."]
        }
    }

    /// The node calls us "me".
    static func you(_ name: String) -> String { name == "me" ? "you" : Words.name(name) }
}

enum SlashCommand: String, CaseIterable, Sendable {
    case propose, accept, reject, withdraw, agreement
    case invite, join, decline, create, list, open
    case file, save, reply, react
    case who, profile, rename, joins, find, remove
    case block, explode, leave, help, quit

    /// Its arguments, what it does in one line of /help, and the equivalent shell command; empty when there is none.
    private var words: (arguments: String, summary: String, equivalent: String) {
        switch self {
        case .propose:
            (
                "TIME [ram|disk] [once]", "propose 1h, 6h, 1d, 7d, 30d or ephemeral",
                "mayfly lifetime propose C VALUE --mailbox ram --renew"
            )
        case .accept: ("[once]", "accept and renew these terms; once: no renewal", "mayfly lifetime accept C --renew")
        case .reject: ("", "reject the proposal", "mayfly lifetime reject C")
        case .withdraw: ("", "withdraw your own proposal", "mayfly lifetime withdraw C")
        case .agreement: ("", "show the agreement and the open proposal", "mayfly lifetime show C")
        case .invite: ("[24h] [single] | --code", "invite; --code: a code to say aloud", "mayfly invite create C")
        case .join: ("INVITE", "join by an invitation", "mayfly join INVITE")
        case .decline: ("INVITATION", "decline an invitation", "mayfly join cancel INVITATION")
        case .create: ("NAME", "create a conversation", "mayfly conversation create --name NAME")
        case .list: ("", "all conversations (Alt-0)", "mayfly conversation list")
        case .open: ("CONVERSATION", "go to a conversation (Alt-1…9)", "")
        case .file: ("PATH [TEXT]", "send a file", "mayfly send C --file PATH")
        case .save: ("[PATH]", "save the file of the selected or last message", "mayfly save C MESSAGE")
        case .reply:
            ("[@N] TEXT", "answer the selected, last or Nth last message", "mayfly send C --reply-to MESSAGE TEXT")
        case .react: ("[@N] EMOJI", "add or remove an emoji reaction", "mayfly react C MESSAGE EMOJI")
        case .who: ("", "list the members and their paths", "mayfly conversation members C")
        case .profile: ("NAME", "set your own name in this conversation", "mayfly conversation profile C NAME")
        case .rename: ("NAME", "rename the conversation (creator)", "mayfly conversation rename C NAME")
        case .joins: ("on|off", "allow or stop joining (creator)", "mayfly conversation unlock C or lock C")
        case .find: ("WORDS", "find the newest message; again: the one before", "")
        case .remove: ("MEMBER", "remove a member (creator)", "mayfly conversation remove C MEMBER")
        case .block: ("PEER", "refuse pings and invitations from a named node", "mayfly peer block PEER")
        case .explode: ("[2h]", "destroy the conversation for all (creator)", "mayfly explode C")
        case .leave: ("", "leave, and destroy the local copy", "mayfly conversation leave C")
        case .help: ("", "this page", "")
        case .quit: ("", "end the chat; the node goes on (Ctrl-C)", "")
        }
    }

    var usage: String { "/\(rawValue)\(words.arguments.isEmpty ? "" : " \(words.arguments)")" }
    var summary: String { words.summary }

    /// The slash command for a shell command in a node's hint, or the shell command itself. Both begin with the same
    /// words up to the first placeholder; arguments stay, without the options of the equivalent.
    static func inPlace(of shell: String) -> String {
        let (start, arguments) = parts(shell)
        for command in allCases {
            let (own, options) = parts(command.words.equivalent)
            guard own == start else { continue }
            return arguments.filter { !$0.hasPrefix("--") || !options.contains($0) }.reduce(
                command == .joins ? "/joins on" : "/\(command.rawValue)"
            ) { "\($0) \($1)" }
        }
        return shell
    }

    private static func parts(_ command: String) -> (start: ArraySlice<Substring>, rest: ArraySlice<Substring>) {
        let words = command.split(separator: " ")
        let end = words.firstIndex { $0.allSatisfy(\.isUppercase) }.map { $0 + 1 } ?? words.endIndex
        return (words[..<end], words[end...])
    }

    static var helpLines: [String] {
        [
            "Enter sends · Alt-Enter breaks the line · Tab completes · arrows: earlier texts",
            "Alt-Up selects a message: Enter replies · Alt-E reacts · Alt-S saves its file",
            "  Alt-V shows its image · Alt-W who has it · Alt-C cancels it · Esc leaves it",
            "PageUp, Home, End scroll · Alt-1…9 goes to a conversation, Alt-0 to the list",
            "✓ sent · ✓✓ 1/2 one of two has it · ⇡ in a mailbox · ● linked · ○ not linked",
            "A text that begins with a slash: write it twice.", "",
        ] + columns { $0.summary }
    }

    /// Each command with its shell command, for the manual.
    static var equivalents: String {
        columns { $0.words.equivalent }.filter { $0.contains("mayfly ") }.map { "  \($0)" }.joined(separator: "\n")
    }

    private static func columns(_ second: (Self) -> String) -> [String] {
        let width = allCases.map(\.usage.count).max() ?? 0
        return allCases.map { Wrapping.fit($0.usage, width: width) + "  " + second($0) }
    }
}
