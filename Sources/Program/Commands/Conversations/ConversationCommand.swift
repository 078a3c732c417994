import ArgumentParser
import Control
import Glibc
import Messaging

struct ConversationCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "conversation", abstract: "Conversations and their members.",
        discussion: """
            Every command finds a conversation by its alias, its id or the start of it, or its name, in this order. \
            The alias is local: it is unique on this node, and no other member can change or remove it. The creator \
            sets the name; several conversations may have the same name.

            Examples:
              mayfly conversation create --name incident --with ann bob
              mayfly conversation list
              mayfly conversation alias incident night-shift
              mayfly conversation members incident
              mayfly conversation lock incident
            """,
        subcommands: [
            Create.self, List.self, Call<Show>.self, Members.self, Leave.self, Call<Lock>.self, Call<Unlock>.self,
            Call<Close>.self, Rename.self, Alias.self, Remove.self, Profile.self, Set.self,
        ])

    static func show(_ conversation: Conversation, _ terminal: Terminal) {
        terminal.fields([
            ("conversation", conversation.conversation), ("alias", conversation.alias ?? "-"),
            ("name", conversation.name ?? "-"), ("role", conversation.role), ("state", conversation.state),
            ("locked", conversation.locked ? "yes" : "no"),
            ("lifetime", conversation.lifetime.shown + (conversation.mailbox?.words.map { ", \($0)" } ?? "")),
            ("unread", unread(conversation.unread)), ("your name", conversation.profile ?? "-"),
            ("read receipts", conversation.readReceipts.map { $0 ? "on" : "off" }),
            ("expires", shown(conversation.expiresAt)), ("members", String(conversation.memberCount)),
        ])
    }

    fileprivate static func members(_ conversation: Conversation, _ terminal: Terminal) {
        terminal.table(
            ["NAME", "MEMBER", "ONLINE", "MAILBOX", "PATH", "LINK", "RTT", "SINCE", "IN", "OUT"],
            conversation.members.map { member in
                [
                    member.profile ?? member.peer ?? "-", member.member, member.online ? "yes" : "no",
                    member.mailbox?.rawValue ?? "-", member.path ?? "-", member.link.map(shown) ?? "-",
                    milliseconds(member.link?.rttMs), shown(member.link?.since),
                    member.link.map { Words.size($0.bytesIn) } ?? "-",
                    member.link.map { Words.size($0.bytesOut) } ?? "-",
                ]
            })
        for member in conversation.members {
            let name = (member.profile ?? member.peer).map(safe) ?? safe(member.member)
            if member.copied ?? false { terminal.note(Words.copies(of: name)) }
            if member.reportsCopies ?? false { terminal.note(Words.copies(reportedBy: name)) }
        }
        for member in conversation.members {
            guard let lost = member.lost else { continue }
            let place = "\(safe(member.member)) over \(safe(lost.transport))"
            terminal.note("the last link to \(place) was lost: \(lost.words)")
        }
    }
}

