import Control
import Messaging

extension ChatModel {
    static let smallest = Picture.Size(columns: 32, rows: 8)

    func picture(_ size: Picture.Size) -> Picture {
        guard size.columns >= Self.smallest.columns, size.rows >= Self.smallest.rows else {
            let rows = (0..<max(1, size.rows)).map {
                $0 == 0 ? Row(Span(Wrapping.cut("too small", width: size.columns))) : Row()
            }
            return Picture(size: size, rows: rows, cursor: (0, 0))
        }
        let (input, cursor) = inputRows(size)
        let bottom = cardRows(size.columns) + input + [statusRow(size.columns)]
        let room = bodyCount(size)
        let body = bodyRows(columns: size.columns, count: room)
        // A card that is too high loses its beginning, not the input line.
        let rows = ([headerRow(size.columns)] + body + bottom.suffix(size.rows - 1 - room))
        return Picture(
            size: size, rows: rows.prefix(size.rows).map { $0.cut(to: size.columns) },
            cursor: (size.rows - 1 - input.count + cursor.row, min(size.columns - 1, cursor.column)))
    }

    func bodyCount(_ size: Picture.Size) -> Int {
        max(1, size.rows - 2 - cardRows(size.columns).count - inputRows(size).0.count)
    }

    private func headerRow(_ columns: Int) -> Row {
        if isLocked { return Row(Span(" mayfly · locked", .bar)) }
        guard let room else {
            let unread = rooms.reduce(0) { $0 + $1.unreadCount }
            let count = rooms.count == 1 ? "1 conversation" : "\(rooms.count) conversations"
            return Row(
                Span(Wrapping.cut(" mayfly · \(count)\(unread > 0 ? " · \(unread) unread" : "")", width: columns), .bar)
            )
        }
        let right = retention(room, columns)
        let names = room.conversation.members.isEmpty ? "nobody else yet" : room.presence
        let left = " \(room.title) · \(names)"
        return Row(Span(Wrapping.cut(left, width: max(0, columns - CellWidth.of(right.text) - 1)), .bar), right: right)
    }

    private func retention(_ room: Room, _ columns: Int) -> Span {
        let isNarrow = columns < 60
        if room.isExploded { return Span(" EXPLODED ", .exploding) }
        if let at = room.explodesAt {
            let left = Words.countdown(at.milliseconds - now.milliseconds)
            return Span(isNarrow ? " ENDS \(left) " : " explodes in \(left) ", .exploding)
        }
        if room.retention == .ephemeral { return Span(isNarrow ? " MEMORY " : " MEMORY ONLY ", .memory) }
        let kept = Words.lifetime(room.retention).uppercased()
        return Span(isNarrow ? " KEPT \(kept) " : " KEPT \(kept) on disk ", .kept)
    }

    private func inputRows(_ size: Picture.Size) -> ([Row], (row: Int, column: Int)) {
        let prompt = inputPrompt
        let text = String(editor.text[..<editor.cursor]).replacing("\n", with: "↵")
        let rest = String(editor.text[editor.cursor...]).replacing("\n", with: "↵")
        let width = size.columns - 1
        var rows: [String] = [""]
        var columns = 0
        func place(_ text: String) {
            for character in text {
                let cell = CellWidth.of(character)
                if columns + cell > width {
                    rows.append("")
                    columns = 0
                }
                rows[rows.count - 1].append(character)
                columns += cell
            }
        }
        func shown(_ text: String) -> String { isLocked ? String(repeating: "•", count: text.count) : safe(text) }
        place(prompt + shown(text))
        let cursor = (row: rows.count - 1, column: columns)
        place(shown(rest))
        // Rows around the cursor, at most a third of the screen.
        let count = min(rows.count, max(1, size.rows / 3))
        let first = max(0, min(cursor.row, rows.count - count))
        let lines = rows[first..<(first + count)].map { Row(Span($0, question == nil ? .plain : .strong)) }
        return (lines, (cursor.row - first, cursor.column))
    }

