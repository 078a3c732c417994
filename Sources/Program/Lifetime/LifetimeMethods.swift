import Control
import Cryptography
import Messaging
import NIOCore
import NodeRuntime

enum NegotiationState: String, JSONChoice, Hashable, Sendable {
    /// No agreement: messages are ephemeral.
    case none
    case pending
    case agreed
}

/// The event at which a lifetime starts.
typealias LifetimeTimer = LifetimeTerms.Timer

// The node's own values in records.
extension Lifetime: JSONChoice {}
extension LifetimeTimer: JSONChoice {}
extension MailboxConsent: JSONChoice {}
extension CodeOutcome: JSONChoice {}

/// The terms that proposals and agreements share.
struct LifetimeTermsRecord: InlineRecord {
    var lifetime: Lifetime = .ephemeral
    /// Absent means the same as `lifetime`.
    var attachments: Lifetime?
    /// Unopened messages expire after this time: 1 min to 30 d.
    var unopened: Interval?
    /// Absent means `send`.
    var timer: LifetimeTimer?
    /// Absent means no mailbox.
    var mailbox: MailboxConsent?

    static let fieldNames = FieldSchema.fields(of: Self.self).map(\.name)

    /// Text for people; `nil` without a mailbox.
    var mailboxWords: String? { (mailbox ?? .no).words }
}

struct LifetimeProposal: CodableRecord {
    var terms = LifetimeTermsRecord()
    /// Members that have not answered.
    var waiting: [NamedMember]?
    /// Hash of the proposal, in hex.
    var id: String?
    /// As ``Message/from``.
    var from = ""
    /// As ``Message/member``.
    @OrNull var member: String?
    var proposedAt: Timestamp = Timestamp(milliseconds: 0)
}

struct LifetimeAgreement: CodableRecord {
    /// Hash of the agreement, in hex.
    var id = ""
    var terms = LifetimeTermsRecord()
    var agreedAt: Timestamp = Timestamp(milliseconds: 0)
    var members: [NamedMember] = []
}

struct LifetimeStatus: CodableRecord {
    var conversation: String?
    /// In force; a proposal does not change it.
    var lifetime: Lifetime = .ephemeral
    var state: NegotiationState = .none
    /// Null without an open proposal.
    @OrNull var proposal: LifetimeProposal?
    /// Null without an agreement.
    @OrNull var agreement: LifetimeAgreement?
    /// Automatic answer to proposals: `ask`, `refuse`, `accept-up-to:7d`, or `accept-up-to:7d:disk`.
    var policy: String?
    /// Whether this node accepts the agreement, or else the proposal, again after a restart: by `renew` or by the
    /// policy. Absent without both.
    var renewed: Bool?
}

/// An agreement with the signed values that prove it.
struct LifetimeAgreementRecord: CodableRecord {
    var agreement = LifetimeAgreement()
    /// In force, suspended until a new member signs, or ended.
    var state = ""
    /// Whether all signatures verified now.
    var verified = false
    var proposal: JSONValue = .null
    var accepts: [JSONValue] = []
}

/// A local maximum lifetime.
struct LifetimeCap: CodableRecord {
    /// `none` or a lifetime.
    var cap = ""
    /// Absent for the default of conversations without a cap.
    var conversation: String?
}

struct LifetimePolicy: CodableRecord {
    /// `ask`, `refuse`, `accept-up-to:7d`, or with a mailbox `accept-up-to:7d:ram` and `accept-up-to:7d:disk`.
    var policy = ""
    /// Absent for the default of new conversations.
    var conversation: String?
}

struct LifetimeProposeParams: CodableRecord {
    var conversation = ""
    var terms = LifetimeTermsRecord()
    /// Accept the same terms again after a restart, until another agreement or a new policy.
    var renew: Bool?
}

struct LifetimeAcceptParams: CodableRecord {
    var conversation = ""
    /// Id of the proposal, or at least its first 12 digits. Any other proposal is refused.
    var proposal: String?
    /// Accept the same terms again after a restart, until another agreement or a new policy.
    var renew: Bool?
}

struct LifetimePolicyParams: CodableRecord {
    /// Absent for the default of new conversations.
    var conversation: String?
    /// Absent reads the policy.
    var policy: String?
}

struct LifetimeCapParams: CodableRecord {
    /// Absent for the default.
    var conversation: String?
    /// `none`, a lifetime, or for one conversation `default`. Absent reads the cap.
    var cap: String?
}

struct LifetimeAgreementsParams: CodableRecord {
    var conversation = ""
    /// Prefix of an agreement's id. Absent means all.
    var agreement: String?
}

struct LifetimeAgreementsResult: CodableRecord {
    /// Oldest first.
    var agreements: [LifetimeAgreementRecord] = []
}

extension MailboxConsent {
    /// In a record: absent for ``no``.
    var shown: MailboxConsent? { self == .no ? nil : self }

    /// Text for people; `nil` for ``no``.
    var words: String? {
        switch self {
        case .no: nil
        case .ram: "mailbox in memory"
        case .disk: "mailbox on disk"
        }
    }
}

