import ArgumentParser
import Control
import Cryptography
import Glibc
import Messaging
import NIOCore
import NodeRuntime

/// Whether the inbox named in the invitation signed it.
enum InviteSignature: String, JSONChoice, Hashable, Sendable {
    case valid
    case invalid
}

struct Invite: CodableRecord {
    /// Invite link, `mayfly:join/…`; null in a list, because the creator keeps only a hash of the secret.
    @OrNull var slug: String?
    /// Hash of the secret, in hex; `mayfly invite revoke` takes a prefix of it.
    var id: String?
    /// Invitations with the same tag are revoked together.
    var tag = ""
    @OrNull var expiresAt: Timestamp?
    var singleUse = false
    var creator = ""
    /// The lifetime in force when the invitation was made.
    var lifetime: Lifetime = .ephemeral
    var signature: InviteSignature = .valid
    var conversationExpiresAt: Timestamp?
    var name: String?
    var description: String?
    /// Number of members admitted; only in a list.
    var admitted: Int?
}

struct InviteCreateParams: CodableRecord {
    var conversation = ""
    /// Absent means 24 h.
    var expiresIn: Interval?
    var singleUse: Bool?
}

struct InviteListResult: CodableRecord {
    var invites: [Invite] = []
    var codes: [OpenInviteCode] = []
}

/// A spoken code that is still open.
struct OpenInviteCode: CodableRecord {
    var code = ""
    var expiresAt: Timestamp = Timestamp(milliseconds: 0)
}

struct InviteRevokeParams: CodableRecord {
    var conversation = ""
    /// Invite link, or a prefix of the id. Absent means all.
    var invite: String?
}

struct InviteRevokeResult: CodableRecord {
    var ok = false
    var conversation = ""
    /// The tag of future invitations; new when all were revoked.
    var tag = ""
}

struct InviteInspectParams: CodableRecord { var slug = "" }

struct InviteCodeParams: CodableRecord {
    var conversation = ""
    /// True revokes the code when this connection ends. Absent means false.
    var wait: Bool?
}

struct InviteCodeResult: CodableRecord {
    /// A number and two words.
    var code = ""
    /// Parameter of `invite.outcome`.
    var number: Int64 = 0
    var conversation = ""
    var expiresAt: Timestamp?
    /// Addresses of this node, for `mayfly join CODE --at`.
    var endpoints: [String] = []
}

struct InviteOutcomeParams: CodableRecord {
    /// The `number` that `invite.code` returned.
    var number: Int64 = 0
}

struct InviteOutcomeResult: CodableRecord {
    var number: Int64 = 0
    var outcome: CodeOutcome = .taken
}

extension Invite {
    init(_ verified: VerifiedInvite, slug: String) {
        let invite = verified.invite
        let slug = slug.filter { !$0.isWhitespace }
        let bare = slug.hasPrefix("mayfly:join/") ? String(slug.dropFirst("mayfly:join/".count)) : slug
        self.init(
            slug: "mayfly:join/" + bare, id: invite.id.description, tag: invite.tag.description,
            expiresAt: invite.expiresAt, singleUse: invite.singleUse, creator: invite.creator.description,
            lifetime: invite.lifetime, signature: .valid, conversationExpiresAt: invite.conversationExpiresAt,
            name: invite.name, description: invite.description)
    }

    init(_ issued: InviteBook.IssuedInvite, _ conversation: Messaging.Conversation) {
        // The join secret is not stored, so the link cannot be shown again.
        self.init(
            slug: nil, id: issued.id.description, tag: issued.tag.description,
            expiresAt: min(issued.expiresAt, conversation.record.schedule?.expiresAt ?? .latest),
            singleUse: issued.singleUse, creator: InboxID(conversation.key.publicKey).description,
            lifetime: conversation.lifetime, signature: .valid, name: conversation.record.name,
            admitted: issued.admitted.count)
    }
}

enum InviteMethods {
    static let all: [any ServedMethod] = [create, list, revoke, inspect, code, outcome]