    var inputPrompt: String {
        if isLocked { return lock == .asking ? "passphrase: " : "" }
        switch question {
        case nil: return "> "
        case .explode(let id, _, _), .leave(let id): return "type \(room(id)?.title ?? ""): "
        case .paste(let text):
            let count = text.split(separator: "\n", omittingEmptySubsequences: false).count
            let lines = count == 1 ? "1 line" : "\(count) lines"
            return "paste \(lines), \(sizeText(Int64(text.utf8.count)))? Enter inserts · 1 makes one line of it · Esc "
        case .invitation(let join):
            let name = join.name.map { "\"\(Words.name($0))\"" } ?? "a conversation"
            if let agreement = join.agreement {
                return "\(name) keeps messages: \(agreement.words): a and Enter agrees · d declines · Esc "
            }
            return "\(name), from \(Words.name(join.from ?? "a stranger")): a accepts · d declines · Esc "
        case .name: return "your name, as others see it (Enter for none): "
        case .reaction:
            return ChatModel.reactions.enumerated().map { "\($0 + 1) \($1)" }.joined(separator: "  ")
                + ", or type one: "
        }
    }

    /// A notice or the lifetime of the next message; on the right, rooms with unread messages.
    private func statusRow(_ columns: Int) -> Row {
        let others = rooms.enumerated().filter { $1.id != currentID && $1.unreadCount > 0 }.map {
            "[\($0 + 1) \($1.title) \($1.unreadCount)]"
        }.joined(separator: " ")
        let right = others.isEmpty ? Span("/help", .dim) : Span(others, .strong)
        let (text, tone) = status(columns)
        let width = max(0, columns - CellWidth.of(right.text) - 1)
        if CellWidth.of(text) > width { return Row(Span(Wrapping.cut(text, width: columns), tone)) }
        return Row(Span(text, tone), right: right)
    }

    private func status(_ columns: Int) -> (String, Tone) {
        if isSilent { return (silence, .warning) }
        if let notice { return (notice.text, notice.isFailure ? .warning : .strong) }
        if let lostConnection { return ("no node: \(lostConnection)", .warning) }
        if case .explode(_, _, let isScheduled) = question {
            return ("all members' copies are destroyed \(isScheduled ? "at that time" : "now")", .warning)
        }
        if case .leave = question { return ("your copy is destroyed, and the others are told", .warning) }
        if isLocked { return ("Enter unlocks · Ctrl-C ends the chat", .dim) }
        guard let room else { return ("Enter opens · /create NAME · /join INVITE", .dim) }
        if room.isExploded { return ("Alt-X closes", .dim) }
        if selection != nil { return (selectionHelp(columns), .strong) }
        if let reply = room.reply { return answered(reply, in: room) }
        if room.position != .newest {
            let new = room.newBelow == 0 ? "scrolled up" : "\(room.newBelow) new below"
            return ("\(new): PageDown, Esc to the end", .strong)
        }
        if room.conversation.members.isEmpty { return ("nobody else is here: /invite", .dim) }
        let mailbox = room.lifetime?.agreement?.terms.mailboxWords.map { " · \($0)" } ?? ""
        guard let length = room.retention.milliseconds else {
            return ("What you send now is memory only, gone when a node stops\(mailbox)", .dim)
        }
        let end = min(now.milliseconds + length, room.explodesAt?.milliseconds ?? .max)
        let time = Words.time(Timestamp(milliseconds: end), now: now, calendar)
        return ("What you send now is kept until \(time)\(mailbox)", .dim)
    }

    private func answered(_ reply: ReplyTarget, in room: Room) -> (String, Tone) {
        if reply.isGone { return ("the message to reply to is gone", .warning) }
        guard let target = room.message(reply.message) else { return ("answers an older message", .strong) }
        let text = safe(target.text ?? target.file?.name ?? "")
        return ("answers \(ChatModel.you(target.from)): \(text)", .strong)
    }

