import Control
import Messaging

struct MessageRows {
    private let model: ChatModel
    private let room: Room
    private let columns: Int
    /// In columns.
    private let nameWidth: Int
    /// In columns.
    private let leftWidth: Int
    private static let memoryOnly = "memory only"

    init(_ model: ChatModel, _ room: Room, _ columns: Int) {
        self.model = model
        self.room = room
        self.columns = columns
        // Only recent names, so that the cost does not grow with the room.
        let names = (room.messages + room.unanswered).suffix(200).filter { !$0.isOfNode }.map {
            CellWidth.of(safe($0.from))
        }
        nameWidth = min(names.max() ?? 0, columns >= 60 ? 16 : min(8, columns - 28))
        let isMixed = room.retention != .ephemeral && room.messages.contains { $0.expiresAt == nil }
        leftWidth = isMixed ? Self.memoryOnly.count + 1 : columns >= 60 ? 9 : 8
    }

    /// Columns of time and name before the text.
    private var indent: Int { 6 + nameWidth + 2 }

    private enum Entry {
        case message(Message)
        case faded(Room.Faded)
        case note(Room.Note)

        var at: Timestamp {
            switch self {
            case .message(let message): message.sentAt
            case .faded(let faded): faded.sentAt
            case .note(let note): note.at
            }
        }
    }

    private var entries: [Entry] {
        var entries = (room.messages + room.unanswered).map { Entry.message($0) }
        for other in room.faded.map({ Entry.faded($0) }) + room.notes.map({ Entry.note($0) }) {
            // A message may have a far future time from its sender's clock, so search from the end.
            let index = entries.lastIndex { $0.at <= other.at }
            entries.insert(other, at: index.map { $0 + 1 } ?? 0)
        }
        return entries
    }

    /// The newest rows. Older rows are not built.
    /// - Parameters:
    ///   - count: minimum number, if available.
    ///   - id: a message to include, with as many rows above it.
    func rows(last count: Int, through id: HexID? = nil) -> [Row] {
        let entries = entries
        var pieces: [[Row]] = []
        var total = 0
        var wanted = count
        var awaited = id
        for index in entries.indices.reversed() where total < wanted || awaited != nil {
            let entry = entries[index]
            var piece = rows(of: entry)
            let local = model.calendar(entry.at)
            if index == 0 || !model.calendar(entries[index - 1].at).isSameDay(local) {
                piece.insert(Row(Span(Wrapping.cut(" ── \(local.date) ──", width: columns), .dim)), at: 0)
            }
            pieces.append(piece)
            total += piece.count
            if case .message(let message) = entry, message.message == awaited {
                awaited = nil
                wanted = max(wanted, total + count)
            }
        }
        return Array(pieces.reversed().joined())
    }

    private func rows(of entry: Entry) -> [Row] {
        switch entry {
        case .message(let one):
            guard one.message == room.firstNew else { return message(one) }
            return [Row(Span(Wrapping.cut(" ── new ──", width: columns), .strong))] + message(one)
        case .faded(let faded): return [Row(Span("\(clock(faded.sentAt)) · · · expired", .dim))]
        case .note(let note):
            return wrap(note.text, columns - 7).enumerated().map { index, line in
                Row(Span("\(index == 0 ? clock(note.at) : "     ") \(index == 0 ? "· " : "  ")\(line)", .dim))
            }
        }
    }

    private func clock(_ time: Timestamp) -> String { model.calendar(time).clock }

    private func wrap(_ text: String, _ width: Int) -> [String] {
        ShownText.lines(text).flatMap { Wrapping.wrap($0, width: max(1, width)) }
    }

    private func system(_ message: Message) -> [Row] {
        wrap(message.text ?? message.type, max(8, columns - 8 - leftWidth)).enumerated().map { index, line in
            let tone: Tone = message.message == model.selection ? .selected : .dim
            let head = index == 0 ? "\(clock(message.sentAt)) · " : "        "
            return Row(Span(head + line, tone), right: index == 0 ? left(message) : nil)
        }
    }