    static let create = NodeMethod<InviteCreateParams, Invite>("invite.create", "Create an invitation.") {
        params, node in
        let lifetime = params.expiresIn?.milliseconds ?? Limits.inviteLifetime
        guard (1_000...Limits.inviteMaximumLifetime).contains(lifetime) else {
            throw ControlError(.usage, "--expires-in: an invite is valid for 1 s to 7 d")
        }
        return .later(
            try node.invite(params.conversation, lifetime: lifetime, singleUse: params.singleUse ?? false).map {
                Invite($0, slug: $1)
            })
    }

    static let list = NodeMethod<ConversationParams, InviteListResult>(
        "invite.list", "List the valid invitations of a conversation."
    ) { params, node in
        let conversation = try node.conversation(params.conversation)
        let now = node.currentTime
        let issued = conversation.invites?.invites ?? []
        return .now(
            InviteListResult(
                invites: issued.filter { $0.expiresAt > now && $0.tag == conversation.invites?.tag && !$0.isRevoked }
                    .map { Invite($0, conversation) },
                codes: node.openCodes(of: conversation.conversation).map {
                    OpenInviteCode(code: $0.code.description, expiresAt: $0.expiresAt)
                }))
    }

    static let revoke = NodeMethod<InviteRevokeParams, InviteRevokeResult>(
        "invite.revoke", "Revoke one invitation or code of a conversation, or all of them."
    ) { params, node in
        if let invite = params.invite {
            try node.revokeInvite(params.conversation, invite)
        } else {
            try node.revokeInvites(params.conversation)
        }
        let conversation = try node.conversation(params.conversation)
        let result = InviteRevokeResult(
            ok: true, conversation: conversation.conversation.description,
            tag: conversation.invites?.tag.description ?? "")
        return .durable(result, node)
    }

    static let inspect = NodeMethod<InviteInspectParams, Invite>(
        "invite.inspect", "Read an invitation without using it."
    ) { params, _ in .now(Invite(try Node.inspect(params.slug), slug: params.slug)) }

    static let code = NodeMethod<InviteCodeParams, InviteCodeResult>(
        "invite.code", "Create a code to say aloud, which admits one member.", waits: .when { $0.wait ?? false }
    ) { call, node, _ in
        let opened = try node.openCode(call.params.conversation)
        if call.params.wait == true {
            // After the code has ended, revoking it has no effect.
            _ = call.session.onClose { [node] in node.assumeIsolated { $0.revokeCode(opened.number) } }
        }
        call.succeed(
            InviteCodeResult(
                code: opened.code.description, number: Int64(clamping: opened.number.value),
                conversation: opened.conversation.description, expiresAt: opened.expiresAt,
                endpoints: node.reachableAt.map(\.description)))
    }

    static let outcome = NodeMethod<InviteOutcomeParams, InviteOutcomeResult>(
        "invite.outcome", "Wait until a code is used or void, and return the outcome.", waits: .always
    ) { params, node in
        let end = try node.whenCodeEnds(OpenCodes.Number(UInt64(clamping: params.number)))
        return .later(end.map { InviteOutcomeResult(number: params.number, outcome: $0) })
    }
}