    private func cardRows(_ columns: Int) -> [Row] {
        guard let room, !room.isExploded, overlay == nil else { return [] }
        if let proposal = room.lifetime?.proposal {
            let isOurs = proposal.member == nil
            let what = ([Words.lifetime(proposal.terms.lifetime)] + ChatModel.terms(proposal.terms)).joined(
                separator: ", ")
            let waiting = (proposal.waiting ?? []).map { ChatModel.you($0.name) }
            let head = isOurs ? "you propose \(what)" : "\(what), proposed by \(Words.name(proposal.from))"
            let isForUs = waiting.contains("you")
            return card(
                "\(head) (now \(Words.lifetime(room.retention))) · waits for \(Words.list(waiting))",
                isOurs
                    ? "Alt-W withdraw · Alt-D details"
                    : isForUs
                        ? "Alt-A accept and renew · Alt-O accept once · Alt-R reject · Alt-D details"
                        : "Alt-R reject · Alt-D details", columns)
        }
        if let ended = room.endedLifetime, room.retention == .ephemeral {
            return card(
                "From now on nothing is stored: the agreement of \(Words.lifetime(ended)) has ended",
                "Alt-P propose it again · Alt-X close this", columns)
        }
        return []
    }

    private func card(_ text: String, _ keys: String, _ columns: Int) -> [Row] {
        let width = columns - 2
        var head = Wrapping.wrap(text, width: width - 2)
        if head.count > 2 { head = [head[0], Wrapping.cut(head[1...].joined(separator: " "), width: width - 2)] }
        // The keys that answer a proposal are never cut off.
        let lines = head + Wrapping.wrap(keys, width: width - 2)
        return lines.enumerated().map { index, line in
            let isLast = index == lines.count - 1
            let (left, rule, right) = index == 0 ? ("┌", "─", "┐") : isLast ? ("└", "─", "┘") : ("│", " ", "│")
            let fill = String(repeating: rule, count: max(0, width - 2 - CellWidth.of(line)))
            return Row(Span("\(left) \(line) \(fill)\(right)", .card))
        }
    }

    private func bodyRows(columns: Int, count: Int) -> [Row] {
        guard overlay == nil, !isLocked, let room else {
            let shown =
                overlay.map { overlayRows($0, columns: columns, count: count) }
                ?? (isLocked ? Self.lockedRows(columns) : listRows(columns))
            return shown.prefix(count) + [Row](repeating: Row(), count: max(0, count - shown.count))
        }
        let shown =
            room.isExploded ? explosionRows(room, columns).suffix(count) : MessageRows(self, room, columns).rows(count)
        return [Row](repeating: Row(), count: count - shown.count) + shown
    }

    private static func lockedRows(_ columns: Int) -> [Row] {
        let words = [
            "The storage is locked: its keys are wiped and no message is shown.",
            "Enter here opens it, or `mayfly unlock`; a passphrase is asked for if the home has one.",
        ]
        return words.flatMap { Wrapping.wrap($0, width: columns) }.map { Row(Span($0, .warning)) }
    }

    private func overlayRows(_ overlay: Overlay, columns: Int, count: Int) -> [Row] {
        if case .code(let code) = overlay {
            guard code.count <= count, code.allSatisfy({ CellWidth.of($0) <= columns }) else {
                let needed = "\(CellWidth.of(code.first ?? "")) columns and \(code.count + 3) rows"
                let words = "A QR code needs \(needed). /invite --code makes a code to say aloud."
                return Wrapping.wrap(words, width: columns).prefix(count).map { Row(Span($0, .warning)) }
            }
            return code.map { Row(Span($0, .code)) }
        }
        if case .image(_, let title, let rows) = overlay {
            let head = Row(Span(Wrapping.cut(title, width: columns), .strong), right: Span("any key goes on", .dim))
            return [head, Row()] + rows.prefix(max(0, count - 2))
        }
        let (title, body) = content(of: overlay, columns)
        let place = count - 2
        let first = max(0, min(overlayScroll, body.count - place))
        let hint = body.count > place ? "arrows and PageDown scroll" : "any key goes on"
        return [Row(Span(title, .strong), right: Span(hint, .dim)), Row()]
            + body[first..<min(body.count, first + place)].map { Row(Span($0)) }
    }

