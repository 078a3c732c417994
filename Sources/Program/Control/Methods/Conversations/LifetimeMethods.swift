import Control
import Messaging

enum LifetimeMethods {
    static let all: [any ControlMethod.Type] = [
        LifetimeShowMethod.self, LifetimeProposeMethod.self, LifetimeAcceptMethod.self, LifetimeRejectMethod.self,
        LifetimeWithdrawMethod.self, LifetimePolicyMethod.self, LifetimeCapMethod.self, LifetimeAgreementsMethod.self,
    ]
}

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

struct LifetimeProposal: CodableRecord, LifetimeTermsFields {
    var lifetime: Lifetime = .ephemeral
    /// Absent means the same as `lifetime`.
    var attachments: Lifetime?
    /// Unopened messages expire after this time.
    var unopened: Interval?
    /// Absent means `send`.
    var timer: LifetimeTimer?
    /// Absent means no mailbox.
    var mailbox: MailboxConsent?
    /// Members that have not answered, named as in ``Message/from``.
    var waiting: [String]?
    /// Hash of the proposal, in hex.
    var id: String?
    /// As ``Message/from``.
    var from = ""
    /// As ``Message/member``.
    @OrNull var member: String?
    var proposedAt: Timestamp = Timestamp(milliseconds: 0)
}

struct LifetimeAgreement: CodableRecord, LifetimeTermsFields {
    /// Hash of the agreement, in hex.
    var id = ""
    var lifetime: Lifetime = .ephemeral
    /// Absent means the same as `lifetime`.
    var attachments: Lifetime?
    /// Unopened messages expire after this time.
    var unopened: Interval?
    /// Absent means `send`.
    var timer: LifetimeTimer?
    /// Absent means no mailbox.
    var mailbox: MailboxConsent?
    var agreedAt: Timestamp = Timestamp(milliseconds: 0)
    /// Names as in ``Message/from``.
    var members: [String] = []
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
    /// Whether the policy accepts the agreement, or else the proposal, again after a restart. Absent without both.
    var renewed: Bool?
    /// The narrowest policy that accepts the terms again; absent when `renewed` is true or no policy accepts them.
    var renewal: String?
}

/// An agreement with the signed values that prove it.
struct LifetimeAgreementRecord: CodableRecord {
    var agreement = LifetimeAgreement()
    /// In force, suspended until a new member signs, or ended.
    var state = ""
    /// Whether all signatures verified now.
    var verified = false
    /// The signed value.
    var proposal: JSONValue = .null
    /// The signed values.
    var accepts: [JSONValue] = []
}

/// A local maximum lifetime.
struct LifetimeCap: CodableRecord {
    /// `none` or a lifetime.
    var cap = ""
    /// Absent for the default of conversations without a cap.
    var conversation: String?
}

/// An automatic answer to proposals.
struct LifetimePolicy: CodableRecord {
    /// `ask`, `refuse`, `accept-up-to:7d`, or with a mailbox `accept-up-to:7d:ram` and `accept-up-to:7d:disk`.
    var policy = ""
    /// Absent for the default of new conversations.
    var conversation: String?
}

enum LifetimeShowMethod: ControlMethod {
    static let name = "lifetime.show"
    static let summary = "Shows the lifetime in force and the open proposal."
    typealias Result = LifetimeStatus
    typealias Params = ConversationParams
}

enum LifetimeProposeMethod: ControlMethod {
    static let name = "lifetime.propose"
    static let summary = "Proposes how long messages are kept."
    typealias Result = LifetimeStatus

    struct Params: CodableRecord {
        var conversation = ""
        var lifetime: Lifetime = .ephemeral
        /// Absent means the same as `lifetime`.
        var attachments: Lifetime?
        /// Unopened messages expire after this time: 1 min to 30 d.
        var unopened: Interval?
        /// Absent means `send`.
        var timer: LifetimeTimer?
        /// Absent means no mailbox.
        var mailbox: MailboxConsent?
        /// Widen the policy so that it accepts these terms again after a restart.
        var renew: Bool?
    }
}

enum LifetimeAcceptMethod: ControlMethod {
    static let name = "lifetime.accept"
    static let summary = "Accepts the open proposal, unless another has replaced it."
    typealias Result = LifetimeStatus

    struct Params: CodableRecord {
        var conversation = ""
        /// Id of the proposal, or at least its first 12 digits. Any other proposal is refused.
        var proposal: String?
        /// Widen the policy so that it accepts these terms again after a restart.
        var renew: Bool?
    }
}

enum LifetimeRejectMethod: ControlMethod {
    static let name = "lifetime.reject"
    static let summary = "Rejects the open proposal."
    typealias Result = LifetimeStatus
    typealias Params = ConversationParams
}

enum LifetimeWithdrawMethod: ControlMethod {
    static let name = "lifetime.withdraw"
    static let summary = "Withdraws your own proposal."
    typealias Result = LifetimeStatus
    typealias Params = ConversationParams
}

enum LifetimePolicyMethod: ControlMethod {
    static let name = "lifetime.policy"
    static let summary = "Shows or sets the automatic answer to proposals."
    typealias Result = LifetimePolicy

    struct Params: CodableRecord {
        /// Absent for the default of new conversations.
        var conversation: String?
        /// Absent reads the policy.
        var policy: String?
    }
}

enum LifetimeCapMethod: ControlMethod {
    static let name = "lifetime.cap"
    static let summary = "Shows or sets the maximum lifetime on this node."
    typealias Result = LifetimeCap

    struct Params: CodableRecord {
        /// Absent for the default.
        var conversation: String?
        /// `none`, a lifetime, or for one conversation `default`. Absent reads the cap.
        var cap: String?
    }
}

enum LifetimeAgreementsMethod: ControlMethod {
    static let name = "lifetime.agreements"
    static let summary = "Shows the stored agreements and verifies their signatures."

    struct Params: CodableRecord {
        var conversation = ""
        /// Prefix of an agreement's id. Absent means all.
        var agreement: String?
    }

    struct Result: CodableRecord {
        /// Oldest first.
        var agreements: [LifetimeAgreementRecord] = []
    }
}

/// The terms that proposals and agreements share.
protocol LifetimeTermsFields {
    var lifetime: Lifetime { get }
    var attachments: Lifetime? { get }
    var unopened: Interval? { get }
    var timer: LifetimeTimer? { get }
    var mailbox: MailboxConsent? { get }
}

extension LifetimeTermsFields {
    /// Text for people; `nil` without a mailbox.
    var mailboxWords: String? { (mailbox ?? .no).words }
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
