import ArgumentParser
import Control

extension ConversationCommand {
    struct Set: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "set", abstract: "Show or change a setting of one conversation, or the default.",
            discussion: """
                With read-receipts=on the other members see which of their messages you have read with `mayfly read`. \
                A key without a value shows the current value.

                Examples:
                  mayfly conversation set room read-receipts=on
                  mayfly conversation set room read-receipts
                  mayfly conversation set --default read-receipts=off
                """)

        @Argument(help: "The conversation, omitted with --default; then KEY=VALUE or KEY.", completion: .conversation)
        var words: [String]
        @Flag(name: .customLong("default"), help: "The default, for conversations without their own setting.")
        var isDefault = false
        @OptionGroup var global: GlobalOptions

        func validate() throws {
            guard words.count == (isDefault ? 1 : 2) else {
                throw ValidationError("write CONVERSATION KEY=VALUE, or --default KEY=VALUE")
            }
        }

        func perform(_ terminal: Terminal) throws {
            let pair = words[words.count - 1].split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let params = ConversationSetParams(
                conversation: isDefault ? nil : words[0], key: String(pair[0]),
                value: pair.count > 1 ? String(pair[1]) : nil)
            try call(Methods.conversationSet, params, terminal) { result in
                terminal.fields([
                    ("conversation", result.conversation.map { short(safe($0)) } ?? "(default)"),
                    (safe(result.key), safe(result.value)),
                ])
            }
        }
    }
}