struct InviteCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "invite", abstract: "Invitations to a conversation.",
        discussion: """
            Examples:
              mayfly invite create room --expires-in 1h --single-use
              mayfly invite create room --code
              mayfly invite inspect 'mayfly:join/…'
              mayfly invite revoke room
              mayfly invite revoke room 5be1
            """, subcommands: [Create.self, List.self, Revoke.self, Inspect.self])

    struct Create: NodeCommand {
        static let configuration = CommandConfiguration(
            InviteMethods.create,
            discussion: """
                Prints the invitation. On a terminal it also prints the join command and, if it fits, a QR code.

                --code prints a code to say aloud instead, a number and two words, and waits until the code is used or \
                void. The exit code is 0 if it was used, 2 after a wrong guess, 3 when its 5 minutes are over. A code \
                allows one guess. Ctrl-C revokes the code. With --no-wait it stays open; `mayfly invite revoke C CODE` \
                revokes it.

                Examples:
                  mayfly invite create room --expires-in 1h --single-use
                  mayfly invite create room --code
                """)

        @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String
        @Option(time: "How long the invitation is valid: 90s, 30m, 24h, 7d. Default: 24h.", valueName: "time")
        var expiresIn: Interval?
        @Flag(help: "Admit only one member.") var singleUse = false
        @Flag(help: "Create a code to say aloud, valid for one guess and 5 minutes.") var code = false
        @Flag(help: "With --code: do not wait until the code is used.") var noWait = false
        @OptionGroup var global: GlobalOptions

        func validate() throws {
            if code, expiresIn != nil || singleUse {
                throw ValidationError(
                    "--code makes a single-use, short-lived invitation: omit --expires-in and --single-use")
            }
            if noWait, !code { throw ValidationError("--no-wait requires --code") }
        }

        func perform(_ terminal: Terminal) throws {
            if code { return try performCode(terminal) }
            let params = InviteCreateParams(
                conversation: conversation, expiresIn: expiresIn, singleUse: singleUse ? true : nil)
            try call(InviteMethods.create, params, terminal) { invite in
                let url = safe(invite.slug ?? "")
                terminal.result(url)
                terminal.note("to join:  mayfly join '\(url)'")
                let uses = invite.singleUse ? ", admits one member" : ""
                terminal.note("expires:  \(shown(invite.expiresAt))\(uses)")
                if isatty(STDERR_FILENO) == 1 { showQRCode(of: url, terminal) }
            }
        }

        /// Shows the QR code whole or not at all, because part of one is unreadable.
        private func showQRCode(of url: String, _ terminal: Terminal) {
            let instead = "`mayfly invite create \(quoted(conversation)) --code` makes a code to say aloud"
            guard let rows = QRCode.rows(for: url) else {
                return terminal.note("QR code:  the invitation is too long for one; \(instead)")
            }
            let size = Terminal.size(of: STDERR_FILENO)
            let columns = CellWidth.of(rows[0])
            // The shell prompt takes the last row.
            guard columns <= size.columns, rows.count < size.rows else {
                return terminal.note("QR code:  needs \(columns) columns and \(rows.count + 1) rows; \(instead)")
            }
            for row in rows { terminal.note(QRCode.coloured(row)) }
        }
    }

    struct List: NodeCommand {
        static let configuration = CommandConfiguration(InviteMethods.list)

        @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            let value = try connect().call(InviteMethods.list, .init(conversation: conversation))
            if terminal.json {
                for invite in value["invites"]?.arrayValue ?? [] { terminal.result(invite) }
            } else {
                let list = try understand(value, as: InviteListResult.self)
                terminal.table(
                    ["INVITE", "TAG", "EXPIRES", "SINGLE USE", "ADMITTED"],
                    list.invites.map { invite in
                        [
                            short(invite.id ?? "-"), invite.tag, shown(invite.expiresAt),
                            invite.singleUse ? "yes" : "no", invite.admitted.map(String.init) ?? "-",
                        ]
                    })
                for code in list.codes {
                    terminal.result("code \(safe(code.code)), open until \(shown(code.expiresAt))")
                }
                if list.invites.isEmpty, list.codes.isEmpty { terminal.note("no valid invitations") }
            }
        }
    }

    struct Revoke: MethodCommand {
        static let method = InviteMethods.revoke
        static let discussion = "Without INVITE all invitations and codes are revoked."

        @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String
        @Argument(help: "The invitation, its id from `mayfly invite list`, or a code.") var invite: String?
        @OptionGroup var global: GlobalOptions

        func params(_ terminal: Terminal) -> InviteRevokeParams { .init(conversation: conversation, invite: invite) }

        func show(_ result: InviteRevokeResult, _ terminal: Terminal) {
            terminal.fields([("tag", result.tag)])
            terminal.note(
                invite == nil ? "all earlier invitations and codes are revoked" : "the invitation or code is revoked")
        }
    }

    struct Inspect: NodeCommand {
        static let configuration = CommandConfiguration(
            InviteMethods.inspect, discussion: "Needs no running node and opens no connection.")

        @Argument(help: "The invitation, with or without `mayfly:join/`.") var slug: String
        @OptionGroup var global: GlobalOptions

        private func inspect() throws(ControlError) -> VerifiedInvite {
            do { return try Node.inspect(slug) } catch { throw controlError(error) }
        }

        func perform(_ terminal: Terminal) throws {
            let value: JSONValue
            do { value = try connect().call(InviteMethods.inspect, .init(slug: slug)) } catch let error as ControlError
                where error.kind == .noNode
            { value = JSONValue(of: Invite(try inspect(), slug: slug)) }
            guard !terminal.json else { return terminal.result(value) }
            let invite = try understand(value, as: Invite.self)
            terminal.fields([
                ("signature", invite.signature.rawValue), ("name", invite.name), ("about", invite.description),
                ("creator", invite.creator), ("tag", invite.tag), ("expires", shown(invite.expiresAt)),
                ("single use", invite.singleUse ? "yes" : "no"), ("lifetime", invite.lifetime.shown),
                ("conversation expires", invite.conversationExpiresAt.map { shown($0) }),
            ])
        }
    }
}

