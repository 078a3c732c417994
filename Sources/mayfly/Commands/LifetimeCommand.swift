import ArgumentParser
import Control

struct LifetimeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "lifetime",
        abstract: "How long messages are kept: agreed by everybody, or not at all.",
        discussion: """
            Values: ephemeral, 1h, 6h, 1d, 7d, 30d.

            Examples:
              mayfly lifetime propose room 1d
              mayfly lifetime accept room
              mayfly lifetime policy room accept-up-to:7d
              mayfly lifetime policy --default ask
            """,
        subcommands: [Show.self, Propose.self, Accept.self, Reject.self, Withdraw.self, Policy.self]
    )

    fileprivate static func show(_ status: LifetimeStatus, _ terminal: Terminal) {
        let now = wallClock()
        terminal.fields([
            ("in force", status.lifetime.rawValue),
            ("state", status.state.rawValue),
            (
                "proposal",
                status.proposal.map { proposal in
                    "\(proposal.lifetime.rawValue) by \(safe(proposal.from)), \(shown(proposal.proposedAt, now: now))"
                } ?? "-"
            ),
            (
                "agreement",
                status.agreement.map { agreement in
                    let members = agreement.members.map(safe).joined(separator: ", ")
                    return "\(short(safe(agreement.id))) of \(shown(agreement.agreedAt, now: now)) by \(members)"
                } ?? "-"
            ),
        ])
    }
}

extension LifetimeCommand {
    struct Propose: NodeCommand {
        static let configuration = CommandConfiguration(
            abstract: "Propose how long messages are kept.",
            discussion: """
                Nothing changes until everybody has accepted. Wait for that with
                  mayfly watch room --until lifetimeAgreed --timeout 60
                """
        )

        @Argument var conversation: String
        @Argument(help: "ephemeral, 1h, 6h, 1d, 7d or 30d.") var value: LifetimeValue
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try call(LifetimeProposeMethod.self, .init(conversation: conversation, lifetime: value), terminal) {
                LifetimeCommand.show($0, terminal)
            }
        }
    }

    struct Policy: NodeCommand {
        static let configuration = CommandConfiguration(
            abstract: "Show or set the standing answer to proposals.",
            usage: "mayfly lifetime policy (<conversation> | --default) [accept-up-to:7d | ask | refuse]",
            discussion: """
                Examples:
                  mayfly lifetime policy room
                  mayfly lifetime policy room accept-up-to:1d
                  mayfly lifetime policy --default refuse
                """
        )

        @Argument(help: ArgumentHelp("The conversation, unless --default; then the policy.", valueName: "word"))
        var words: [String] = []
        @Flag(name: .customLong("default"), help: "The one for new conversations.") var isDefault = false
        @OptionGroup var global: GlobalOptions

        func validate() throws {
            let most = isDefault ? 1 : 2
            if words.count > most { throw ValidationError("unexpected argument '\(words[most])'") }
            if !isDefault, words.isEmpty { throw ValidationError("name a conversation, or give --default") }
            guard let policy = words.dropFirst(isDefault ? 0 : 1).first, policy != "ask", policy != "refuse" else {
                return
            }
            let prefix = "accept-up-to:"
            guard policy.hasPrefix(prefix), LifetimeValue(rawValue: String(policy.dropFirst(prefix.count))) != nil
            else {
                throw ValidationError("'\(policy)' is no policy; use accept-up-to:7d, ask or refuse")
            }
        }

        func perform(_ terminal: Terminal) throws {
            let params = LifetimePolicyMethod.Params(
                conversation: isDefault ? nil : words.first,
                policy: words.dropFirst(isDefault ? 0 : 1).first
            )
            try call(LifetimePolicyMethod.self, params, terminal) { answer in
                terminal.fields([
                    ("conversation", answer.conversation.map(safe) ?? "(default)"), ("policy", safe(answer.policy)),
                ])
            }
        }
    }

    struct Show: NodeCommand {
        static let configuration = CommandConfiguration(
            abstract: "Show how long messages are kept, and what is proposed."
        )

        @Argument var conversation: String
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try call(LifetimeShowMethod.self, .init(conversation: conversation), terminal) {
                LifetimeCommand.show($0, terminal)
            }
        }
    }

    struct Accept: NodeCommand {
        static let configuration = CommandConfiguration(abstract: "Accept the open proposal.")

        @Argument var conversation: String
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try call(LifetimeAcceptMethod.self, .init(conversation: conversation), terminal) {
                LifetimeCommand.show($0, terminal)
            }
        }
    }

    struct Reject: NodeCommand {
        static let configuration = CommandConfiguration(abstract: "Reject the open proposal.")

        @Argument var conversation: String
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try call(LifetimeRejectMethod.self, .init(conversation: conversation), terminal) {
                LifetimeCommand.show($0, terminal)
            }
        }
    }

    struct Withdraw: NodeCommand {
        static let configuration = CommandConfiguration(abstract: "Withdraw your own proposal.")

        @Argument var conversation: String
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try call(LifetimeWithdrawMethod.self, .init(conversation: conversation), terminal) {
                LifetimeCommand.show($0, terminal)
            }
        }
    }
}
