/// How long messages are kept.
package enum LifetimeMethods {
    package static let all: [any ControlMethod.Type] = [
        LifetimeShowMethod.self, LifetimeProposeMethod.self, LifetimeAcceptMethod.self, LifetimeRejectMethod.self,
        LifetimeWithdrawMethod.self, LifetimePolicyMethod.self, LifetimeCapMethod.self, LifetimeAgreementsMethod.self,
    ]
}

/// How long messages are kept (protocol, section 6).
package enum LifetimeValue: String, JSONChoice, Hashable, Sendable {
    /// Never on disk.
    case ephemeral
    case oneHour = "1h"
    case sixHours = "6h"
    case oneDay = "1d"
    case sevenDays = "7d"
    case thirtyDays = "30d"
}

/// Whether there is an agreement.
package enum NegotiationState: String, JSONChoice, Hashable, Sendable {
    /// Nothing agreed: messages are ephemeral.
    case none
    /// A proposal is open.
    case pending
    case agreed
}

/// From when a lifetime counts.
package enum LifetimeTimer: String, JSONChoice, Hashable, Sendable {
    case send
    case read
}

/// An open proposal.
package struct LifetimeProposal: JSONRecord, LifetimeTermsFields, Hashable, Sendable {
    package var lifetime: LifetimeValue = .ephemeral
    /// Of attachments; absent: as the others.
    package var attachments: LifetimeValue?
    /// What is not opened goes after this long.
    package var unopened: Interval?
    /// Absent: from sending.
    package var timer: LifetimeTimer?
    /// Absent: nothing goes to a mailbox.
    package var mailbox: LifetimeMailbox?
    /// Who has yet to answer, as ``Message/from`` calls them.
    package var waiting: [String]?
    /// Its hash, in hex.
    package var id: String?
    /// As ``Message/from``.
    package var from = ""
    /// As ``Message/member``.
    package var member: String?
    package var proposedAt: Timestamp = Timestamp(milliseconds: 0)

    package init(lifetime: LifetimeValue, from: String, member: String? = nil, proposedAt: Timestamp) {
        self.lifetime = lifetime
        self.from = from
        self.member = member
        self.proposedAt = proposedAt
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("lifetime", &lifetime)
        try fields.field("attachments", &attachments)
        try fields.field("unopened", &unopened)
        try fields.field("timer", &timer)
        try fields.field("mailbox", &mailbox)
        try fields.field("waiting", &waiting)
        try fields.field("id", &id)
        try fields.field("from", &from)
        try fields.nullable("member", &member)
        try fields.field("proposedAt", &proposedAt)
    }
}

/// What was agreed, and by whom.
package struct LifetimeAgreement: JSONRecord, LifetimeTermsFields, Hashable, Sendable {
    /// Its hash, in hex.
    package var id = ""
    package var lifetime: LifetimeValue = .ephemeral
    /// Of attachments; absent: as the others.
    package var attachments: LifetimeValue?
    /// What is not opened goes after this long.
    package var unopened: Interval?
    /// Absent: from sending.
    package var timer: LifetimeTimer?
    /// Absent: nothing goes to a mailbox.
    package var mailbox: LifetimeMailbox?
    package var agreedAt: Timestamp = Timestamp(milliseconds: 0)
    /// As ``Message/from`` calls them.
    package var members: [String] = []

    package init(id: String, lifetime: LifetimeValue, agreedAt: Timestamp, members: [String]) {
        self.id = id
        self.lifetime = lifetime
        self.agreedAt = agreedAt
        self.members = members
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("id", &id)
        try fields.field("lifetime", &lifetime)
        try fields.field("attachments", &attachments)
        try fields.field("unopened", &unopened)
        try fields.field("timer", &timer)
        try fields.field("mailbox", &mailbox)
        try fields.field("agreedAt", &agreedAt)
        try fields.field("members", &members)
    }
}

