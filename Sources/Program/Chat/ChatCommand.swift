import ArgumentParser
import Control
import Glibc

struct ChatCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "chat", abstract: "Chat in a conversation, full screen.",
        discussion: """
            Without CONVERSATION the chat begins with the list of conversations. The screen always shows how long your \
            messages are kept. The chat stores no messages, and clears the screen at the end. /help shows keys and \
            commands.

            --plain prints and reads lines: for pipes, slow connections and screen readers. It is the default if \
            standard input or output is not a terminal.

            Examples:
              mayfly chat room
              mayfly chat room --plain
              echo 'the build is done' | mayfly chat room --plain
            """)

    @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String?
    @Flag(help: "Print lines instead of a full screen.") var plain = false
    @Flag(help: "Run piped lines that begin with a slash as commands; without this flag they are texts.") var commands =
        false
    @OptionGroup var global: GlobalOptions

    func validate() throws {
        if global.json { throw ValidationError("chat is for people; scripts use send, read and watch with --json") }
    }

    func run() throws {
        let terminal = Terminal(json: false, home: global.home)
        do {
            let home = try global.resolvedHome()
            let isPlain = plain || isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0
            let room = try conversation.map { try id(of: $0, home: home, isPlain: isPlain) }
            if isPlain {
                let takesCommands = commands || isatty(STDIN_FILENO) == 1
                try PlainSession(home: home, room: room, takesCommands: takesCommands).run()
            } else {
                try ChatSession(home: home, room: room).run()
            }
        } catch let error as ControlError {
            terminal.report(error.naming(home: global.home))
            throw ExitCode(error.kind.exitCode)
        }
    }

    /// Reports an unknown conversation before the terminal is taken over. At a locked node the chat begins with the
    /// page of the lock, and looks for the conversation after the unlock.
    private func id(of word: String, home: String, isPlain: Bool) throws(ControlError) -> String {
        let params = ConversationParams(conversation: word)
        do throws(ControlError) {
            let answer = try ControlClient(home: home).call(Methods.conversationShow, params)
            return try understand(answer, as: Conversation.self).conversation
        } catch  where error.kind == .locked && !isPlain { return word }
    }
}
