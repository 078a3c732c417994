import Control
import Messaging

/// The chat as lines for pipes, slow terminals and screen readers. Each line appears once.
struct Transcript {
    private var messages: Set<HexID> = []
    private var noteCount = 0
    private var roomID: String?
    private var proposal: String?
    private var retention: String?
    private var notice: String?
    private var ended: Lifetime?
    private var receipts: Set<String> = []
    private var mailed: Set<HexID> = []
    private var listed: [String] = []
    private var question: String?

    mutating func update(_ model: inout ChatModel) -> [String] {
        var lines: [String] = []
        if let lostConnection = model.lostConnection, notice != lostConnection {
            notice = lostConnection
            lines.append("* no node: \(lostConnection)")
        }
        if model.currentID != roomID {
            self = Transcript()
            roomID = model.currentID
        }
        if let room = model.room { lines += update(room, model) } else { lines += list(model) }
        if let overlay = model.overlay {
            lines += Self.lines(of: overlay)
            model.overlay = nil
        }
        let asked = Self.words(model.question, model)
        if let asked, asked != question { lines.append(asked) }
        question = asked
        if let said = model.notice {
            lines.append("* \(said.text)")
            model.notice = nil
        }
        return lines
    }

    private mutating func update(_ room: Room, _ model: ChatModel) -> [String] {
        if room.isExploded { return explosion(room, model) }
        var lines: [String] = []
        let kept =
            room.explodesAt.map { "explodes \(Words.time($0, now: model.now, model.calendar))" }
            ?? (room.retention == .ephemeral ? "memory only" : "kept \(Words.lifetime(room.retention)) on disk")
        // Waits for the node's answer.
        if room.lifetime != nil, kept != retention {
            lines.append("* \(room.title): \(kept)")
            retention = kept
        }
        for message in room.messages where messages.insert(message.message).inserted {
            lines += Self.lines(of: message, room, model)
        }
        for message in room.messages
        where message.member == nil && message.state == "mailed" && mailed.insert(message.message).inserted {
            lines.append("* your message of \(model.calendar(message.sentAt).clock) is in the mailbox")
        }
        for note in room.notes.suffix(min(room.notes.count, room.noteTotal - noteCount)) {
            lines.append("* \(note.text)")
        }
        noteCount = room.noteTotal
        let open = room.lifetime?.proposal
        if let open, open.id != proposal {
            let who = open.member == nil ? "you propose" : "\(Words.name(open.from)) proposes"
            let answer = open.member == nil ? "/withdraw withdraws the proposal" : "/accept or /reject"
            let what = ([Words.lifetime(open.terms.lifetime)] + ChatModel.terms(open.terms)).joined(separator: ", ")
            lines.append("* \(who) \(what) (now \(Words.lifetime(room.retention))): \(answer)")
        }
        proposal = open?.id
        if let over = room.endedLifetime, over != ended {
            let what = "the agreement of \(Words.lifetime(over)) has ended"
            lines.append("* from now on nothing is stored: \(what); /propose \(over.rawValue)")
        }
        ended = room.endedLifetime
        return lines
    }

    private static func lines(of message: Message, _ room: Room, _ model: ChatModel) -> [String] {
        var texts = message.file.map { ["[file \(safe($0.name)), \(sizeText($0.byteCount))]"] } ?? []
        texts += ShownText.lines(message.text ?? "").filter { !$0.isEmpty || message.file == nil }
        let answers = message.replyTo.flatMap { id in room.messages.first { $0.message.description == id } }
        if let answers { texts[0] = "(to \(ChatModel.you(answers.from))) " + texts[0] }
        let end = message.expiresAt.map { "  (gone \(Words.time($0, now: model.now, model.calendar)))" } ?? ""
        let head = "\(model.calendar(message.sentAt).clock) \(safe(message.from)): "
        return texts.enumerated().map { index, text in
            let tail = index == texts.count - 1 ? end : ""
            // Continuation lines are indented, so that none can pass for a message.
            return index == 0 ? "\(head)\(text)\(tail)" : "      \(text)\(tail)"
        }
    }

    private mutating func explosion(_ room: Room, _ model: ChatModel) -> [String] {
        var lines: [String] = []
        if receipts.insert("").inserted { lines.append("* \(room.title) has exploded: its keys are destroyed") }
        for receipt in room.explosion?.receipts ?? [] where receipts.insert(receipt.member).inserted {
            let time = Words.time(receipt.destroyedAt, now: model.now, model.calendar)
            lines.append("* \(room.name(of: receipt.member)) has destroyed its copy, \(time)")
        }
        return lines
    }

    private mutating func list(_ model: ChatModel) -> [String] {
        let rooms = model.rooms.enumerated().map { index, room in
            let unread = room.unreadCount > 0 ? ", \(room.unreadCount) new" : ""
            return "\(index + 1) \(room.title)\(unread)"
        }
        let joins = model.joins.filter { $0.state == .invited }.map { join in
            let name = join.name.map { " to \"\(safe($0))\"" } ?? ""
            let from = safe(join.from ?? "a node")
            return "* \(from) invites you\(name): /join \(join.join.prefix(12)), or /decline"
        }
        let lines = rooms + joins
        guard lines != listed, !lines.isEmpty else { return [] }
        listed = lines
        return lines + ["* /open CONVERSATION"]
    }

    private static func lines(of overlay: ChatModel.Overlay) -> [String] {
        switch overlay {
        case .help: SlashCommand.helpLines
        case .text(let title, let lines), .invite(let title, let lines, _):
            ["* \(title)"] + lines.filter { !$0.isEmpty && !$0.hasPrefix("q shows") }
        case .code, .image: []
        }
    }

    private static func words(_ question: ChatModel.Question?, _ model: ChatModel) -> String? {
        switch question {
        case .explode(let id, _, let isScheduled):
            "* all copies are destroyed \(isScheduled ? "at that time" : "now"): "
                + "type \(model.room(id)?.title ?? "") to go on"
        case .leave(let id): "* your copy is destroyed: type \(model.room(id)?.title ?? "") to go on"
        case .name: "* your name, as others see it (Enter for none)"
        case .invitation: "* \(model.inputPrompt)"
        case .paste, .reaction, nil: nil
        }
    }
}
