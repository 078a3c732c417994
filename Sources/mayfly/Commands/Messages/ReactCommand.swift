import ArgumentParser
import Control

struct ReactCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "react",
        abstract: "Add or remove an emoji reaction.",
        discussion: """
            Examples:
              mayfly react room @1 👍
              mayfly react room 4f1c 👍
              mayfly react room 4f1c 👍 --remove
            """
    )

    @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String
    @Argument(help: "The message: the start of its id, or @1 for the newest.") var message: String
    @Argument(help: "An emoji.") var emoji: String
    @Flag(help: "Take it back.") var remove = false
    @Option(help: "End only when it has come this far.") var wait: SendCommand.Wait?
    @Option(
        parsing: .unconditional,
        help: ArgumentHelp("How long to wait: 60 s unless given. The exit code is 4 after that.", valueName: "seconds")
    )
    var timeout: Interval?
    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        let timeout = timeout ?? Interval(milliseconds: 60_000)
        let params = ReactMethod.Params(
            conversation: conversation,
            message: message,
            reaction: emoji,
            remove: remove ? true : nil,
            wait: wait?.stage,
            timeout: wait == nil ? nil : timeout
        )
        try call(ReactMethod.self, params, timeout: timeout.withGrace, terminal) { SendCommand.show($0, terminal) }
    }
}

extension ConversationCommand {
    struct Set: NodeCommand {
        static let configuration = CommandConfiguration(
            abstract: "Show or change a setting of a conversation, or of all that have none of their own.",
            discussion: """
                read-receipts=on tells the others which of their messages you have read with `mayfly read`. A key without
                a value shows the present one.

                Examples:
                  mayfly conversation set room read-receipts=on
                  mayfly conversation set room read-receipts
                  mayfly conversation set --default read-receipts=off
                """
        )

        @Argument(help: "The conversation, left out with --default; then KEY=VALUE or KEY.", completion: .conversation)
        var words: [String]
        @Flag(name: .customLong("default"), help: "Of all conversations that have none of their own.")
        var isDefault = false
        @OptionGroup var global: GlobalOptions

        func validate() throws {
            guard words.count == (isDefault ? 1 : 2) else {
                throw ValidationError("write CONVERSATION KEY=VALUE, or --default KEY=VALUE")
            }
        }

        func perform(_ terminal: Terminal) throws {
            let pair = words[words.count - 1].split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let params = ConversationSetMethod.Params(
                conversation: isDefault ? nil : words[0],
                key: String(pair[0]),
                value: pair.count > 1 ? String(pair[1]) : nil
            )
            try call(ConversationSetMethod.self, params, terminal) { result in
                terminal.fields([
                    ("conversation", result.conversation.map { short(safe($0)) } ?? "(default)"),
                    (safe(result.key), safe(result.value)),
                ])
            }
        }
    }
}