enum LifetimeMethods {
    static let all: [any ServedMethod] = [show, propose, accept, reject, withdraw, policy, cap, agreements]

    static let show = NodeMethod<ConversationParams, LifetimeStatus>(
        "lifetime.show", "Show the lifetime in force and the open proposal."
    ) { params, node in .now(try LifetimeStatus(params.conversation, node)) }

    static let propose = NodeMethod<LifetimeProposeParams, LifetimeStatus>(
        "lifetime.propose", "Propose how long messages are kept."
    ) { params, node in
        .reaching(params.conversation, node) { node in
            let terms = try terms(params)
            do {
                try node.command(params.conversation) { machine, turn throws(CommandError) in
                    try machine.propose(terms, &turn)
                }
            } catch NodeError.command(.alreadyAgreed(terms.lifetime)) {
                // A proposal of the terms in force succeeds without effect.
            }
            guard params.renew == true else { return .now(try LifetimeStatus(params.conversation, node)) }
            return status(params.conversation, after: try node.renew(params.conversation, terms), node)
        }
    }

    private static func status(_ conversation: String, after change: EventLoopFuture<Void>, _ node: isolated Node)
        -> Answer<LifetimeStatus>
    { .later(change.flatMapThrowing { [node] in try node.assumeIsolated { try LifetimeStatus(conversation, $0) } }) }

    /// The user agrees to the proposal they saw. While the node dials the members, the proposer may replace it.
    static let accept = NodeMethod<LifetimeAcceptParams, LifetimeStatus>("lifetime.accept", "Accept the open proposal.")
    { params, node in
        // Shorter prefixes could be forged.
        if let proposal = params.proposal, proposal.utf8.count < 12 {
            throw ControlError(.usage, "`\(proposal)` is too short", hint: "give 12 digits of the id, or more")
        }
        let before = try? node.conversation(params.conversation).pendingProposal?.proposal.id
        return .reaching(params.conversation, node) { node in
            guard let open = try node.conversation(params.conversation).pendingProposal?.proposal else {
                throw NodeError.command(.noProposal)
            }
            let named = params.proposal.map { open.id.description.hasPrefix($0.lowercased()) }
            guard named ?? (open.id == before) else { throw NodeError.command(.otherProposal) }
            let accepted = try node.accept(params.conversation, only: open.id)
            guard params.renew == true else { return status(params.conversation, after: accepted, node) }
            let renewed = try node.renew(params.conversation, open.terms)
            return status(params.conversation, after: accepted.and(renewed).map { _ in }, node)
        }
    }

    static let reject = NodeMethod<ConversationParams, LifetimeStatus>("lifetime.reject", "Reject the open proposal.") {
        params, node in
        .reaching(params.conversation, node) { node in
            try node.command(params.conversation) { machine, turn throws(CommandError) in try machine.reject(&turn) }
            return .now(try LifetimeStatus(params.conversation, node))
        }
    }

    static let withdraw = NodeMethod<ConversationParams, LifetimeStatus>(
        "lifetime.withdraw", "Withdraw your own proposal."
    ) { params, node in
        .reaching(params.conversation, node) { node in
            try node.command(params.conversation) { machine, turn throws(CommandError) in try machine.withdraw(&turn) }
            return .now(try LifetimeStatus(params.conversation, node))
        }
    }

    static let policy = NodeMethod<LifetimePolicyParams, LifetimePolicy>(
        "lifetime.policy", "Show or set the automatic answer to proposals."
    ) { params, node in
        if let text = params.policy {
            guard let policy = Messaging.LifetimePolicy(text) else {
                throw ControlError(
                    .usage, "`\(text)` is not a policy",
                    hint: "write accept-up-to:7d, accept-up-to:7d:disk, ask or refuse")
            }
            if let conversation = params.conversation {
                try node.command(conversation) { $0.setPolicy(policy, &$1) }
            } else {
                try node.setDefaultPolicy(policy)
            }
        }
        let machine = try params.conversation.map { try node.conversation($0) }
        let policy = machine?.policy ?? node.policyByDefault
        return .durable(.init(policy: policy.text, conversation: machine?.conversation.description), node)
    }

    static let cap = NodeMethod<LifetimeCapParams, LifetimeCap>(
        "lifetime.cap", "Show or set the maximum lifetime on this node."
    ) { params, node in
        if let text = params.cap {
            let cap = Messaging.LifetimeCap(text)
            if cap == nil, text != "default" || params.conversation == nil {
                throw ControlError(
                    .usage, "`\(text)` is not a cap", hint: "write ephemeral, 1h, 6h, 1d, 7d, 30d or none")
            }
            if let conversation = params.conversation {
                try node.command(conversation) { $0.setCap(cap, &$1) }
            } else {
                try node.setDefaultCap(cap ?? .none)
            }
        }
        let machine = try params.conversation.map { try node.conversation($0) }
        let cap = machine?.cap ?? node.capByDefault
        return .durable(.init(cap: cap.text, conversation: machine?.conversation.description), node)
    }

