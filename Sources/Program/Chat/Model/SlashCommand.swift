import Control

enum SlashCommand: String, CaseIterable, Sendable {
    case propose, accept, reject, withdraw, agreement
    case invite, join, decline, create, list, open
    case file, save, reply, react
    case who, profile, rename, joins, find, remove
    case block, explode, leave, help, quit

    var arguments: String {
        switch self {
        case .propose: "1h|6h|1d|7d|30d|ephemeral [ram|disk] [once]"
        case .accept: "[once]"
        case .joins: "on|off"
        case .find: "WORDS"
        case .invite: "[24h] [single] | --code"
        case .block: "PEER"
        case .join: "INVITE"
        case .decline: "INVITATION"
        case .create, .profile, .rename: "NAME"
        case .open: "CONVERSATION"
        case .file: "PATH [TEXT]"
        case .save: "[PATH]"
        case .reply: "[@N] TEXT"
        case .react: "[@N] EMOJI"
        case .remove: "MEMBER"
        case .explode: "[2h]"
        case .reject, .withdraw, .agreement, .list, .who, .leave, .help, .quit: ""
        }
    }

    var summary: String {
        switch self {
        case .propose: "propose how long messages are kept, with renewal after a restart"
        case .accept: "accept the proposal, with renewal after a restart; once: without renewal"
        case .reject: "reject the proposal"
        case .withdraw: "withdraw your own proposal"
        case .agreement: "show the agreement and the open proposal"
        case .invite: "create an invitation; --code: a code to say aloud"
        case .block: "refuse pings and invitations from a named node"
        case .join: "join by an invitation"
        case .decline: "decline an invitation"
        case .create: "create a conversation"
        case .list: "all conversations (Alt-0)"
        case .open: "go to a conversation (Alt-1…9)"
        case .file: "send a file"
        case .save: "save the file of the selected or the last message"
        case .reply: "reply to the selected or the last message, or the Nth from the end"
        case .react: "add or remove an emoji reaction"
        case .who: "list the members and their paths"
        case .profile: "set your own name in this conversation"
        case .rename: "rename the conversation (creator)"
        case .joins: "allow or stop joining (creator)"
        case .find: "select the newest message with these words; again: the one before"
        case .remove: "remove a member (creator)"
        case .explode: "destroy the conversation for all members (creator)"
        case .leave: "leave the conversation and destroy the local copy"
        case .help: "this page"
        case .quit: "end the chat; the node goes on (Ctrl-C, twice with a draft)"
        }
    }

    /// The equivalent shell command; empty when there is none.
    var equivalent: String {
        switch self {
        case .propose: "mayfly lifetime propose C VALUE --mailbox ram --renew"
        case .accept: "mayfly lifetime accept C --renew"
        case .reject: "mayfly lifetime reject C"
        case .withdraw: "mayfly lifetime withdraw C"
        case .agreement: "mayfly lifetime show C"
        case .invite: "mayfly invite create C"
        case .join: "mayfly join INVITE"
        case .decline: "mayfly join cancel INVITATION"
        case .create: "mayfly conversation create --name NAME"
        case .list: "mayfly conversation list"
        case .file: "mayfly send C --file PATH"
        case .save: "mayfly save C MESSAGE"
        case .reply: "mayfly send C --reply-to MESSAGE TEXT"
        case .react: "mayfly react C MESSAGE EMOJI"
        case .who: "mayfly conversation members C"
        case .profile: "mayfly conversation profile C NAME"
        case .rename: "mayfly conversation rename C NAME"
        case .joins: "mayfly conversation unlock C, lock C"
        case .remove: "mayfly conversation remove C MEMBER"
        case .block: "mayfly peer block PEER"
        case .explode: "mayfly explode C"
        case .leave: "mayfly conversation leave C"
        case .open, .find, .help, .quit: ""
        }
    }

    /// The slash command for a shell command in a node's hint, or the shell command itself.
    static func inPlace(of shell: String) -> String {
        allCases.first { $0.equivalent.hasPrefix(shell) }.map { "/\($0.rawValue)" } ?? shell
    }

    static var helpLines: [String] {
        let usages = allCases.map { "/\($0.rawValue) \($0.arguments)" }
        let width = usages.map(\.count).max() ?? 0
        return [
            "Enter sends · Alt-Enter breaks the line · Tab completes · arrows: earlier texts",
            "Alt-Up selects a message: Enter replies, Alt-E reacts, Alt-S saves its file, Alt-V shows its image,",
            "Alt-W shows who has it, Alt-C cancels it while it is queued, Esc leaves it. A letter begins a text.",
            " PageUp scrolls · Alt-1…9 goes to a conversation, Alt-0 to the list",
            "✓ sent · ✓✓ 1/2 one of two members has it · ⇡ in a mailbox · ● linked · ○ not linked",
            "A text that begins with a slash: write it twice.", "",
        ]
            + zip(allCases, usages).map { command, usage in
                let equivalent = command.equivalent.isEmpty ? "" : "  (\(command.equivalent))"
                return Wrapping.fit(usage, width: width) + "  " + command.summary + equivalent
            }
    }
}
