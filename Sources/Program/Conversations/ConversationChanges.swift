import ArgumentParser
import Control
import Glibc
import Messaging
import NodeRuntime

struct ConversationRemoveParams: CodableRecord {
    var conversation = ""
    /// Prefix of its id, its name, or its peer's name.
    var member = ""
}

extension ConversationMethods {
    static let leave = NodeMethod<ConversationParams, Conversation>(
        "conversation.leave", "Leave a conversation and destroy the local copy."
    ) { params, node in
        .reaching(params.conversation, node) { node in
            var left = try Conversation(params.conversation, node)
            _ = try node.leave(params.conversation)
            left.state = "left"
            return .durable(left, node)
        }
    }

    static let lock = NodeMethod<ConversationParams, Conversation>(
        "conversation.lock", "Stop new members from joining and revoke all invitations."
    ) { params, node in try setLocked(params, true, node) }

    static let unlock = NodeMethod<ConversationParams, Conversation>(
        "conversation.unlock", "Allow joining by new invitations again."
    ) { params, node in try setLocked(params, false, node) }

    private static func setLocked(_ params: ConversationParams, _ isLocked: Bool, _ node: isolated Node)
        throws(NodeError) -> Answer<Conversation>
    {
        try node.command(params.conversation) { machine, turn throws(CommandError) in
            try machine.setLocked(isLocked, &turn)
        }
        return .durable(try Conversation(params.conversation, node), node)
    }

    static let remove = NodeMethod<ConversationRemoveParams, Conversation>(
        "conversation.remove", "Remove a member and revoke all invitations."
    ) { params, node in
        try node.removeMember(params.conversation, params.member)
        return .durable(try Conversation(params.conversation, node), node)
    }
}

extension ConversationCommand {
    enum Lock: MethodAction { static let method = ConversationMethods.lock }

    enum Unlock: MethodAction { static let method = ConversationMethods.unlock }

    struct Remove: MethodCommand {
        static let method = ConversationMethods.remove
        static let discussion = """
            The removed member is notified and receives nothing more. Its copies stay until they expire. Create \
            new invitations with `mayfly invite create`.
            """

        @OptionGroup var conversation: ConversationParams.Argument
        @Argument var member: String
        @OptionGroup var global: GlobalOptions

        func params(_ terminal: Terminal) -> ConversationRemoveParams {
            .init(conversation: conversation.conversation, member: member)
        }
    }

    struct Leave: NodeCommand {
        static let configuration = CommandConfiguration(
            ConversationMethods.leave,
            discussion: """
                Asks you to type the displayed name to confirm. --force skips the question and is required without a \
                terminal. Leaving cannot be undone.
                """)

        @OptionGroup var conversation: ConversationParams.Argument
        @Flag(help: "Do not ask for confirmation.") var force = false
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            if !force, isatty(STDIN_FILENO) != 1 {
                throw ControlError(.usage, "not left: there is no terminal to confirm on", hint: "use --force")
            }
            let client = try connect()
            let target = force ? conversation.conversation : try confirm(client)
            let value = try client.call(ConversationMethods.leave, .init(conversation: target))
            if terminal.json { return terminal.result(value) }
            try understand(value, as: Conversation.self).show(terminal)
        }

        /// - Returns: the inbox of the confirmed conversation, because an id selects its latest copy.
        private func confirm(_ client: ControlClient) throws -> String {
            let found = try client.result(ConversationMethods.show, .init(conversation))
            let name = found.title
            try Terminal.confirm(
                "This destroys your copy of '\(name)'. The other members keep theirs. It cannot be undone.",
                byTyping: name)
            return found.inbox ?? found.conversation
        }
    }
}

struct ConversationRenameParams: CodableRecord {
    var conversation = ""
    var name = ""
}

struct ConversationProfileParams: CodableRecord {
    var conversation = ""
    /// Empty removes the name.
    var profile = ""
}

struct ConversationAliasParams: CodableRecord {
    var conversation = ""
    /// Absent removes the alias.
    var alias: String?
}

struct ConversationSetParams: CodableRecord {
    /// Absent for the default.
    var conversation: String?
    /// `read-receipts`
    var key = ""
    /// `on` or `off`. Absent reads the setting.
    var value: String?
}

struct ConversationSetResult: CodableRecord {
    var conversation: String?
    var key = ""
    var value = ""
}

extension ConversationMethods {
    static let rename = NodeMethod<ConversationRenameParams, Conversation>(
        "conversation.rename", "Rename a conversation."
    ) { params, node in
        let (client, _) = try node.command(params.conversation) { machine, turn throws(CommandError) in
            try machine.rename(params.name.isEmpty ? nil : params.name, &turn)
        }
        return .durable(try Conversation(client.description, node), node)
    }

