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
    private let entries: [Entry]
    private static let memoryOnly = "memory only"

    init(_ model: ChatModel, _ room: Room, _ columns: Int) {
        self.model = model
        self.room = room
        self.columns = columns
        entries = Self.entries(room, model.calendar)
        // Only recent names, so that the cost does not grow with the room.
        let names = (room.messages + room.shownUnanswered).suffix(200).filter { !$0.isOfNode }.map {
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
        case line(String, Tone)

        var message: Message? { if case .message(let message) = self { message } else { nil } }
    }

    private static func entries(_ room: Room, _ calendar: LocalCalendar) -> [Entry] {
        var timed = (room.messages + room.shownUnanswered).map { ($0.sentAt, Entry.message($0)) }
        for other in room.faded.map({ ($0.sentAt, Entry.faded($0)) }) + room.notes.map({ ($0.at, Entry.note($0)) }) {
            // A message may have a far future time from its sender's clock, so search from the end.
            let index = (timed.lastIndex { $0.0 <= other.0 } ?? -1) + 1
            // Messages that are not loaded may belong between.
            if index == 0 && !room.isWhole || index == timed.count && !room.isAtEnd { continue }
            timed.insert(other, at: index)
        }
        var entries: [Entry] = []
        var day: LocalTime?
        for (at, entry) in timed {
            let local = calendar(at)
            if !(day?.isSameDay(local) ?? false) { entries.append(.line(local.date, .dim)) }
            day = local
            if let message = entry.message, message.message == room.firstNew { entries.append(.line("new", .strong)) }
            entries.append(entry)
        }
        return entries
    }

    /// A row of an entry.
    struct Place: Comparable {
        var entry = 0
        var row = 0

        static func < (left: Place, right: Place) -> Bool { (left.entry, left.row) < (right.entry, right.row) }
    }

    var end: Place { Place(entry: entries.count) }

    func moved(_ place: Place, by count: Int) -> Place {
        var place = Place(entry: place.entry, row: place.row + count)
        while place.row < 0, place.entry > 0 {
            place.entry -= 1
            place.row += rows(at: place.entry).count
        }
        while place.entry < entries.count {
            let count = rows(at: place.entry).count
            guard place.row >= count else { return Place(entry: place.entry, row: max(0, place.row)) }
            place = Place(entry: place.entry + 1, row: place.row - count)
        }
        return end
    }

    /// The first row on the screen. The selected message is on the screen.
    func top(_ count: Int) -> Place {
        var place = moved(end, by: -count)
        if case .at(let id, let row) = room.position, let index = index(of: id) {
            place = min(place, moved(Place(entry: index), by: row))
        }
        guard let index = model.selection.flatMap({ index(of: $0) }) else { return place }
        let (first, next) = (Place(entry: index), Place(entry: index + 1))
        return min(first, max(place, moved(next, by: -count)))
    }

    private func index(of id: HexID) -> Int? { entries.firstIndex { $0.message?.message == id } }

    /// The position of a screen that begins with this row.
    func position(of place: Place) -> Room.Position {
        let isMessage = entries.map { $0.message != nil }
        guard let index = isMessage[place.entry...].firstIndex(of: true) ?? isMessage.lastIndex(of: true),
            let id = entries[index].message?.message
        else { return .newest }
        let between = (min(index, place.entry)..<max(index, place.entry)).reduce(0) { $0 + rows(at: $1).count }
        return .at(id, row: place.row + (index < place.entry ? between : -between))
    }

    /// The last of the user's or members' messages that begins on a screen.
    func lastMessage(from top: Place, _ count: Int) -> HexID? {
        let bottom = moved(top, by: count - 1)
        return entries.prefix(bottom.entry + 1).last { !($0.message?.isOfNode ?? true) }?.message?.message
    }

    /// The rows of the screen.
    func rows(_ count: Int) -> [Row] {
        let top = self.top(count)
        var rows: [Row] = []
        for index in top.entry..<entries.count where rows.count < top.row + count { rows += self.rows(at: index) }
        return Array(rows.dropFirst(top.row).prefix(count))
    }

    private func rows(at index: Int) -> [Row] {
        switch entries[index] {
        case .message(let one): return message(one)
        case .faded(let faded): return [Row(Span("\(clock(faded.sentAt)) · · · expired", .dim))]
        case .note(let note):
            return wrap(note.text, columns - 7).enumerated().map { index, line in
                Row(Span("\(index == 0 ? clock(note.at) : "     ") \(index == 0 ? "· " : "  ")\(line)", .dim))
            }
        case .line(let text, let tone): return [Row(Span(Wrapping.cut(" ── \(text) ──", width: columns), tone))]
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
        let margin = String(repeating: " ", count: indent)
        var rows: [Row] = []
        if let answered = message.replyTo {
            let target = room.messages.first { $0.message.description == answered }
            let quoted = target.map { "\(ChatModel.you($0.from)): \(safe($0.text ?? $0.file?.name ?? ""))" }
            let text = Wrapping.cut("↳ \(quoted ?? "a message not shown here")", width: columns - indent)
            rows.append(Row(Span(margin + text, .dim)))
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
        func span(_ text: String, _ tone: Tone) -> Span { Span(text, isSelected ? .selected : tone) }
        let head = [span(clock(message.sentAt) + " ", .dim), span(Wrapping.fit(name, width: nameWidth) + "  ", tone)]
        for (index, line) in wrapped.enumerated() {
            let start = index == 0 ? head : [span(margin, .plain)]
            rows.append(Row(spans: start + [span(line, .plain)], right: index == 0 ? left(message) : nil))
        }
        if let reactions = message.reactions, !reactions.isEmpty {
            let signs = reactions.map { "\(safe($0.reaction)) \(safe($0.from))" }.joined(separator: "  ")
            let text = Wrapping.cut(signs, width: columns - indent)
            rows.append(Row(Span(margin + text, .dim)))
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
        return "▤ \(safe(file.name)) (\(sizeText(file.byteCount))\(state))"
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