/// The lifetime of a conversation.
package struct LifetimeStatus: JSONRecord, Hashable, Sendable {
    package var conversation: String?
    /// In force; a proposal never changes it.
    package var lifetime: LifetimeValue = .ephemeral
    package var state: NegotiationState = .none
    /// Null when none is open.
    package var proposal: LifetimeProposal?
    /// Null when there is none.
    package var agreement: LifetimeAgreement?
    /// The standing answer to proposals: `ask`, `refuse`, `accept-up-to:7d`, or `accept-up-to:7d:disk`.
    package var policy: String?
    /// Whether the policy accepts the agreement, or else the proposal, again after a restart; absent when there is neither.
    package var renewed: Bool?
    /// The narrowest policy that does; absent when `renewed` is true or no policy does.
    package var renewal: String?

    package init(
        conversation: String? = nil, lifetime: LifetimeValue, state: NegotiationState,
        proposal: LifetimeProposal? = nil, agreement: LifetimeAgreement? = nil, policy: String? = nil,
        renewed: Bool? = nil, renewal: String? = nil
    ) {
        self.conversation = conversation
        self.lifetime = lifetime
        self.state = state
        self.proposal = proposal
        self.agreement = agreement
        self.policy = policy
        self.renewed = renewed
        self.renewal = renewal
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("conversation", &conversation)
        try fields.field("lifetime", &lifetime)
        try fields.field("state", &state)
        try fields.nullable("proposal", &proposal)
        try fields.nullable("agreement", &agreement)
        try fields.field("policy", &policy)
        try fields.field("renewed", &renewed)
        try fields.field("renewal", &renewal)
    }
}

/// A whole agreement, so that it can be proven.
package struct LifetimeAgreementRecord: JSONRecord, Hashable, Sendable {
    package var agreement = LifetimeAgreement()
    /// In force, suspended until a new member has signed, or ended.
    package var state = ""
    /// Every signature was checked now and holds.
    package var verified = false
    /// As it was signed.
    package var proposal: JSONValue = .null
    /// As they were signed.
    package var accepts: [JSONValue] = []

    package init(agreement: LifetimeAgreement, state: String, verified: Bool, proposal: JSONValue, accepts: [JSONValue])
    {
        self.agreement = agreement
        self.state = state
        self.verified = verified
        self.proposal = proposal
        self.accepts = accepts
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("agreement", &agreement)
        try fields.field("state", &state)
        try fields.field("verified", &verified)
        try fields.field("proposal", &proposal)
        try fields.field("accepts", &accepts)
    }
}

/// A bound of one's own on how long anything is kept here.
package struct LifetimeCap: JSONRecord, Hashable, Sendable {
    /// `none` or a lifetime.
    package var cap = ""
    /// Absent for the default of conversations that have none.
    package var conversation: String?

    package init(cap: String, conversation: String? = nil) {
        self.cap = cap
        self.conversation = conversation
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("cap", &cap)
        try fields.field("conversation", &conversation)
    }
}

/// A standing answer to proposals.
package struct LifetimePolicy: JSONRecord, Hashable, Sendable {
    /// `ask`, `refuse`, `accept-up-to:7d`, or with a mailbox `accept-up-to:7d:ram` and `accept-up-to:7d:disk`.
    package var policy = ""
    /// Absent for the default of new conversations.
    package var conversation: String?

    package init(policy: String, conversation: String? = nil) {
        self.policy = policy
        self.conversation = conversation
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("policy", &policy)
        try fields.field("conversation", &conversation)
    }
}

/// `lifetime.show`: shows how long messages are kept.
package enum LifetimeShowMethod: ControlMethod {
    package static let name = "lifetime.show"
    package static let summary = "Shows how long messages are kept."
    package typealias Result = LifetimeStatus
    package typealias Params = ConversationParams
}

/// `lifetime.propose`: proposes how long messages are kept.
package enum LifetimeProposeMethod: ControlMethod {
    package static let name = "lifetime.propose"
    package static let summary = "Proposes how long messages are kept."
    package typealias Result = LifetimeStatus

    /// What `lifetime.propose` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
        package var conversation = ""
        package var lifetime: LifetimeValue = .ephemeral
        /// Of attachments; absent: as the others.
        package var attachments: LifetimeValue?
        /// What is not opened goes after this long: 1 min to 30 d.
        package var unopened: Interval?
        /// Absent: from sending.
        package var timer: LifetimeTimer?
        /// Absent: nothing goes to a mailbox.
        package var mailbox: LifetimeMailbox?
        /// Widen the standing policy so that it accepts these terms again after a restart.
        package var renew: Bool?

        package init(
            conversation: String, lifetime: LifetimeValue, attachments: LifetimeValue? = nil, unopened: Interval? = nil,
            timer: LifetimeTimer? = nil, mailbox: LifetimeMailbox? = nil, renew: Bool? = nil
        ) {
            self.conversation = conversation
            self.lifetime = lifetime
            self.attachments = attachments
            self.unopened = unopened
            self.timer = timer
            self.mailbox = mailbox
            self.renew = renew
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("lifetime", &lifetime)
            try fields.field("attachments", &attachments)
            try fields.field("unopened", &unopened)
            try fields.field("timer", &timer)
            try fields.field("mailbox", &mailbox)
            try fields.field("renew", &renew)
        }
    }
}