extension ConversationCommand {
    struct Create: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "create", abstract: "Create a conversation with its own inbox.",
            discussion: """
                The name also becomes the alias on this node, unless --alias gives another. The command fails if \
                another conversation has that alias, so that a script cannot send to the wrong conversation.

                A member invited by --with is shown here by its peer name until it chooses its own name.

                Examples:
                  mayfly conversation create --name incident --as ops --with ann bob
                  mayfly conversation create --name incident --alias incident-paris
                """)

        @Option(help: "The conversation's name.") var name: String?
        @Option(help: "The local alias; the name by default.") var alias: String?
        @Option(name: .customLong("as"), help: "Your name for the members; '' for none.") var profile: String?
        @Option(
            parsing: .upToNextOption, help: ArgumentHelp("Named nodes to invite.", valueName: "peer"), completion: .peer
        ) var with: [String] = []
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            let params = ConversationCreateParams(
                name: name, profile: try profile ?? OwnName.ask(global, terminal), peers: with.isEmpty ? nil : with,
                alias: alias)
            try call(Methods.conversationCreate, params, terminal) { created in
                terminal.fields([
                    ("conversation", created.conversation), ("alias", created.alias ?? "-"),
                    ("name", created.name ?? "-"), ("inbox", created.inbox), ("invite tag", created.inviteTag),
                ])
                let handle = handle(created.alias, created.conversation)
                if with.isEmpty {
                    terminal.note("invite members with `mayfly invite create \(handle)`")
                } else {
                    terminal.note(
                        "\(with.map(safe).joined(separator: " and ")) will be invited; see who has joined with "
                            + "`mayfly conversation members \(handle)`, and talk with `mayfly chat \(handle)`")
                }
                if created.alias == nil, created.name != nil {
                    terminal.note(
                        "the name cannot be an alias; set one with `mayfly conversation alias \(handle) NAME`")
                }
            }
        }
    }

    struct List: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "list", abstract: "List the conversations.",
            discussion: """
                MEMBERS includes you. If you were removed and joined again, the conversation is listed twice. The \
                earlier copy has no alias; use its inbox id to name it.
                """)

        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try callList(Methods.conversationList, .init(), from: \.from, "conversations", terminal) {
                (conversations: [Conversation]) in
                let latest = Dictionary(conversations.map { ($0.conversation, $0.inbox) }, uniquingKeysWith: { $1 })
                terminal.table(
                    ["CONVERSATION", "ALIAS", "NAME", "UNREAD", "ROLE", "STATE", "MEMBERS", "LIFETIME", "EXPIRES"],
                    conversations.map { conversation in
                        [
                            // An id selects the latest copy of a conversation.
                            short(
                                latest[conversation.conversation] == conversation.inbox
                                    ? conversation.conversation : conversation.inbox ?? conversation.conversation),
                            conversation.alias ?? "-", conversation.name ?? "-",
                            ConversationCommand.unread(conversation.unread), conversation.role,
                            conversation.state + (conversation.locked ? ", locked" : ""),
                            String(conversation.memberCount), conversation.lifetime.shown,
                            shown(conversation.expiresAt),
                        ]
                    })
                if conversations.isEmpty {
                    terminal.note("no conversations; start one with `mayfly conversation create`")
                }
            }
        }
    }

    private static let mostUnread = 1_000

    fileprivate static func unread(_ count: Int) -> String {
        count == 0 ? "-" : count < mostUnread ? String(count) : "\(mostUnread)+"
    }

    struct Rename: NodeCommand {
        static let configuration = CommandConfiguration(commandName: "rename", abstract: "Rename a conversation.")

        @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String
        @Argument var name: String
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            if name.isEmpty { throw ControlError(.usage, "the name is empty") }
            try call(Methods.conversationRename, .init(conversation: conversation, name: name), terminal)
        }
    }

    struct Alias: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "alias", abstract: "Set or remove the local alias of a conversation.",
            discussion: """
                An alias names one conversation on this node, also when other conversations have the same name. No \
                other node learns it, and it is destroyed with the conversation. The default alias is the \
                conversation's name. After a join it is name-2, name-3 … if another conversation has that alias or \
                name.

                Examples:
                  mayfly conversation alias 4f1c09ab night-shift
                  mayfly conversation alias night-shift --remove
                """)

        @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String
        @Argument(help: "The new alias.") var alias: String?
        @Flag(help: "Remove the alias.") var remove = false
        @OptionGroup var global: GlobalOptions

        func validate() throws {
            if remove == (alias != nil) { throw ValidationError("give either the ALIAS or --remove") }
        }

        func perform(_ terminal: Terminal) throws {
            try call(Methods.conversationAlias, .init(conversation: conversation, alias: alias), terminal)
        }
    }

    struct Remove: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "remove", abstract: "Remove a member and revoke all invitations.",
            discussion: """
                The removed member is notified and receives nothing more. Its copies stay until they expire. Create \
                new invitations with `mayfly invite create`.
                """)

        @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String
        @Argument var member: String
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try call(Methods.conversationRemove, .init(conversation: conversation, member: member), terminal)
        }
    }

    struct Profile: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "profile",
            abstract: "Show or set your own name in a conversation; other conversations are not affected.")

        @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String
        @Argument(help: "The new name; '' removes it. Omit it to show the current name.") var profile: String?
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            guard let profile else {
                return try call(Methods.conversationShow, .init(conversation: conversation), terminal) { shown in
                    terminal.fields([("your name", shown.profile ?? "-")])
                }
            }
            try call(Methods.conversationProfile, .init(conversation: conversation, profile: profile), terminal)
        }
    }

    enum Show: MethodAction {
        static let configuration = CommandConfiguration(commandName: "show", abstract: "Show one conversation.")
        static let method = Methods.conversationShow
    }

    struct Members: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "members", abstract: "List the members of a conversation.")

        @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try call(Methods.conversationMembers, .init(conversation: conversation), terminal) {
                ConversationCommand.members($0, terminal)
            }
        }
    }

    struct Leave: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "leave", abstract: "Leave a conversation and destroy the local copy.",
            discussion: """
                Asks you to type the displayed name to confirm. --force skips the question and is required without a \
                terminal. Leaving cannot be undone.
                """)

        @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String
        @Flag(help: "Do not ask for confirmation.") var force = false
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            if !force, isatty(STDIN_FILENO) != 1 {
                throw ControlError(.usage, "not left: there is no terminal to confirm on", hint: "use --force")
            }
            let client = try connect()
            let target = force ? conversation : try confirm(client)
            let value = try client.call(Methods.conversationLeave, .init(conversation: target))
            if terminal.json { return terminal.result(value) }
            ConversationCommand.show(try understand(value, as: Conversation.self), terminal)
        }

        /// - Returns: the inbox of the confirmed conversation, because an id selects its latest copy.
        private func confirm(_ client: ControlClient) throws -> String {
            let value = try client.call(Methods.conversationShow, .init(conversation: conversation))
            let found = try understand(value, as: Conversation.self)
            let name = found.title
            try Terminal.confirm(
                "This destroys your copy of '\(name)'. The other members keep theirs. It cannot be undone.",
                byTyping: name)
            return found.inbox ?? found.conversation
        }
    }

    enum Lock: MethodAction {
        static let configuration = CommandConfiguration(
            commandName: "lock", abstract: "Stop new members from joining and revoke all invitations.")
        static let method = Methods.conversationLock
    }

    enum Unlock: MethodAction {
        static let configuration = CommandConfiguration(
            commandName: "unlock", abstract: "Allow joining by new invitations again.")
        static let method = Methods.conversationUnlock
    }

    enum Close: MethodAction {
        static let configuration = CommandConfiguration(
            commandName: "close", abstract: "Close a conversation on this node and discard what is memory only.")
        static let method = Methods.conversationClose
    }
}

extension Conversation {
    var title: String { (alias ?? name).map(safe) ?? short(safe(conversation)) }

    /// Includes us, unless we were removed.
    var memberCount: Int { members.count + (state == "removed" ? 0 : 1) }
}

/// The word that names a conversation on a command line: its quoted alias, or a prefix of its id. The prefix is used
/// without an alias, or when the alias has a backquote, which would end the suggested command.
func handle(_ alias: String?, _ conversation: String) -> String {
    quoted(alias.map(safe).flatMap { $0.contains("`") ? nil : $0 } ?? short(safe(conversation)))
}

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
                    ("conversation", result.conversation.map(short) ?? "(default)"), (result.key, result.value),
                ])
            }
        }
    }
}

extension Conversation: ShownRecord { func show(_ terminal: Terminal) { ConversationCommand.show(self, terminal) } }
