package enum LifetimeMethods {
    package static let all: [any ControlMethod.Type] = [
        LifetimeShowMethod.self, LifetimeProposeMethod.self, LifetimeAcceptMethod.self, LifetimeRejectMethod.self,
        LifetimeWithdrawMethod.self, LifetimePolicyMethod.self, LifetimeCapMethod.self, LifetimeAgreementsMethod.self,
    ]
}

package enum LifetimeValue: String, JSONChoice, Hashable, Sendable {
    /// In memory only.
    case ephemeral
    case oneHour = "1h"
    case sixHours = "6h"
    case oneDay = "1d"
    case sevenDays = "7d"
    case thirtyDays = "30d"
}

package enum NegotiationState: String, JSONChoice, Hashable, Sendable {
    /// No agreement: messages are ephemeral.
    case none
    case pending
    case agreed
}

/// The event at which a lifetime starts.
package enum LifetimeTimer: String, JSONChoice, Hashable, Sendable {
    case send
    case read
}

package struct LifetimeProposal: JSONRecord, LifetimeTermsFields, Hashable, Sendable {
    package var lifetime: LifetimeValue = .ephemeral
    /// Absent means the same as `lifetime`.
    package var attachments: LifetimeValue?
    /// Unopened messages expire after this time.
    package var unopened: Interval?
    /// Absent means `send`.
    package var timer: LifetimeTimer?
    /// Absent means no mailbox.
    package var mailbox: LifetimeMailbox?
    /// Members that have not answered, named as in ``Message/from``.
    package var waiting: [String]?
    /// Hash of the proposal, in hex.
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

package struct LifetimeAgreement: JSONRecord, LifetimeTermsFields, Hashable, Sendable {
    /// Hash of the agreement, in hex.
    package var id = ""
    package var lifetime: LifetimeValue = .ephemeral
    /// Absent means the same as `lifetime`.
    package var attachments: LifetimeValue?
    /// Unopened messages expire after this time.
    package var unopened: Interval?
    /// Absent means `send`.
    package var timer: LifetimeTimer?
    /// Absent means no mailbox.
    package var mailbox: LifetimeMailbox?
    package var agreedAt: Timestamp = Timestamp(milliseconds: 0)
    /// Names as in ``Message/from``.
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

package struct LifetimeStatus: JSONRecord, Hashable, Sendable {
    package var conversation: String?
    /// In force; a proposal does not change it.
    package var lifetime: LifetimeValue = .ephemeral
    package var state: NegotiationState = .none
    /// Null without an open proposal.
    package var proposal: LifetimeProposal?
    /// Null without an agreement.
    package var agreement: LifetimeAgreement?
    /// Automatic answer to proposals: `ask`, `refuse`, `accept-up-to:7d`, or `accept-up-to:7d:disk`.
    package var policy: String?
    /// Whether the policy accepts the agreement, or else the proposal, again after a restart. Absent without both.
    package var renewed: Bool?
    /// The narrowest policy that accepts the terms again; absent when `renewed` is true or no policy accepts them.
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

/// An agreement with the signed values that prove it.
package struct LifetimeAgreementRecord: JSONRecord, Hashable, Sendable {
    package var agreement = LifetimeAgreement()
    /// In force, suspended until a new member signs, or ended.
    package var state = ""
    /// Whether all signatures verified now.
    package var verified = false
    /// The signed value.
    package var proposal: JSONValue = .null
    /// The signed values.
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

/// A local maximum lifetime.
package struct LifetimeCap: JSONRecord, Hashable, Sendable {
    /// `none` or a lifetime.
    package var cap = ""
    /// Absent for the default of conversations without a cap.
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

/// An automatic answer to proposals.
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

package enum LifetimeShowMethod: ControlMethod {
    package static let name = "lifetime.show"
    package static let summary = "Shows how long messages are kept."
    package typealias Result = LifetimeStatus
    package typealias Params = ConversationParams
}

package enum LifetimeProposeMethod: ControlMethod {
    package static let name = "lifetime.propose"
    package static let summary = "Proposes how long messages are kept."
    package typealias Result = LifetimeStatus

    package struct Params: JSONRecord, Hashable, Sendable {
        package var conversation = ""
        package var lifetime: LifetimeValue = .ephemeral
        /// Absent means the same as `lifetime`.
        package var attachments: LifetimeValue?
        /// Unopened messages expire after this time: 1 min to 30 d.
        package var unopened: Interval?
        /// Absent means `send`.
        package var timer: LifetimeTimer?
        /// Absent means no mailbox.
        package var mailbox: LifetimeMailbox?
        /// Widen the policy so that it accepts these terms again after a restart.
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

package enum LifetimeAcceptMethod: ControlMethod {
    package static let name = "lifetime.accept"
    package static let summary = "Accepts the open proposal, if it is the one that was open when this was asked."
    package typealias Result = LifetimeStatus

    package struct Params: JSONRecord, Hashable, Sendable {
        package var conversation = ""
        /// Id of the proposal, or at least its first 12 digits. Any other proposal is refused.
        package var proposal: String?
        /// Widen the policy so that it accepts these terms again after a restart.
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

package enum LifetimeRejectMethod: ControlMethod {
    package static let name = "lifetime.reject"
    package static let summary = "Rejects the open proposal."
    package typealias Result = LifetimeStatus
    package typealias Params = ConversationParams
}

package enum LifetimeWithdrawMethod: ControlMethod {
    package static let name = "lifetime.withdraw"
    package static let summary = "Withdraws one's own proposal."
    package typealias Result = LifetimeStatus
    package typealias Params = ConversationParams
}

package enum LifetimePolicyMethod: ControlMethod {
    package static let name = "lifetime.policy"
    package static let summary = "Shows or sets the standing answer to proposals."
    package typealias Result = LifetimePolicy

    package struct Params: JSONRecord, Hashable, Sendable {
        /// Absent for the default of new conversations.
        package var conversation: String?
        /// Absent reads the policy.
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

package enum LifetimeCapMethod: ControlMethod {
    package static let name = "lifetime.cap"
    package static let summary = "Shows or sets how long anything is kept here at most."
    package typealias Result = LifetimeCap

    package struct Params: JSONRecord, Hashable, Sendable {
        /// Absent for the default.
        package var conversation: String?
        /// `none`, a lifetime, or for one conversation `default`. Absent reads the cap.
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

package enum LifetimeAgreementsMethod: ControlMethod {
    package static let name = "lifetime.agreements"
    package static let summary = "Shows agreements with all their signatures."

    package struct Params: JSONRecord, Hashable, Sendable {
        package var conversation = ""
        /// Prefix of an agreement's id. Absent means all.
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
