import Cryptography

/// The joiner's first frame: proof of the invite, and its profile (Join.md). The handshake has shown its key.
package struct JoinRequest: Hashable, Sendable {
    package var invite: SignedInvite
    /// 32 bytes.
    package var joinSecret: [UInt8]
    package var member: Member

    package init(invite: SignedInvite, joinSecret: [UInt8], member: Member) {
        (self.invite, self.joinSecret, self.member) = (invite, joinSecret, member)
    }
}

/// The creator's answer: the conversation as the joiner enters it.
package struct Welcome: Hashable, Sendable {
    package var tag: InviteTag
    package var genesis: Genesis
    /// It lists the joiner.
    package var group: GroupState
    /// The other members, the creator first.
    package var members: [Member]
    /// The end of the conversation, if an explosion is scheduled.
    package var expiresAt: Timestamp?
    /// The sealed notice of that explosion, so that the joiner can act alone.
    package var notice: [UInt8]?
    /// The standing agreement, which the joiner signs too.
    package var agreement: Agreement?

    package init(
        tag: InviteTag, genesis: Genesis, group: GroupState, members: [Member], expiresAt: Timestamp?,
        notice: [UInt8]? = nil, agreement: Agreement? = nil
    ) {
        (self.tag, self.genesis, self.group, self.members, self.expiresAt) = (tag, genesis, group, members, expiresAt)
        (self.notice, self.agreement) = (notice, agreement)
    }

    /// The opened notice; `nil` unless it is valid and names the welcome's time.
    package var scheduledExplosion: ExplodeNotice? {
        guard let notice = notice.flatMap({ ExplodeNotice(opening: $0, conversation: genesis.conversation) }),
            notice.isValid(for: genesis), !notice.isImmediate, notice.expiresAt == expiresAt
        else { return nil }
        return notice
    }

    /// All signatures are valid, and the state lists `joiner`.
    package func isValid(for joiner: PublicKey) -> Bool {
        genesis.isSignatureValid && group.isValid(for: genesis) && group.members.contains(joiner)
            && members.first?.key == genesis.creator && Set(members.map(\.key) + [joiner]) == Set(group.members)
            && members.count == group.members.count - 1 && members.allSatisfy(\.isValid)
            && (expiresAt == nil && notice == nil || scheduledExplosion != nil)
    }
}

/// Why a creator refuses a join (seed 002). Values of later versions are kept as they are.
package enum JoinErrorType: RawRepresentable, Hashable, Sendable, Codable {
    case conversationExpired
    case genericFailure
    case singleUseConsumed
    case unknown(String)

    package init(rawValue: String) {
        let known: [JoinErrorType] = [.conversationExpired, .genericFailure, .singleUseConsumed]
        self = known.first { $0.rawValue == rawValue } ?? .unknown(rawValue)
    }

    package var rawValue: String {
        switch self {
        case .conversationExpired: "conversation_expired"
        case .genericFailure: "generic_failure"
        case .singleUseConsumed: "single_use_consumed"
        case .unknown(let raw): raw
        }
    }

    package var userFacingTitle: String {
        switch self {
        case .conversationExpired: "Convo no longer exists"
        case .singleUseConsumed: "Invite already used"
        case .genericFailure, .unknown: "Couldn't join"
        }
    }

    package var userFacingMessage: String {
        switch self {
        case .conversationExpired: "This conversation is no longer available"
        case .singleUseConsumed: "This invite was already used by someone else"
        case .genericFailure, .unknown: "Failed to join conversation"
        }
    }
}

/// The answer to a refused join. Only a joiner that has proved the join secret gets one.
package struct JoinError: Hashable, Sendable, Codable {
    package var errorType: JoinErrorType
    package var inviteTag: InviteTag
    /// In whole seconds, as on the wire.
    package var timestamp: Timestamp

    package init(errorType: JoinErrorType, inviteTag: InviteTag, timestamp: Timestamp) {
        self.errorType = errorType
        self.inviteTag = inviteTag
        self.timestamp = Timestamp(milliseconds: timestamp.milliseconds / .second * .second)
    }
}
