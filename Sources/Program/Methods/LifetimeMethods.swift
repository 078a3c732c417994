import Control
import Messaging

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
struct LifetimeTermsRecord: CodableRecord {
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

struct NamedMember: CodableRecord {
    /// As ``Message/member``.
    @OrNull var member: String?
    /// As ``Message/from``.
    var name = ""
}

struct LifetimeProposal: JSONRecord, JSONScalar, Hashable, Sendable {
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

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try terms.visit(&fields)
        try fields.field("waiting", &waiting)
        try fields.field("id", &id)
        try fields.field("from", &from)
        try fields.field("member", &_member)
        try fields.field("proposedAt", &proposedAt)
    }
}

struct LifetimeAgreement: JSONRecord, JSONScalar, Hashable, Sendable {
    /// Hash of the agreement, in hex.
    var id = ""
    var terms = LifetimeTermsRecord()
    var agreedAt: Timestamp = Timestamp(milliseconds: 0)
    var members: [NamedMember] = []

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("id", &id)
        try terms.visit(&fields)
        try fields.field("agreedAt", &agreedAt)
        try fields.field("members", &members)
    }
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

struct LifetimeProposeParams: JSONRecord, Hashable, Sendable {
    var conversation = ""
    var terms = LifetimeTermsRecord()
    /// Accept the same terms again after a restart, until another agreement or a new policy.
    var renew: Bool?

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("conversation", &conversation)
        try terms.visit(&fields)
        try fields.field("renew", &renew)
    }
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

struct ExplosionStatus: CodableRecord {
    var conversation = ""
    /// Alias on this node; kept sealed for 45 days after the explosion.
    var name: String?
    /// When every member destroys its copy; null without an explosion.
    @OrNull var expiresAt: Timestamp?
    /// `none`, `scheduled`, `exploding`, `exploded` or `error`.
    var state = ""
    /// Members that signed a deletion receipt; while scheduled, members that acknowledged the schedule.
    var confirmed: [String] = []
    /// Members that have not confirmed.
    var waiting: [String] = []
    /// Destruction times by the members' own clocks.
    var receipts: [Receipt]?
    /// Names as in ``Message/from``; absent once the node has restarted after the explosion, which keeps none.
    var names: [Name]?
    /// The creator, who alone explodes a conversation, named as in ``Message/from``.
    var by: String?
    /// False when the node keeps no list of members to notify.
    var trace: Bool?
    /// The error in state `error`; the node retries.
    var error: String?

    struct Receipt: CodableRecord {
        var member = ""
        var destroyedAt: Timestamp = Timestamp(milliseconds: 0)
    }

    struct Name: CodableRecord {
        var member = ""
        var name = ""
    }
}

struct ExplodeParams: CodableRecord {
    var conversation = ""
    /// The default is now, without `at` and `in`.
    var at: Timestamp?
    var delay: Interval?
    /// Keep no list of members to notify: offline members learn of the explosion from other members, or never.
    var noTrace: Bool?

    enum CodingKeys: String, CodingKey {
        case conversation, at
        case delay = "in"
        case noTrace
    }
}

struct ListParams: CodableRecord {
    /// The `next` of the previous answer.
    var from: String?
}

struct ExplodeListResult: CodableRecord {
    /// Ascending by time.
    var explosions: [ExplosionStatus] = []
    /// Present when the answer was cut; pass it as `from`.
    var next: String?
}
