import ArgumentParser
import Control
import Glibc

struct ConversationCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "conversation",
        abstract: "Conversations and their members.",
        discussion: """
            A conversation is named by its name or by the start of its id.

            Examples:
              mayfly conversation create --name incident --with ann bob
              mayfly conversation list
              mayfly conversation members incident
              mayfly conversation lock incident
            """,
        subcommands: [
            Create.self, List.self, Show.self, Members.self, Leave.self, Lock.self, Unlock.self, Close.self,
            Rename.self,
            Remove.self, Profile.self, Set.self,
        ]
    )

    fileprivate static func show(_ conversation: Conversation, _ terminal: Terminal) {
        terminal.fields([
            ("conversation", safe(conversation.conversation)),
            ("name", conversation.name.map(safe) ?? "-"),
            ("role", safe(conversation.role)),
            ("state", safe(conversation.state)),
            ("locked", conversation.locked ? "yes" : "no"),
            ("lifetime", conversation.lifetime.rawValue),
            ("expires", shown(conversation.expiresAt, now: wallClock())),
            ("members", String(conversation.members.count)),
        ])
    }

    fileprivate static func members(_ conversation: Conversation, _ terminal: Terminal) {
        let now = wallClock()
        terminal.table(
            ["MEMBER", "PROFILE", "ONLINE", "PATH", "LINK", "RTT", "SINCE", "IN", "OUT"],
            conversation.members.map { member in
                [
                    safe(member.member), member.profile.map(safe) ?? "-", member.online ? "yes" : "no",
                    member.path.map(safe) ?? "-", member.link.map(shown) ?? "-", milliseconds(member.link?.rttMs),
                    shown(member.link?.since, now: now), member.link.map { FileUpload.size($0.bytesIn) } ?? "-",
                    member.link.map { FileUpload.size($0.bytesOut) } ?? "-",
                ]
            }
        )
    }
}

extension ConversationCommand {
    struct Create: NodeCommand {
        static let configuration = CommandConfiguration(
            abstract: "Start a conversation with an inbox of its own.",
            discussion: """
                Example:
                  mayfly conversation create --name incident --as ops --with ann bob
                """
        )

