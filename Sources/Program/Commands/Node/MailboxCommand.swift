import ArgumentParser
import Control

struct MailboxCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "mailbox", abstract: "Nodes that keep sealed messages for offline nodes.",
        discussion: """
            A mailbox is a node that runs with --mailbox; it serves its named peers. Its contents are sealed for the \
            offline member, so the mailbox cannot read them. A conversation uses mailboxes only if all its members \
            have agreed.

            Examples:
              mayfly run --mailbox                             on the machine that is always on
              mayfly peer set hub mailbox=on                   on the node that is often offline
              mayfly lifetime propose room 1d --mailbox disk
              mayfly mailbox status
            """, subcommands: [Status.self])
}

extension MailboxCommand {
    struct Status: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "status", abstract: "Show the state of this node's mailbox, and of the boxes kept for others.",
            discussion: """
                For each box kept for others it shows the owner's peer name and the amount of data. Only the owner can \
                see more.

                Example:
                  mayfly mailbox status --json | jq .own.state
                """)

        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try call(Methods.mailboxStatus, Nothing(), terminal) { status in
                if let own = status.own { show(own, terminal) }
                if let service = status.service { show(service, terminal) }
                if status.own == nil, status.service == nil {
                    terminal.note(
                        "no mailbox here: name one with `mayfly peer set NAME mailbox=on`, "
                            + "or be one with `mayfly run --mailbox`")
                }
            }
        }

        private func show(_ own: OwnMailboxStatus, _ terminal: Terminal) {
            terminal.fields([
                ("our mailbox", own.words), ("state", own.state.rawValue),
                ("boxes", own.boxesMax.map { "\(own.boxes) of \($0)" } ?? String(own.boxes)),
                ("slots of a box", own.slotsPerBox.map { String($0) }),
                ("bytes of a box", own.bytesPerBox.map { Words.size($0) }),
                ("kept for", own.longest.map { "\(length($0)) at most" }), ("taken", "\(own.taken) since the start"),
            ])
            if let hint = own.hint { terminal.note(safe(hint)) }
        }

        private func show(_ service: MailboxServiceStatus, _ terminal: Terminal) {
            terminal.fields(service.fields)
            guard let kept = service.kept, !kept.isEmpty else { return }
            let now = wallClock()
            terminal.table(
                ["BOX OF", "SLOTS", "SIZE", "LAST SEEN"],
                kept.map { box in
                    [
                        box.peer.map(safe) ?? "-", box.slots.map { String($0) } ?? "-",
                        box.bytes.map { Words.size($0) } ?? "-", shown(box.lastSeen, now: now),
                    ]
                })
        }
    }
}

extension OwnMailboxStatus { var words: String { "\(safe(peer)) \(safe(message))" } }

extension MailboxServiceStatus {
    /// The boxes missing from the counts of slots and bytes.
    private var unread: String {
        boxesUnread == 0 ? "" : " and those of \(boxesUnread) box\(boxesUnread == 1 ? "" : "es") not asked for yet"
    }

    var fields: [(String, String?)] {
        [
            ("mailbox for others", serving ? "named peers" : "off; stored messages stay until they expire"),
            ("boxes", "\(boxes) of \(boxesMax), of \(owners) node\(owners == 1 ? "" : "s")"),
            ("slots", "\(slots)\(unread), \(slotsPerBox) of a box"),
            ("on disk", "\(Words.size(bytes))\(unread), \(Words.size(bytesPerBox)) of a box"),
            ("in memory", "\(Words.size(memoryBytes)) of \(Words.size(memoryBytesMax))"),
            ("kept for", "\(length(longest)) at most"),
            (
                "since the start",
                "\(put) put, \(taken) taken, \(discarded) discarded, \(expired) expired, \(refused) refused"
            ),
        ]
    }
}
