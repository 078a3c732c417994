import ArgumentParser
import Control
import Messaging

struct LifetimeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "lifetime", abstract: "How long messages are kept; all members must agree.",
        discussion: """
            Values: ephemeral, 1h, 6h, 1d, 7d, 30d.

            Examples:
              mayfly lifetime propose room 1d
              mayfly lifetime propose room 1d --mailbox disk
              mayfly lifetime accept room --renew
              mayfly lifetime policy room accept-up-to:7d
              mayfly lifetime policy --default ask
              mayfly lifetime cap room 1d
              mayfly lifetime agreements room
            """,
        subcommands: [
            Show.self, Propose.self, Accept.self, Call<Reject>.self, Call<Withdraw>.self, Policy.self, Cap.self,
            Agreements.self,
        ])

    fileprivate static func names(_ members: [NamedMember]) -> String { members.map(\.name).joined(separator: ", ") }

    fileprivate static func terms(_ terms: LifetimeTermsRecord) -> String {
        var text = terms.lifetime.shown
        if let attachments = terms.attachments { text += ", attachments \(attachments.shown)" }
        if let unopened = terms.unopened { text += ", unopened \(length(unopened))" }
        if terms.timer == .read { text += ", from reading" }
        if let mailbox = terms.mailboxWords { text += ", \(mailbox)" }
        return text
    }

    /// Also explains what a restart does to the agreement, and how to keep it.
    fileprivate static func showWithEnd(_ status: LifetimeStatus, _ terminal: Terminal) {
        status.show(terminal)
        let terms = status.agreement?.terms ?? status.proposal?.terms
        guard status.renewed == false, let terms, terms.lifetime != .ephemeral || terms.mailbox != nil else { return }
        terminal.note(
            "the agreement ends when a node restarts, or after more than 30 s without a link; once it is in force, "
                + "propose it with --renew to renew it")
    }

    /// The words of `policy` and `cap`: a conversation unless --default, then perhaps a value.
    fileprivate static func parts(_ words: [String], _ isDefault: Bool) throws -> (
        conversation: String?, value: String?
    ) {
        let most = isDefault ? 1 : 2
        if words.count > most { throw ValidationError("unexpected argument '\(words[most])'") }
        if !isDefault, words.isEmpty { throw ValidationError("name a conversation, or give --default") }
        return (isDefault ? nil : words.first, words.dropFirst(most - 1).first)
    }

    struct Renewal: ParsableArguments {
        @Flag(help: "Accept the same terms again: after a restart, or 30 s without a link.") var renew = false
        @Flag(help: "Do not renew the agreement, and do not ask.") var once = false

        func validate() throws { if renew, once { throw ValidationError("--renew and --once exclude each other") } }

        func isWanted(_ terminal: Terminal) -> Bool? {
            if renew || once { return renew ? true : nil }
            return Terminal.asksYes(
                "The agreement ends when a node restarts, or after more than 30 s without a link. "
                    + "Renew it automatically?", terminal) ? true : nil
        }
    }

    struct Propose: NodeCommand {
        static let configuration = CommandConfiguration(
            LifetimeMethods.propose,
            discussion: """
                Nothing changes until all members have accepted. To wait for that:
                  mayfly watch room --until lifetimeAgreed --timeout 60

                With --mailbox, messages for an offline member go, sealed, to that member's mailbox. The member \
                chooses a node as its mailbox (`mayfly peer set hub mailbox=on`). What the mailbox keeps is memory \
                only (ram) or also on disk (disk), at most for the lifetime. With ephemeral only ram is allowed.

                Examples:
                  mayfly lifetime propose room 1d --mailbox disk
                  mayfly lifetime propose room ephemeral --mailbox ram
                """)

        @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String
        @Argument(help: "ephemeral, 1h, 6h, 1d, 7d or 30d.") var value: Lifetime
        @Option(help: ArgumentHelp("A different lifetime for attachments.", valueName: "value")) var attachments:
            Lifetime?
        @Option(time: "Delete unopened messages after this time: 1m to 30d.", valueName: "time") var unopened: Interval?
        @Option(help: ArgumentHelp("Start the lifetime at sending or at reading.", valueName: "send|read")) var timer:
            LifetimeTimer?
        @Option(
            help: ArgumentHelp(
                "Where a mailbox may keep messages for an offline member. Default: no.", valueName: "no|ram|disk"))
        var mailbox: MailboxConsent?
        @OptionGroup var renewal: Renewal
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            let keeps = value != .ephemeral || mailbox != nil && mailbox != .no
            let params = LifetimeProposeParams(
                conversation: conversation,
                terms: .init(
                    lifetime: value, attachments: attachments, unopened: unopened, timer: timer, mailbox: mailbox),
                renew: keeps ? renewal.isWanted(terminal) : renewal.renew ? true : nil)
            try call(LifetimeMethods.propose, params, terminal) { LifetimeCommand.showWithEnd($0, terminal) }
        }
    }

    struct Policy: NodeCommand {
        static let configuration = CommandConfiguration(
            LifetimeMethods.policy,
            usage: "mayfly lifetime policy (<conversation> | --default) [accept-up-to:7d[:ram|:disk] | ask | refuse]",
            discussion: """
                accept-up-to:7d accepts terms that keep nothing longer than 7 days and use no mailbox. The suffix :ram \
                also accepts mailboxes in memory, :disk also mailboxes on disk.

                Examples:
                  mayfly lifetime policy room
                  mayfly lifetime policy room accept-up-to:1d
                  mayfly lifetime policy room accept-up-to:1d:disk
                  mayfly lifetime policy --default refuse
                """)

        @Argument(
            help: ArgumentHelp("The conversation, omitted with --default; then the policy.", valueName: "word"),
            completion: .conversationAndPolicy) var words: [String] = []
        @Flag(name: .customLong("default"), help: "The default, for conversations without their own policy.")
        var isDefault = false
        @OptionGroup var global: GlobalOptions

        func validate() throws {
            guard let policy = try LifetimeCommand.parts(words, isDefault).value else { return }
            if Messaging.LifetimePolicy(policy) == nil {
                throw ValidationError(
                    "'\(policy)' is not a policy; use accept-up-to:7d, accept-up-to:7d:disk, ask or refuse")
            }
        }

        func perform(_ terminal: Terminal) throws {
            let (conversation, policy) = try LifetimeCommand.parts(words, isDefault)
            try call(LifetimeMethods.policy, .init(conversation: conversation, policy: policy), terminal) { answer in
                terminal.fields([("conversation", answer.conversation ?? "(default)"), ("policy", answer.policy)])
            }
        }
    }

    struct Show: NodeCommand {
        static let configuration = CommandConfiguration(LifetimeMethods.show)

        @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String
        @Option(help: ArgumentHelp("Show this agreement with all signatures.", valueName: "id")) var agreement: String?
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            guard let agreement else {
                return try call(LifetimeMethods.show, .init(conversation: conversation), terminal)
            }
            try callAgreements(.init(conversation: conversation, agreement: agreement), terminal)
        }
    }

    struct Agreements: NodeCommand {
        static let configuration = CommandConfiguration(
            LifetimeMethods.agreements,
            discussion: """
                With --json each line contains the signed proposal and the signed accepts, so that anyone can verify \
                them.
                """)

        @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws { try callAgreements(.init(conversation: conversation), terminal) }
    }

    struct Cap: NodeCommand {
        static let configuration = CommandConfiguration(
            LifetimeMethods.cap,
            usage: "mayfly lifetime cap (<conversation> | --default) [ephemeral | 1h | 6h | 1d | 7d | 30d | none]",
            discussion: """
                The cap applies to messages sent or received from now on. It can only shorten the agreed lifetime. The \
                value `default` makes a conversation follow the default cap again.

                Examples:
                  mayfly lifetime cap room 1d
                  mayfly lifetime cap --default none
                """)

        @Argument(
            help: ArgumentHelp("The conversation, omitted with --default; then the cap.", valueName: "word"),
            completion: .conversation) var words: [String] = []
        @Flag(name: .customLong("default"), help: "The default, for conversations without their own cap.")
        var isDefault = false
        @OptionGroup var global: GlobalOptions

        func validate() throws {
            guard let cap = try LifetimeCommand.parts(words, isDefault).value, cap != "none" else { return }
            if Lifetime(rawValue: cap) == nil, isDefault || cap != "default" {
                throw ValidationError("'\(cap)' is not a cap; use ephemeral, 1h, 6h, 1d, 7d, 30d or none")
            }
        }

        func perform(_ terminal: Terminal) throws {
            let (conversation, cap) = try LifetimeCommand.parts(words, isDefault)
            try call(LifetimeMethods.cap, .init(conversation: conversation, cap: cap), terminal) { answer in
                terminal.fields([("conversation", answer.conversation ?? "(default)"), ("cap", answer.cap)])
            }
        }
    }

    struct Accept: NodeCommand {
        static let configuration = CommandConfiguration(
            LifetimeMethods.accept, discussion: "The command fails if another proposal has replaced it meanwhile.")

        @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String
        @Option(help: ArgumentHelp("Accept only this proposal: its id, or at least 12 digits of it.", valueName: "id"))
        var proposal: String?
        @OptionGroup var renewal: Renewal
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            let client = try connect()
            // Pins the proposal shown in the question, so that a newer one is not accepted in its place.
            let shown = try client.result(LifetimeMethods.show, .init(conversation: conversation)).proposal
            let terms = shown?.terms
            let keeps = terms.map { $0.lifetime != .ephemeral || $0.mailbox != nil } ?? false
            let wanted = keeps ? renewal.isWanted(terminal) : renewal.renew ? true : nil
            let params = LifetimeAcceptParams(
                conversation: conversation, proposal: proposal ?? (wanted == true && !renewal.renew ? shown?.id : nil),
                renew: wanted)
            try call(LifetimeMethods.accept, params, terminal) { LifetimeCommand.showWithEnd($0, terminal) }
        }
    }

    enum Reject: MethodAction { static let method = LifetimeMethods.reject }
    enum Withdraw: MethodAction { static let method = LifetimeMethods.withdraw }
}