    /// Agreements with the signed values that prove them.
    static let agreements = NodeMethod<LifetimeAgreementsParams, LifetimeAgreementsResult>(
        "lifetime.agreements", "Show the stored agreements and verify their signatures."
    ) { params, node in
        let machine = try node.conversation(params.conversation)
        let matches = machine.agreements.filter { agreement in
            params.agreement.map { agreement.id.description.hasPrefix($0.lowercased()) } ?? true
        }
        if let id = params.agreement {
            if id.isEmpty || matches.isEmpty {
                throw ControlError(
                    .notFound, "no agreement `\(id)` is kept",
                    hint: "`mayfly lifetime agreements C` shows what there is")
            }
            if matches.count > 1 { throw NodeError.ambiguous(id, matches: matches.map(\.id.description)) }
        }
        return .now(.init(agreements: matches.map { LifetimeAgreementRecord($0, machine, node) }))
    }

    private static func terms(_ params: LifetimeProposeParams) throws -> LifetimeTerms {
        let wanted = params.terms
        let terms = LifetimeTerms(
            wanted.lifetime, attachment: wanted.attachments, unopened: wanted.unopened?.milliseconds,
            timer: wanted.timer ?? .send, mailbox: wanted.mailbox ?? .no)
        if let unopened = terms.unopened, !LifetimeTerms.unopenedRange.contains(unopened) {
            throw ControlError(
                .usage, "the limit of an unopened message is not between 1 min and 30 d",
                hint: "give such a limit, for example --unopened 1h")
        }
        if terms.mailbox == .disk, terms.lifetime == .ephemeral || terms.attachment == .ephemeral {
            throw ControlError(
                .usage, "a mailbox on disk needs a lifetime that stores texts and files; `ephemeral` stores nothing",
                hint: "give --mailbox ram, or a lifetime: `mayfly lifetime propose C 1d --mailbox disk`")
        }
        guard terms.isValid else {
            throw ControlError(
                .usage, "an ephemeral lifetime has no timer and no limit of unopened messages",
                hint: "propose a stored lifetime: `mayfly lifetime propose C 1d --unopened 1h`")
        }
        return terms
    }
}

extension LifetimeStatus {
    init(_ text: String, _ node: isolated Node) throws(NodeError) {
        let machine = try node.conversation(text)
        let policy = machine.policy ?? node.policyByDefault
        let terms = machine.agreement?.terms ?? machine.pendingProposal?.proposal.terms
        self.init(
            conversation: machine.conversation.description, lifetime: machine.lifetime,
            state: machine.pendingProposal != nil ? .pending : machine.agreement != nil ? .agreed : .none,
            proposal: LifetimeProposal(machine, node),
            agreement: machine.agreement.map { LifetimeAgreement($0, machine, node) }, policy: policy.text,
            renewed: terms.map { machine.renews($0, policy) })
    }
}

extension LifetimeProposal {
    fileprivate init?(_ machine: Messaging.Conversation, _ node: isolated Node) {
        guard let pending = machine.pendingProposal else { return nil }
        let proposal = pending.proposal
        self.init(
            terms: .init(proposal.terms), waiting: machine.unanswered.map { MemberName.named($0, machine, node) },
            id: proposal.id.description, from: MemberName.shown(proposal.proposer, machine, node),
            member: pending.isOurs ? nil : MemberName.id(proposal.proposer), proposedAt: proposal.proposedAt)
    }
}

extension LifetimeAgreement {
    init(_ agreement: Agreement, _ machine: Messaging.Conversation, _ node: isolated Node) {
        self.init(agreement) { MemberName.named($0, machine, node) }
    }

    init(_ agreement: Agreement, _ named: (PublicKey) -> NamedMember) {
        self.init(
            id: agreement.id.description, terms: .init(agreement.terms),
            agreedAt: agreement.accepts.map(\.acceptedAt).max() ?? agreement.proposal.proposedAt,
            members: agreement.signers.map(named))
    }
}

extension LifetimeAgreementRecord {
    fileprivate init(_ agreement: Agreement, _ machine: Messaging.Conversation, _ node: isolated Node) {
        let state =
            machine.agreement?.id == agreement.id
            ? "inForce" : machine.standing?.id == agreement.id ? "suspended" : "ended"
        func value(_ bytes: [UInt8]) -> JSONValue { (try? JSONReader.read(bytes)) ?? .null }
        self.init(
            agreement: LifetimeAgreement(agreement, machine, node), state: state,
            verified: agreement.isValid(conversation: machine.conversation),
            proposal: value(SeedJSON.encode(agreement.proposal)),
            accepts: agreement.accepts.map { value(SeedJSON.encode($0)) })
    }
}

extension LifetimeTermsRecord {
    init(_ terms: LifetimeTerms) {
        self.init(
            lifetime: terms.lifetime, attachments: terms.attachment,
            unopened: terms.unopened.map { Interval(milliseconds: $0) }, timer: terms.timer == .send ? nil : .read,
            mailbox: terms.mailbox.shown)
    }
}
