import ArgumentParser
import Control
import Messaging
import NIOCore
import NodeRuntime

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
            Create.self, ListCall<List>.self, Call<Show>.self, Members.self, Leave.self, Call<Lock>.self,
            Call<Unlock>.self, Call<Close>.self, Rename.self, Alias.self, Remove.self, Profile.self, Set.self,
        ])
}

struct ConversationListResult: CodableRecord {
    /// Ascending by the time of joining.
    var conversations: [Conversation] = []
    /// Present when the answer was cut; pass it as `from`.
    var next: String?
}

enum ConversationMethods {
    static let all: [any ServedMethod] = [
        leave, lock, unlock, remove, rename, profile, alias, set, list, show, members, close, create,
    ]

    static let list = NodeMethod<ListParams, ConversationListResult>("conversation.list", "List the conversations.") {
        params, node in
        let all = try node.conversations().map { one in
            (one, ListPlace(at: node.createdAt(one.client), id: one.client.description))
        }
        let (shown, next) = try AnswerPage.list(
            all, from: params.from, byteCount: { AnswerPage.largestByteCount(of: $0) }, show: { Conversation($0, node) }
        )
        return .now(ConversationListResult(conversations: shown, next: next))
    }

    static let show = NodeMethod<ConversationParams, Conversation>("conversation.show", "Show one conversation.") {
        params, node in .now(try Conversation(params.conversation, node))
    }

    static let members = NodeMethod<ConversationParams, Conversation>(
        "conversation.members", "List the members of a conversation."
    ) { params, node in .now(try Conversation(params.conversation, node)) }

    static let close = NodeMethod<ConversationParams, Conversation>(
        "conversation.close", "Close a conversation on this node and discard what is memory only."
    ) { params, node in
        try node.command(params.conversation) { $0.close(&$1) }
        return .durable(try Conversation(params.conversation, node), node)
    }
}

extension ConversationCommand {
    enum List: ListAction {
        typealias Element = Conversation
        static let method = ConversationMethods.list
        static let list = "conversations"
        static var from: WritableKeyPath<ListParams, String?>? { \.from }
        static let discussion = """
            MEMBERS includes you. If you were removed and joined again, the conversation is listed twice. The \
            earlier copy has no alias; use its inbox id to name it.
            """
    }

    enum Show: MethodAction { static let method = ConversationMethods.show }

    struct Members: MethodCommand {
        static let method = ConversationMethods.members

        @OptionGroup var conversation: ConversationParams.Argument
        @OptionGroup var global: GlobalOptions

        func params(_ terminal: Terminal) -> ConversationParams { .init(conversation) }
        func show(_ result: Conversation, _ terminal: Terminal) { result.showMembers(terminal) }
    }

    enum Close: MethodAction { static let method = ConversationMethods.close }
}

struct ConversationCreateParams: CodableRecord {
    var name: String?
    /// Our name, as the members see it.
    var `as`: String?
    /// Named nodes to invite.
    var with: [String]?
    /// Alias on this node; defaults to `name`. An alias in use is refused.
    var alias: String?
}

struct ConversationCreateResult: CodableRecord {
    var conversation = ""
    var inbox = ""
    @OrNull var alias: String?
    @OrNull var name: String?
    var inviteTag = ""
}

extension ConversationMethods {
    static let create = NodeMethod<ConversationCreateParams, ConversationCreateResult>(
        "conversation.create", "Create a conversation with its own inbox."
    ) { params, node in
        for name in params.with ?? [] {
            let (peer, _) = try node.peers.peer(name)
            if peer.isBlocked { throw NodeError.peerBlocked(name) }
            if peer.card == nil { throw NodeError.peerWithoutCard(name) }
        }
        let made = try node.createConversation(name: params.name, profile: params.as, alias: params.alias)
        return .later(
            made.flatMap { [node] made in
                node.assumeIsolated { node in
                    let id = made.conversation.description
                    let result = ConversationCreateResult(
                        conversation: id, inbox: made.client.description, alias: node.alias(of: made.client),
                        name: params.name, inviteTag: made.tag?.description ?? "")
                    return invite(params.with ?? [], to: id, named: params.name, node).map { result }
                }
            })
    }

    /// Sends a single-use invite to each peer's contact inbox.
    private static func invite(_ peers: [String], to id: String, named name: String?, _ node: isolated Node)
        -> EventLoopFuture<Void>
    {
        EventLoopFuture.andAllSucceed(
            peers.map { peer in
                do {
                    return try node.invite(id, lifetime: Limits.inviteLifetime, singleUse: true).flatMapThrowing {
                        [node] invite, slug in
                        try node.assumeIsolated { node in
                            try node.noteInvitation(invite.invite.id, of: id, to: peer)
                            try node.peers.sendInvitation(slug, invite: invite, name: name, to: peer)
                        }
                    }
                } catch { return node.loop.makeFailedFuture(error) }
            }, on: node.loop)
    }
}

extension ConversationCommand {
    struct Create: MethodCommand {
        static let method = ConversationMethods.create
        static let discussion = """
            The name also becomes the alias on this node, unless --alias gives another. The command fails if \
            another conversation has that alias, so that a script cannot send to the wrong conversation.

            A member invited by --with is shown here by its peer name until it chooses its own name.

            Examples:
              mayfly conversation create --name incident --as ops --with ann bob
              mayfly conversation create --name incident --alias incident-paris
            """

        @Option(help: "The conversation's name.") var name: String?
        @Option(help: "The local alias; the name by default.") var alias: String?
        @Option(name: .customLong("as"), help: "Your name for the members; '' for none.") var profile: String?
        @Option(
            parsing: .upToNextOption, help: ArgumentHelp("Named nodes to invite.", valueName: "peer"), completion: .peer
        ) var with: [String] = []
        @OptionGroup var global: GlobalOptions

        func params(_ terminal: Terminal) throws -> ConversationCreateParams {
            .init(
                name: name, as: try profile ?? OwnName.ask(global, terminal), with: with.isEmpty ? nil : with,
                alias: alias)
        }

        func show(_ created: ConversationCreateResult, _ terminal: Terminal) {
            terminal.fields([
                ("conversation", created.conversation), ("alias", created.alias ?? "-"), ("name", created.name ?? "-"),
                ("inbox", created.inbox), ("invite tag", created.inviteTag),
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
                terminal.note("the name cannot be an alias; set one with `mayfly conversation alias \(handle) NAME`")
            }
        }
    }
}
