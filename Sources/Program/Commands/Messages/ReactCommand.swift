import ArgumentParser
import Control

struct ReactCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "react", abstract: "Add or remove an emoji reaction.",
        discussion: """
            Examples:
              mayfly react room @1 👍
              mayfly react room 4f1c 👍
              mayfly react room 4f1c 👍 --remove
            """)

    @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String
    @Argument(help: "The message: the start of its id, or @1 for the newest.") var message: String
    @Argument(help: "An emoji.") var emoji: String
    @Flag(help: "Remove the reaction.") var remove = false
    @Option(help: "Wait for this state.") var wait: SendCommand.Wait?
    @Option(
        parsing: .unconditional,
        help: ArgumentHelp("How long to wait; after that the exit code is 4. Default: 60 s.", valueName: "seconds"))
    var timeout: Interval?
    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        let patience = timeout ?? Interval(milliseconds: 60_000)
        let params = ReactParams(
            conversation: conversation, message: message, reaction: emoji, remove: remove ? true : nil,
            wait: wait?.stage, timeout: wait == nil ? timeout : patience)
        try call(Methods.react, params, timeout: patience.withGrace, terminal) { SendCommand.show($0, terminal) }
    }
}
