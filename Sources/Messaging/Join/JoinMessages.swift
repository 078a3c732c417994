import Crypto

/// The joiner's first frame: proof of the invite and where to find the joiner (Join.md). Who the joiner is, the
/// handshake has shown.
package struct JoinRequest: Hashable, Sendable {
    package var invite: SignedInvite
    /// 32 bytes.
    package var joinSecret: [UInt8]
    /// The joiner's description of itself.
    package var member: Member

    package init(invite: SignedInvite, joinSecret: [UInt8], member: Member) {
        self.invite = invite
        self.joinSecret = joinSecret
        self.member = member
    }
}

/// The creator's answer: the conversation as the joiner enters it.
package struct Welcome: Hashable, Sendable {
    package var tag: InviteTag
    package var genesis: Genesis
    /// The joiner is in it.
    package var group: GroupState
    /// Everyone but the joiner, the creator first.
    package var members: [Member]
    /// Of a scheduled explosion.
    package var expiresAt: Timestamp?
    /// The sealed notice that says so, with which the joiner can act alone.
    package var notice: [UInt8]?
    /// The agreement that stands; whoever enters signs it too.
    package var agreement: Agreement?

    package init(
        tag: InviteTag, genesis: Genesis, group: GroupState, members: [Member], expiresAt: Timestamp?,
        notice: [UInt8]? = nil, agreement: Agreement? = nil
    ) {
        self.tag = tag
        self.genesis = genesis
        self.group = group
        self.members = members
        self.expiresAt = expiresAt
        self.notice = notice
        self.agreement = agreement
    }

    /// The notice, opened; `nil` when there is none that holds and says what the welcome says.
    package var scheduledExplosion: ExplodeNotice? {
        guard let notice = notice.flatMap({ ExplodeNotice(opening: $0, conversation: genesis.conversation) }),
            notice.isValid(for: genesis), !notice.isImmediate, notice.expiresAt == expiresAt
        else { return nil }
        return notice
    }

    /// Everything in it is signed by whom it should be, and it is `joiner` who is welcomed.
    package func isValid(for joiner: PublicKey) -> Bool {
        genesis.isSignatureValid && group.isValid(for: genesis) && group.members.contains(joiner)
            && members.first?.key == genesis.creator && Set(members.map(\.key) + [joiner]) == Set(group.members)
            && members.count == group.members.count - 1 && members.allSatisfy(\.isValid)
            && (expiresAt == nil && notice == nil || scheduledExplosion != nil)
    }
}

/// Why a join failed, as the creator tells the joiner (seed 002). A value of a later version is kept as it was.
package enum JoinErrorType: Hashable, Sendable, Codable {
    case conversationExpired
    case genericFailure
    case singleUseConsumed
    case unknown(String)

    package init(rawValue: String) {
        switch rawValue {
        case "conversation_expired": self = .conversationExpired
        case "generic_failure": self = .genericFailure
        case "single_use_consumed": self = .singleUseConsumed
        default: self = .unknown(rawValue)
        }
    }

    /// As it stands on the wire.
    package var rawValue: String {
        switch self {
        case .conversationExpired: "conversation_expired"
        case .genericFailure: "generic_failure"
        case .singleUseConsumed: "single_use_consumed"
        case .unknown(let raw): raw
        }
    }

    /// The seed's titles for people.
    package var userFacingTitle: String {
        switch self {
        case .conversationExpired: "Convo no longer exists"
        case .singleUseConsumed: "Invite already used"
        case .genericFailure, .unknown: "Couldn't join"
        }
    }

    /// The seed's texts for people.
    package var userFacingMessage: String {
        switch self {
        case .conversationExpired: "This conversation is no longer available"
        case .singleUseConsumed: "This invite was already used by someone else"
        case .genericFailure, .unknown: "Failed to join conversation"
        }
    }

    package init(from decoder: any Decoder) throws {
        self.init(rawValue: try decoder.singleValueContainer().decode(String.self))
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(rawValue)
    }
}

/// The answer to a join that is not admitted; to those alone who have proved the join secret.
package struct JoinError: Hashable, Sendable, Codable {
    package var errorType: JoinErrorType
    package var inviteTag: InviteTag
    /// To the second, as it is written.
    package var timestamp: Timestamp

    package init(errorType: JoinErrorType, inviteTag: InviteTag, timestamp: Timestamp) {
        self.errorType = errorType
        self.inviteTag = inviteTag
        self.timestamp = Timestamp(milliseconds: timestamp.milliseconds / .second * .second)
    }
}
