import Cryptography

/// The creator's side of joins: admits a request, refuses it with a reason, or is silent (Join.md, "The creator").
/// Single use holds since the first admission is recorded before any welcome.
package struct InviteBook: Hashable, Sendable, Codable {
    package struct IssuedInvite: Hashable, Sendable, Codable {
        package var id: InviteID
        package var tag: InviteTag
        /// It admits no joiner from then on.
        package var expiresAt: Timestamp
        package var singleUse: Bool
        /// The generation of the relayed endpoints in the invite.
        package var relayGeneration: UInt64 = 0
        /// Revoked alone, without a new tag. Its route stays, so that its holders are told.
        package var isRevoked = false
        /// The joiners admitted by it, in the order of arrival.
        package var admitted: [PublicKey] = []
    }

    package enum Answer: Hashable, Sendable {
        /// First time: record the admission durably, then welcome.
        case admit
        /// The same joiner again: the same welcome.
        case welcomeAgain
        case refuse(JoinErrorType)
        /// A stranger: no answer, so that it learns nothing.
        case silence
    }

    /// The tag of the valid invites; rotating it revokes them all.
    package var tag: InviteTag
    /// Unexpired invites, and expired ones for ``Limits/joinLifetime``, or until another is issued.
    package private(set) var invites: [IssuedInvite] = []
    /// Earlier invites stay void after the unlock if the tag is rotated too.
    package var isLocked = false

    package init(tag: InviteTag) { self.tag = tag }

    /// - Returns: `false` when there are ``Limits/inviteCount`` already.
    package mutating func issue(_ invite: IssuedInvite) -> Bool {
        guard invites.count < Limits.inviteCount else { return false }
        invites.append(invite)
        return true
    }

    /// - Returns: whether the invite was there.
    package mutating func revoke(_ id: InviteID) -> Bool {
        guard let index = invites.firstIndex(where: { $0.id == id }) else { return false }
        invites[index].isRevoked = true
        return true
    }

    /// Invites whose joiners can reach us: their routes are registered.
    package func open(now: Timestamp) -> [IssuedInvite] {
        invites.filter { $0.expiresAt > now || !$0.admitted.isEmpty }
    }

    /// Generations of our relayed endpoints in invites that still admit.
    package func relayGenerations(now: Timestamp) -> Set<UInt64> {
        guard !isLocked else { return [] }
        return Set(invites.filter { admits($0, now: now) }.map(\.relayGeneration))
    }

    /// When ``relayGenerations(now:)`` may lose its next one by expiry.
    package func nextRelayExpiry(now: Timestamp) -> Timestamp? {
        invites.filter { admits($0, now: now) }.map(\.expiresAt).min()
    }

    private func admits(_ invite: IssuedInvite, now: Timestamp) -> Bool {
        invite.expiresAt > now && invite.tag == tag && !invite.isRevoked
            && !(invite.singleUse && !invite.admitted.isEmpty)
    }

    /// Decides the request of `joiner`, a key that the handshake has authenticated.
    /// - Parameters:
    ///   - verified: the invite of the request, if this inbox has signed it.
    ///   - opensToken: the sealed token in the invite is this conversation's.
    ///   - memberCount: current members, including us.
    package func decide(
        _ request: JoinRequest, verified: VerifiedInvite?, opensToken: Bool, joiner: PublicKey, isMember: Bool,
        memberCount: Int, now: Timestamp
    ) -> Answer {
        // A request without the secret and a valid signature gets no answer.
        let id = InviteID(unchecked: SHA256.hash(request.joinSecret))
        guard let verified, verified.invite.id == id else { return .silence }
        let issued = invites.first { $0.id == id }
        if let issued, issued.admitted.contains(joiner), isMember { return .welcomeAgain }
        // The invite names another conversation: for its joiner it is gone.
        guard opensToken else { return .refuse(.conversationExpired) }
        guard let issued, issued.expiresAt > now, verified.invite.expiresAt > now, issued.tag == tag,
            verified.invite.tag == tag, !issued.isRevoked, !isLocked
        else { return .refuse(.genericFailure) }
        if issued.singleUse, !issued.admitted.isEmpty { return .refuse(.singleUseConsumed) }
        let isAdmitted =
            !issued.admitted.contains(joiner) && !isMember && issued.admitted.count < Limits.admissionCount
            && memberCount < Limits.memberCount
        return isAdmitted ? .admit : .refuse(.genericFailure)
    }

    /// This must be durable before the welcome leaves.
    package mutating func recordAdmission(of joiner: PublicKey, by id: InviteID) {
        guard let index = invites.firstIndex(where: { $0.id == id }) else { return }
        invites[index].admitted.append(joiner)
    }

    /// - Parameter grace: how long the holders of an unused, expired invite are still told so.
    /// - Returns: the invites whose routes end too.
    package mutating func prune(now: Timestamp, grace: Milliseconds = 0) -> [InviteID] {
        let over = invites.filter { $0.expiresAt + ($0.admitted.isEmpty ? grace : Limits.joinLifetime) <= now }
        let ids = over.map(\.id)
        if !ids.isEmpty { invites.removeAll { ids.contains($0.id) } }
        return ids
    }
}
