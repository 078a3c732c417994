import Glibc
import Testing

@Suite("Terminal of the chat", .script) struct ChatTerminalTests {
    @Test("A terminal whose output is not read does not delay the end of the chat; a crash restores the terminal")
    func ends() throws {
        try withRoom { ann, _, _ in
            func open() throws -> (PseudoTerminal, Child) {
                let terminal = try PseudoTerminal()
                let chat = try terminal.child(["setsid", "--ctty", Program.mayfly, "chat", "room", "--home", ann.home])
                try terminal.expect("MEMORY ONLY")
                #expect(!terminal.shows)
                return (terminal, chat)
            }
            let (unread, chat) = try open()
            // Each makes it draw the whole screen, until the terminal's buffer is full.
            for _ in 0..<500 {
                chat.signal(SIGCONT)
                usleep(2_000)
            }
            chat.signal(SIGTERM)
            #expect(chat.wait(seconds: 20) == 0)
            withExtendedLifetime(unread) {}
            for number in [SIGSEGV, SIGTRAP, SIGABRT] {
                let (terminal, chat) = try open()
                chat.signal(number)
                #expect(chat.wait(seconds: 30) == -number)
                try terminal.expect("\u{1B}[?1049l")
                #expect(terminal.shows)
            }
        }
    }
}