        @Option(help: "What to call it.") var name: String?
        @Option(name: .customLong("as"), help: "The name to show to its members.") var profile: String?
        @Option(parsing: .upToNextOption, help: ArgumentHelp("Named nodes to invite.", valueName: "peer"))
        var with: [String] = []
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            let params = ConversationCreateMethod.Params(
                name: name,
                profile: profile,
                peers: with.isEmpty ? nil : with
            )
            try call(ConversationCreateMethod.self, params, terminal) { created in
                terminal.fields([
                    ("conversation", safe(created.conversation)), ("name", created.name.map(safe) ?? "-"),
                    ("inbox", safe(created.inbox)), ("invite tag", safe(created.inviteTag)),
                ])
                // The id where the name would be taken for an option or for the end of the command.
                let name = created.name.map(safe).flatMap { $0.hasPrefix("-") || $0.contains("`") ? nil : $0 }
                let handle = quoted(name ?? short(safe(created.conversation)))
                terminal.note("invite somebody with `mayfly invite create \(handle)`")
            }
        }
    }

    struct List: NodeCommand {
        static let configuration = CommandConfiguration(abstract: "List the conversations.")

        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try callList(ConversationListMethod.self, Nothing(), "conversations", terminal) { list in
                let now = wallClock()
                terminal.table(
                    ["CONVERSATION", "NAME", "ROLE", "STATE", "MEMBERS", "LIFETIME", "EXPIRES"],
                    list.conversations.map { conversation in
                        [
                            short(safe(conversation.conversation)), conversation.name.map(safe) ?? "-",
                            safe(conversation.role), safe(conversation.state) + (conversation.locked ? ", locked" : ""),
                            String(conversation.members.count), conversation.lifetime.rawValue,
                            shown(conversation.expiresAt, now: now),
                        ]
                    }
                )
                if list.conversations.isEmpty {
                    terminal.note("no conversations; start one with `mayfly conversation create`")
                }
            }
        }
    }

    struct Rename: NodeCommand {
        static let configuration = CommandConfiguration(abstract: "Rename a conversation.")

        @Argument var conversation: String
        @Argument var name: String
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            if name.isEmpty { throw ValidationError("the name is empty") }
            try call(ConversationRenameMethod.self, .init(conversation: conversation, name: name), terminal) {
                ConversationCommand.show($0, terminal)
            }
        }
    }

    struct Remove: NodeCommand {
        static let configuration = CommandConfiguration(
            abstract: "Remove a member, and void all invites made so far.",
            discussion: """
                It is told, gets nothing more, and keeps what it has until its time. Make new invites with \
                `mayfly invite create`.
                """
        )

        @Argument var conversation: String
        @Argument var member: String
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try call(ConversationRemoveMethod.self, .init(conversation: conversation, member: member), terminal) {
                ConversationCommand.show($0, terminal)
            }
        }
    }

    struct Profile: NodeCommand {
        static let configuration = CommandConfiguration(
            abstract: "Set your own name in a conversation; the members of others do not learn it."
        )

        @Argument var conversation: String
        @Argument(help: "Empty for none.") var profile: String
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try call(ConversationProfileMethod.self, .init(conversation: conversation, profile: profile), terminal) {
                ConversationCommand.show($0, terminal)
            }
        }
    }

    struct Show: NodeCommand {
        static let configuration = CommandConfiguration(abstract: "Show one conversation.")

        @Argument var conversation: String
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try call(ConversationShowMethod.self, .init(conversation: conversation), terminal) {
                ConversationCommand.show($0, terminal)
            }
        }
    }

    struct Members: NodeCommand {
        static let configuration = CommandConfiguration(abstract: "Show who is in a conversation.")

        @Argument var conversation: String
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try call(ConversationMembersMethod.self, .init(conversation: conversation), terminal) {
                ConversationCommand.members($0, terminal)
            }
        }
    }

    struct Leave: NodeCommand {
        static let configuration = CommandConfiguration(
            abstract: "Leave a conversation and destroy the copy here.",
            discussion: """
                On a terminal it asks to type the conversation's name; --force does not ask. A script is not asked. It \
                cannot be undone.
                """
        )

        @Argument(help: "Name or id.") var conversation: String
        @Flag(help: "Do not ask.") var force = false
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            let client = try connect()
            var target = conversation
            if !force, isatty(STDIN_FILENO) == 1 { target = try confirm(client) }
            let value = try client.call(ConversationLeaveMethod.self, .init(conversation: target))
            if terminal.json { return terminal.result(value) }
            ConversationCommand.show(try understand(value, as: Conversation.self), terminal)
        }

        /// - Returns: the id of what was confirmed.
        private func confirm(_ client: ControlClient) throws -> String {
            let value = try client.call(ConversationShowMethod.self, .init(conversation: conversation))
            let found = try understand(value, as: Conversation.self)
            let name = found.name.map(safe) ?? short(found.conversation)
            try Terminal.confirm(
                "This destroys your copy of '\(name)'. The other members keep theirs. It cannot be undone.",
                byTyping: name
            )
            return found.conversation
        }
    }

    struct Lock: NodeCommand {
        static let configuration = CommandConfiguration(
            abstract: "Let nobody join any more and revoke all invitations."
        )

        @Argument var conversation: String
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try call(ConversationLockMethod.self, .init(conversation: conversation), terminal) {
                ConversationCommand.show($0, terminal)
            }
        }
    }

    struct Unlock: NodeCommand {
        static let configuration = CommandConfiguration(abstract: "Let new invitations admit again.")

        @Argument var conversation: String
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try call(ConversationUnlockMethod.self, .init(conversation: conversation), terminal) {
                ConversationCommand.show($0, terminal)
            }
        }
    }

    struct Close: NodeCommand {
        static let configuration = CommandConfiguration(
            abstract: "Close a conversation here and forget its ephemeral messages."
        )

        @Argument var conversation: String
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try call(ConversationCloseMethod.self, .init(conversation: conversation), terminal) {
                ConversationCommand.show($0, terminal)
            }
        }
    }
}
