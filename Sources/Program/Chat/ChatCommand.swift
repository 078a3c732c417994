import ArgumentParser
import Control
import Glibc

struct ChatCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "chat", abstract: "Talk in a conversation, on the whole terminal.",
        discussion: """
            Without CONVERSATION it begins with the list of all. How long what you say is kept is always on the screen; \
            nothing is written by the chat itself, and the screen is cleared at the end. /help shows keys and commands.

            --plain writes lines, one below the other, and reads them: for pipes, slow lines and screen readers. It is what \
            you get where standard input or output is no terminal.

            Examples:
              mayfly chat room
              mayfly chat room --plain
              echo 'the build is done' | mayfly chat room --plain
            """)

    @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String?
    @Flag(help: "Lines instead of a screen.") var plain = false
    @Flag(help: "Obey lines of a pipe that begin with a slash, too; without it they are texts.") var commands = false
    @OptionGroup var global: GlobalOptions

    func validate() throws {
        if global.json { throw ValidationError("chat is for people; scripts use send, read and watch with --json") }
    }

    func run() throws {
        let terminal = Terminal(json: false, home: global.home)
        do {
            let home = try global.resolvedHome()
            // Reports an unknown conversation before the terminal is taken over.
            let room = try conversation.map { word in
                let params = ConversationParams(conversation: word)
                let answer = try ControlClient(home: home).call(ConversationShowMethod.self, params)
                return try understand(answer, as: Conversation.self).conversation
            }
            if plain || isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0 {
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
}