    private func message(_ message: Message) -> [Row] {
        let isSelected = message.message == model.selection
        if message.isOfNode { return system(message) }
        let width = max(8, columns - indent - leftWidth - 1)
        var rows: [Row] = []
        if let answered = message.replyTo {
            let target = room.messages.first { $0.message.description == answered }
            let quoted = target.map { "\(ChatModel.you($0.from)): \(safe($0.text ?? $0.file?.name ?? ""))" }
            let text = Wrapping.cut("↳ \(quoted ?? "a message not shown here")", width: columns - indent)
            rows.append(Row(Span(String(repeating: " ", count: indent) + text, .dim)))
        }
        var lines = message.file.map { [fileLine($0, message)] } ?? []
        if let text = message.text, message.file == nil || !text.isEmpty { lines += ShownText.lines(text) }
        if lines.isEmpty { lines = ["(\(safe(message.type)))"] }
        var wrapped = lines.flatMap { Wrapping.wrap($0, width: width) }
        let mark = mark(message)
        if !mark.isEmpty {
            let last = wrapped[wrapped.count - 1]
            if CellWidth.of(last) + CellWidth.of(mark) + 1 <= width {
                wrapped[wrapped.count - 1] = last.isEmpty ? mark : "\(last) \(mark)"
            } else {
                wrapped.append(mark)
            }
        }
        let name = safe(message.from)
        let tone: Tone = message.member == nil ? .strong : .name(Self.number(of: name))
        for (index, line) in wrapped.enumerated() {
            var spans: [Span] = []
            if index == 0 {
                spans.append(Span(clock(message.sentAt) + " ", isSelected ? .selected : .dim))
                spans.append(Span(Wrapping.fit(name, width: nameWidth) + "  ", isSelected ? .selected : tone))
            } else {
                spans.append(Span(String(repeating: " ", count: indent), isSelected ? .selected : .plain))
            }
            spans.append(Span(line, isSelected ? .selected : .plain))
            rows.append(Row(spans: spans, right: index == 0 ? left(message) : nil))
        }
        if let reactions = message.reactions, !reactions.isEmpty {
            let signs = reactions.map { "\(safe($0.reaction)) \(safe($0.from))" }.joined(separator: "  ")
            let text = Wrapping.cut(signs, width: columns - indent)
            rows.append(Row(Span(String(repeating: " ", count: indent) + text, .dim)))
        }
        return rows
    }

    private static func number(of name: String) -> Int { name.utf8.reduce(0) { ($0 &* 31 &+ Int($1)) & 0xFFFF } }

    private func fileLine(_ file: MessageFile, _ message: Message) -> String {
        let state =
            switch file.state {
            case "complete": message.member == nil ? "" : file.mediaType.hasPrefix("image/") ? ", image" : ""
            case "failed": ", lost"
            default: ", \(file.percent) %"
            }
        return "▤ \(safe(file.name)) (\(Words.size(file.byteCount))\(state))"
    }

    private func mark(_ message: Message) -> String {
        guard message.member == nil else { return "" }
        switch message.state {
        case "queued": return "…"
        case Room.sending: return model.isSilent ? "… no answer" : "…"
        case "failed": return "✗ failed"
        case "cancelled": return "✗ cancelled"
        case "expiredUndelivered": return "✗ expired before it arrived"
        default: break
        }
        let deliveries = message.deliveries ?? []
        let count = deliveries.filter { ["delivered", "read"].contains($0.state) }.count
        let mailed = deliveries.filter { $0.state == "mailed" }.count
        if message.state == "mailed", count == 0 { return "⇡ in the mailbox" }
        let rest = mailed == 0 ? "" : " ⇡ \(mailed)/\(deliveries.count) in the mailbox"
        if count == 0 { return "✓" + rest }
        if !deliveries.isEmpty, deliveries.allSatisfy({ $0.state == "read" }) { return "✓✓ read" }
        return "✓✓ \(count)/\(deliveries.count)" + rest
    }

    private func left(_ message: Message) -> Span? {
        guard let expiresAt = message.expiresAt else {
            return room.retention == .ephemeral || room.unanswered.contains(message)
                ? nil : Span(Self.memoryOnly, .memory)
        }
        let left = expiresAt.milliseconds - model.now.milliseconds
        return Span(Words.left(left), left <= 60_000 ? .warning : .dim)
    }
}
