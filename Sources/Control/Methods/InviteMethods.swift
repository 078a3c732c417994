/// Invitations.
package enum InviteMethods {
    package static let all: [any ControlMethod.Type] = [
        InviteCreateMethod.self, InviteListMethod.self, InviteRevokeMethod.self, InviteInspectMethod.self,
    ]
}

/// Whether an invitation was signed by the inbox that it names.
package enum InviteSignature: String, Codable, Hashable, Sendable, CaseIterable {
    case valid
    case invalid
}

/// An invitation.
package struct Invite: Codable, Hashable, Sendable {
    /// The text to pass on, `mayfly:join/…`; null in a list: the creator keeps only a hash of its secret.
    @Nullable package var slug: String?
    /// The same.
    @Nullable package var url: String?
    /// Id: the hash of its secret, in hex.
    package var invite: String?
    /// Shared by all invitations that one revocation ends.
    package var tag: String
    @Nullable package var expiresAt: Timestamp?
    package var singleUse: Bool
    /// Inbox id of the creator.
    package var creator: String
    /// In force when the invitation was made.
    package var lifetime: LifetimeValue
    package var signature: InviteSignature
    package var conversationExpiresAt: Timestamp?
    package var name: String?
    package var about: String?
    /// In a list: how many it has admitted.
    package var admitted: Int?

    package init(
        slug: String?,
        url: String?,
        invite: String? = nil,
        tag: String,
        expiresAt: Timestamp? = nil,
        singleUse: Bool,
        creator: String,
        lifetime: LifetimeValue,
        signature: InviteSignature,
        conversationExpiresAt: Timestamp? = nil,
        name: String? = nil,
        about: String? = nil,
        admitted: Int? = nil
    ) {
        self.slug = slug
        self.url = url
        self.invite = invite
        self.tag = tag
        self.expiresAt = expiresAt
        self.singleUse = singleUse
        self.creator = creator
        self.lifetime = lifetime
        self.signature = signature
        self.conversationExpiresAt = conversationExpiresAt
        self.name = name
        self.about = about
        self.admitted = admitted
    }

    package enum CodingKeys: String, CodingKey {
        case slug
        case url
        case invite
        case tag
        case expiresAt
        case singleUse
        case creator
        case lifetime
        case signature
        case conversationExpiresAt
        case name
        case about = "description"
        case admitted
    }
}

/// `invite.create`: makes an invitation.
package enum InviteCreateMethod: ControlMethod {
    package static let name = "invite.create"
    package static let summary = "Makes an invitation."
    package typealias Result = Invite

    /// What `invite.create` is asked.
    package struct Params: Codable, Hashable, Sendable {
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
        package var conversation: String
        /// 24 h when absent.
        package var expiresIn: Interval?
        package var singleUse: Bool?

        package init(conversation: String, expiresIn: Interval? = nil, singleUse: Bool? = nil) {
            self.conversation = conversation
            self.expiresIn = expiresIn
            self.singleUse = singleUse
        }
    }
}

/// `invite.list`: lists the valid invitations of a conversation.
package enum InviteListMethod: ControlMethod {
    package static let name = "invite.list"
    package static let summary = "Lists the valid invitations of a conversation."

    /// What `invite.list` is asked.
    package struct Params: Codable, Hashable, Sendable {
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
        package var conversation: String

        package init(conversation: String) {
            self.conversation = conversation
        }
    }

    /// What `invite.list` answers.
    package struct Result: Codable, Hashable, Sendable {
        package var invites: [Invite]

        package init(invites: [Invite]) {
            self.invites = invites
        }
    }
}

/// `invite.revoke`: revokes one invitation of a conversation, or all of them.
package enum InviteRevokeMethod: ControlMethod {
    package static let name = "invite.revoke"
    package static let summary = "Revokes one invitation of a conversation, or all of them."

    /// What `invite.revoke` is asked.
    package struct Params: Codable, Hashable, Sendable {
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
        package var conversation: String
        /// Its text, or the beginning of its id; all when absent.
        package var invite: String?

        package init(conversation: String, invite: String? = nil) {
            self.conversation = conversation
            self.invite = invite
        }
    }

    /// What `invite.revoke` answers.
    package struct Result: Codable, Hashable, Sendable {
        package var ok: Bool
        /// Id, in hex.
        package var conversation: String
        /// The tag of invitations made from now on: a new one when all were revoked.
        package var tag: String

        package init(ok: Bool, conversation: String, tag: String) {
            self.ok = ok
            self.conversation = conversation
            self.tag = tag
        }
    }
}

/// `invite.inspect`: reads an invitation without using it.
package enum InviteInspectMethod: ControlMethod {
    package static let name = "invite.inspect"
    package static let summary = "Reads an invitation without using it."
    package typealias Result = Invite

    /// What `invite.inspect` is asked.
    package struct Params: Codable, Hashable, Sendable {
        package var slug: String

        package init(slug: String) {
            self.slug = slug
        }
    }
}
