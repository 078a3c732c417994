import ArgumentParser
import Control

struct OutboxCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "outbox", abstract: "Messages that are not acknowledged yet.",
        discussion: """
            Examples:
              mayfly outbox list
              mayfly outbox cancel 4f1c
              mayfly outbox retry 4f1c
            """, subcommands: [List.self, Cancel.self, Retry.self])

    fileprivate static func table(_ entries: [OutboxEntry], _ terminal: Terminal) {
        let now = wallClock()
        terminal.table(
            ["MESSAGE", "CONVERSATION", "TO", "STATE", "ATTEMPTS", "NEXT ATTEMPT", "EXPIRES"],
            entries.map { entry in
                [
                    short(safe(entry.message)), short(safe(entry.conversation)), safe(entry.to), safe(entry.state),
                    String(entry.attempts), shown(entry.nextAttempt, now: now), shown(entry.expiresAt, now: now),
                ]
            })
        if entries.isEmpty { terminal.note("the outbox is empty") }
    }
}

extension OutboxCommand {
    struct List: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "list", abstract: "List messages that are not acknowledged yet.")

        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            let client = try connect()
            var entries: [OutboxEntry] = []
            var from: String?
            repeat {
                let value = try client.call(Methods.outboxList, .init(from: from))
                let page = try understand(value, as: OutboxListResult.self)
                if terminal.json {
                    for entry in value["messages"]?.arrayValue ?? [] { terminal.result(entry) }
                } else {
                    entries += page.messages
                }
                // Guards against an endless loop on a page that names itself as the next.
                from = page.next == from ? nil : page.next
            } while from != nil
            if !terminal.json { OutboxCommand.table(entries, terminal) }
        }
    }

    struct Cancel: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "cancel", abstract: "Cancel an unacknowledged message.")

        @Argument var message: String
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try call(Methods.outboxCancel, .init(message: message), terminal) { OutboxCommand.table([$0], terminal) }
        }
    }

    struct Retry: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "retry", abstract: "Retry an unacknowledged message now.")

        @Argument var message: String
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try call(Methods.outboxRetry, .init(message: message), terminal) { OutboxCommand.table([$0], terminal) }
        }
    }
}
