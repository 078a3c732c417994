import Control

enum SlashCommand: String, CaseIterable, Sendable {
    case propose, accept, reject, withdraw, agreement
    case invite, join, decline, create, list, open
    case file, save, reply, react
    case who, profile, rename, joins, find, remove
    case block, explode, leave, help, quit

    /// Its arguments, what it does, and the equivalent shell command; empty when there is none.
    private var words: (arguments: String, summary: String, equivalent: String) {
        switch self {
        case .propose:
            (
                "1h|6h|1d|7d|30d|ephemeral [ram|disk] [once]",
                "propose how long messages are kept, with renewal after a restart",
                "mayfly lifetime propose C VALUE --mailbox ram --renew"
            )
        case .accept:
            (
                "[once]", "accept the proposal, with renewal after a restart; once: without renewal",
                "mayfly lifetime accept C --renew"
            )
        case .reject: ("", "reject the proposal", "mayfly lifetime reject C")
        case .withdraw: ("", "withdraw your own proposal", "mayfly lifetime withdraw C")
        case .agreement: ("", "show the agreement and the open proposal", "mayfly lifetime show C")
        case .invite:
            ("[24h] [single] | --code", "create an invitation; --code: a code to say aloud", "mayfly invite create C")
        case .join: ("INVITE", "join by an invitation", "mayfly join INVITE")
        case .decline: ("INVITATION", "decline an invitation", "mayfly join cancel INVITATION")
        case .create: ("NAME", "create a conversation", "mayfly conversation create --name NAME")
        case .list: ("", "all conversations (Alt-0)", "mayfly conversation list")
        case .open: ("CONVERSATION", "go to a conversation (Alt-1…9)", "")
        case .file: ("PATH [TEXT]", "send a file", "mayfly send C --file PATH")
        case .save: ("[PATH]", "save the file of the selected or the last message", "mayfly save C MESSAGE")
        case .reply:
            (
                "[@N] TEXT", "reply to the selected or the last message, or the Nth from the end",
                "mayfly send C --reply-to MESSAGE TEXT"
            )
        case .react: ("[@N] EMOJI", "add or remove an emoji reaction", "mayfly react C MESSAGE EMOJI")
        case .who: ("", "list the members and their paths", "mayfly conversation members C")
        case .profile: ("NAME", "set your own name in this conversation", "mayfly conversation profile C NAME")
        case .rename: ("NAME", "rename the conversation (creator)", "mayfly conversation rename C NAME")
        case .joins: ("on|off", "allow or stop joining (creator)", "mayfly conversation unlock C, lock C")
        case .find: ("WORDS", "select the newest message with these words; again: the one before", "")
        case .remove: ("MEMBER", "remove a member (creator)", "mayfly conversation remove C MEMBER")
        case .block: ("PEER", "refuse pings and invitations from a named node", "mayfly peer block PEER")
        case .explode: ("[2h]", "destroy the conversation for all members (creator)", "mayfly explode C")
        case .leave: ("", "leave the conversation and destroy the local copy", "mayfly conversation leave C")
        case .help: ("", "this page", "")
        case .quit: ("", "end the chat; the node goes on (Ctrl-C, twice with a draft)", "")
        }
    }

    var arguments: String { words.arguments }

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
                let equivalent = command.words.equivalent
                return Wrapping.fit(usage, width: width) + "  " + command.words.summary
                    + (equivalent.isEmpty ? "" : "  (\(equivalent))")
            }
    }
}