    /// The title and the wrapped lines of an overlay that scrolls.
    func content(of overlay: Overlay, _ columns: Int) -> (title: String, lines: [String]) {
        let (title, lines) =
            switch overlay {
            case .help: ("Keys and commands", SlashCommand.helpLines)
            case .text(let title, let lines), .invite(let title, let lines, _): (title, lines)
            case .code, .image: ("", [String]())
            }
        // Commands to copy are not broken at spaces.
        let wrapped = lines.flatMap { line in
            line.hasPrefix("mayfly ") ? ChatModel.pieces(line, columns) : Wrapping.wrap(line, width: columns - 1)
        }
        return (title, wrapped)
    }

    private static func pieces(_ line: String, _ columns: Int) -> [String] {
        var rows = [""]
        for character in line {
            if CellWidth.of(rows[rows.count - 1]) + CellWidth.of(character) > columns { rows.append("") }
            rows[rows.count - 1].append(character)
        }
        return rows
    }

    private func listRows(_ columns: Int) -> [Row] {
        var rows: [Row] = [Row()]
        let width = min(24, rooms.map { CellWidth.of($0.title) }.max() ?? 0)
        for (index, room) in rooms.enumerated() {
            let unread = room.unreadCount > 0 ? "\(room.unreadCount) new" : ""
            let right = retention(room, columns)
            let number = index < 9 ? "\(index + 1)" : " "
            let start = " \(number) \(Wrapping.fit(room.title, width: width))  \(Wrapping.fit(unread, width: 7)) "
            let rest = Wrapping.cut(room.presence, width: columns - CellWidth.of(start) - CellWidth.of(right.text) - 1)
            let tone: Tone = index == listIndex ? .selected : room.unreadCount > 0 ? .strong : .plain
            rows.append(Row(spans: [Span(Wrapping.cut(start, width: columns), tone), Span(rest, .dim)], right: right))
        }
        if rooms.isEmpty { rows.append(Row(Span(" No conversation yet.", .dim))) }
        if !joins.isEmpty { rows.append(Row()) }
        for (index, join) in joins.enumerated() {
            let text: String
            if let agreement = join.agreement {
                text = " \(safe(join.name ?? "a conversation")) keeps messages: \(agreement.words): Enter answers"
            } else if join.state == .invited {
                let name = join.name.map { " to \"\(safe($0))\"" } ?? ""
                let from = safe(join.from ?? "a node that is not in peers.json")
                text = " \(from) invites you\(name): Enter answers"
            } else {
                text = " joining since \(Words.time(join.startedAt ?? now, now: now, calendar)) …"
            }
            let tone: Tone = rooms.count + index == listIndex ? .selected : .card
            rows.append(Row(Span(Wrapping.cut(text, width: columns), tone)))
        }
        return rows
    }

    private func explosionRows(_ room: Room, _ columns: Int) -> [Row] {
        guard let status = room.explosion else { return [] }
        let at = status.expiresAt.map { ", \(Words.time($0, now: now, calendar))" } ?? ""
        let who = status.by.map { "Exploded by \(ChatModel.you($0))\(at). " } ?? ""
        let end = "The keys are destroyed: nothing here can be read any more."
        var rows = [Row(Span(" \(who)\(end)", .strong)), Row()]
        for receipt in status.receipts ?? [] {
            let time = Words.time(receipt.destroyedAt, now: now, calendar)
            rows.append(Row(Span(" \(room.name(of: receipt.member)) ✓ \(time)", .kept)))
        }
        for member in status.waiting {
            let isOnline = room.conversation.members.first { $0.member == member }?.online ?? false
            let text =
                isOnline
                ? "is being notified"
                : status.trace == false ? "offline, not notified again" : "offline, notified again for 7 days"
            rows.append(Row(Span(" \(room.name(of: member)) \(text)", .warning)))
        }
        if let error = status.error { rows.append(Row(Span(" \(safe(error))", .warning))) }
        if status.waiting.isEmpty, !(status.receipts ?? []).isEmpty {
            rows += [Row(), Row(Span(" Every member has confirmed.", .strong))]
        }
        return rows.flatMap { row in
            guard let span = row.spans.first else { return [row] }
            return Wrapping.wrap(span.text, width: columns).map { Row(Span($0, span.tone)) }
        }
    }
}