extension InviteCommand.Create {
    /// The node ends the code by itself before this timeout, which covers a node that does not answer.
    private static let patience = Duration.seconds(5 * 60 + 30)

    func performCode(_ terminal: Terminal) throws {
        // One connection for both calls, because the node revokes the code when the connection closes.
        let client = try connect()
        let value = try client.call(InviteMethods.code, .init(conversation: conversation, wait: !noWait))
        let opened = try understand(value, as: InviteCodeResult.self)
        if terminal.json { terminal.result(value) } else { show(opened, terminal) }
        if noWait { return }
        let answer = try client.call(InviteMethods.outcome, .init(number: opened.number), timeout: Self.patience)
        let failure = try understand(answer, as: InviteOutcomeResult.self).outcome.failure
        if terminal.json { return try terminal.result(answer, failure: failure) }
        if let failure { throw failure.about(conversation) }
        terminal.note("the code was used: the other side has the invitation")
    }

    private func show(_ opened: InviteCodeResult, _ terminal: Terminal) {
        let code = safe(opened.code)
        terminal.result(code)
        terminal.note("to join, on this network:  mayfly join \(code)")
        if let endpoint = opened.endpoints.lazy.compactMap({ Endpoint($0) }).first(where: { $0.relay == nil }) {
            terminal.note("from elsewhere:            mayfly join \(code) --at \(EndpointOption.place(of: endpoint))")
        }
        terminal.note("expires:  \(shown(opened.expiresAt)), or with the first wrong guess")
    }
}

extension CodeOutcome {
    /// Why the invitation was not delivered; `nil` if it was.
    fileprivate var failure: ControlError? {
        let again = "make a new code: `mayfly invite create C --code`"
        switch self {
        case .taken: return nil
        case .wrongGuess: return ControlError(.refused, "a wrong code was entered: the code is void", hint: again)
        case .unproven:
            return ControlError(
                .refused, "an attempt did not prove knowledge of the code: the code is void", hint: again)
        case .expired: return ControlError(.expired, "the code was not used in time: the code is void", hint: again)
        case .revoked: return ControlError(.failed, "the code was revoked")
        case .locked: return ControlError(.locked, "the node or the conversation was locked: the code is void")
        case .gone: return ControlError(.failed, "the conversation is gone, or the node has stopped: the code is void")
        case .failed:
            return ControlError(.failed, "the code was used, but the invitation could not be delivered", hint: again)
        }
    }
}