    static let profile = NodeMethod<ConversationProfileParams, Conversation>(
        "conversation.profile", "Show or set your own name in a conversation; other conversations are not affected."
    ) { params, node in
        try node.command(params.conversation) { machine, turn throws(CommandError) in
            try machine.setProfile(params.profile.isEmpty ? nil : params.profile, &turn)
        }
        return .durable(try Conversation(params.conversation, node), node)
    }

    static let alias = NodeMethod<ConversationAliasParams, Conversation>(
        "conversation.alias", "Set or remove the local alias of a conversation."
    ) { params, node in
        let client = try node.resolve(params.conversation)
        try node.assignAlias(params.alias, to: client)
        return .durable(try Conversation(client.description, node), node)
    }

    static let set = NodeMethod<ConversationSetParams, ConversationSetResult>(
        "conversation.set", "Show or change a setting of one conversation, or the default."
    ) { params, node in
        guard params.key == "read-receipts" else {
            throw ControlError(.usage, "`\(params.key)` cannot be set", hint: "keys: read-receipts")
        }
        if let value = params.value {
            guard value == "on" || value == "off" else {
                throw ControlError(.usage, "read-receipts: `\(value)` is neither on nor off")
            }
            if let conversation = params.conversation {
                try node.command(conversation) { $0.setReadReceipts(value == "on", &$1) }
            } else {
                try node.setDefaultReadReceipts(value == "on")
            }
        }
        let machine = try params.conversation.map { try node.conversation($0) }
        let isOn = machine?.record.sendsReadReceipts ?? node.sendsReadReceiptsByDefault
        return .durable(
            .init(conversation: machine?.conversation.description, key: params.key, value: isOn ? "on" : "off"), node)
    }
}

extension ConversationCommand {
    struct Rename: MethodCommand {
        static let method = ConversationMethods.rename

        @OptionGroup var conversation: ConversationParams.Argument
        @Argument var name: String
        @OptionGroup var global: GlobalOptions

        func params(_ terminal: Terminal) throws -> ConversationRenameParams {
            if name.isEmpty { throw ControlError(.usage, "the name is empty") }
            return .init(conversation: conversation.conversation, name: name)
        }
    }

    struct Profile: NodeCommand {
        static let configuration = CommandConfiguration(ConversationMethods.profile)

        @OptionGroup var conversation: ConversationParams.Argument
        @Argument(help: "The new name; '' removes it. Omit it to show the current name.") var profile: String?
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            guard let profile else {
                return try call(ConversationMethods.show, .init(conversation), terminal) { shown in
                    terminal.fields([("your name", shown.profile ?? "-")])
                }
            }
            let params = ConversationProfileParams(conversation: conversation.conversation, profile: profile)
            try call(ConversationMethods.profile, params, terminal)
        }
    }

    struct Alias: MethodCommand {
        static let method = ConversationMethods.alias
        static let discussion = """
            An alias names one conversation on this node, also when other conversations have the same name. No \
            other node learns it, and it is destroyed with the conversation. The default alias is the \
            conversation's name. After a join it is name-2, name-3 … if another conversation has that alias or \
            name.

            Examples:
              mayfly conversation alias 4f1c09ab night-shift
              mayfly conversation alias night-shift --remove
            """

        @OptionGroup var conversation: ConversationParams.Argument
        @Argument(help: "The new alias.") var alias: String?
        @Flag(help: "Remove the alias.") var remove = false
        @OptionGroup var global: GlobalOptions

        func validate() throws {
            if remove == (alias != nil) { throw ValidationError("give either the ALIAS or --remove") }
        }

        func params(_ terminal: Terminal) -> ConversationAliasParams {
            .init(conversation: conversation.conversation, alias: alias)
        }
    }

    struct Set: MethodCommand {
        static let method = ConversationMethods.set
        static let discussion = """
            With read-receipts=on the other members see which of their messages you have read with `mayfly read`. \
            A key without a value shows the current value.

            Examples:
              mayfly conversation set room read-receipts=on
              mayfly conversation set room read-receipts
              mayfly conversation set --default read-receipts=off
            """

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

        func params(_ terminal: Terminal) -> ConversationSetParams {
            let pair = words[words.count - 1].split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            return .init(
                conversation: isDefault ? nil : words[0], key: String(pair[0]),
                value: pair.count > 1 ? String(pair[1]) : nil)
        }

        func show(_ result: ConversationSetResult, _ terminal: Terminal) {
            terminal.fields([
                ("conversation", result.conversation.map(short) ?? "(default)"), (result.key, result.value),
            ])
        }
    }
}