/// `lifetime.accept`: accepts the open proposal.
package enum LifetimeAcceptMethod: ControlMethod {
    package static let name = "lifetime.accept"
    package static let summary = "Accepts the open proposal, if it is the one that was open when this was asked."
    package typealias Result = LifetimeStatus

    /// What `lifetime.accept` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
        package var conversation = ""
        /// The id of the proposal, as `lifetime.show` gives it, or 12 digits of it and more: any other is refused.
        package var proposal: String?
        /// Widen the standing policy so that it accepts these terms again after a restart.
        package var renew: Bool?

        package init(conversation: String, proposal: String? = nil, renew: Bool? = nil) {
            self.conversation = conversation
            self.proposal = proposal
            self.renew = renew
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("proposal", &proposal)
            try fields.field("renew", &renew)
        }
    }
}

/// `lifetime.reject`: rejects the open proposal.
package enum LifetimeRejectMethod: ControlMethod {
    package static let name = "lifetime.reject"
    package static let summary = "Rejects the open proposal."
    package typealias Result = LifetimeStatus
    package typealias Params = ConversationParams
}

/// `lifetime.withdraw`: withdraws one's own proposal.
package enum LifetimeWithdrawMethod: ControlMethod {
    package static let name = "lifetime.withdraw"
    package static let summary = "Withdraws one's own proposal."
    package typealias Result = LifetimeStatus
    package typealias Params = ConversationParams
}

/// `lifetime.policy`: shows or sets the standing answer to proposals.
package enum LifetimePolicyMethod: ControlMethod {
    package static let name = "lifetime.policy"
    package static let summary = "Shows or sets the standing answer to proposals."
    package typealias Result = LifetimePolicy

    /// What `lifetime.policy` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// Absent for the default of new conversations.
        package var conversation: String?
        /// Absent to show the present one.
        package var policy: String?

        package init(conversation: String? = nil, policy: String? = nil) {
            self.conversation = conversation
            self.policy = policy
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("policy", &policy)
        }
    }
}

/// `lifetime.cap`: shows or sets how long anything is kept here at most.
package enum LifetimeCapMethod: ControlMethod {
    package static let name = "lifetime.cap"
    package static let summary = "Shows or sets how long anything is kept here at most."
    package typealias Result = LifetimeCap

    /// What `lifetime.cap` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// Absent for the default.
        package var conversation: String?
        /// `none`, a lifetime, or for one conversation `default`; absent to show the present one.
        package var cap: String?

        package init(conversation: String? = nil, cap: String? = nil) {
            self.conversation = conversation
            self.cap = cap
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("cap", &cap)
        }
    }
}

/// `lifetime.agreements`: shows agreements with all their signatures.
package enum LifetimeAgreementsMethod: ControlMethod {
    package static let name = "lifetime.agreements"
    package static let summary = "Shows agreements with all their signatures."

    /// What `lifetime.agreements` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
        package var conversation = ""
        /// The beginning of an agreement's id; absent for all that are kept.
        package var agreement: String?

        package init(conversation: String, agreement: String? = nil) {
            self.conversation = conversation
            self.agreement = agreement
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("agreement", &agreement)
        }
    }

    /// What `lifetime.agreements` answers.
    package struct Result: JSONRecord, Hashable, Sendable {
        /// Oldest first.
        package var agreements: [LifetimeAgreementRecord] = []

        package init(agreements: [LifetimeAgreementRecord]) { self.agreements = agreements }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("agreements", &agreements)
        }
    }
}