extension NodeCommand {
    fileprivate func callAgreements(_ params: LifetimeAgreementsParams, _ terminal: Terminal) throws {
        try callList(LifetimeMethods.agreements, params, "agreements", of: LifetimeAgreementRecord.self, terminal)
    }
}

extension LifetimeStatus: ShownRecord {
    func show(_ terminal: Terminal) {
        terminal.fields([
            ("in force", lifetime.shown), ("state", state.rawValue),
            (
                "proposal",
                proposal.map { proposal in
                    "\(LifetimeCommand.terms(proposal.terms)) by \(proposal.from), \(shown(proposal.proposedAt))"
                } ?? "-"
            ), ("proposal id", proposal?.id.map(short) ?? "-"),
            ("waits for", proposal?.waiting.map { $0.isEmpty ? "-" : LifetimeCommand.names($0) } ?? "-"),
            (
                "agreement",
                agreement.map { agreement in
                    "\(short(agreement.id)) of \(shown(agreement.agreedAt)) by "
                        + LifetimeCommand.names(agreement.members)
                } ?? "-"
            ), ("terms", agreement.map { LifetimeCommand.terms($0.terms) } ?? "-"), ("policy", policy),
        ])
    }
}

extension LifetimeAgreementRecord: TableRecord {
    static func table(_ records: [LifetimeAgreementRecord], _ terminal: Terminal) {
        if records.isEmpty { terminal.note("no agreement is stored") }
        for record in records {
            let agreement = record.agreement
            terminal.fields([
                ("agreement", agreement.id), ("state", record.state), ("terms", LifetimeCommand.terms(agreement.terms)),
                ("signed by", LifetimeCommand.names(agreement.members)),
                ("signatures", record.verified ? "all valid" : "NOT ALL VALID"),
            ])
        }
    }
}
