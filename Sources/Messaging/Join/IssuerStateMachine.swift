import Crypto

/// The creator's side of joins: which requests are admitted, which are told why not, and which get silence (sections 4
/// and 5). Single use is enforced here: who came first is recorded before anybody is welcomed.
package struct IssuerStateMachine: Hashable, Sendable {
    /// An invite that this inbox has issued.
    package struct IssuedInvite: Hashable, Sendable, Codable {
        package var id: InviteID
        package var tag: InviteTag
        /// From then on it admits nobody.
        package var expiresAt: Timestamp
        package var singleUse: Bool
        /// Of the relayed endpoints that it names.
        package var relayGeneration: UInt64
        /// Voided by itself; its route stays, so that its holders are told.
        package var isRevoked = false
        /// Who has used it, in the order of arrival.
        package var admitted: [PublicKey] = []

        package init(id: InviteID, tag: InviteTag, expiresAt: Timestamp, singleUse: Bool, relayGeneration: UInt64 = 0) {
            self.id = id
            self.relayGeneration = relayGeneration
            self.tag = tag
            self.expiresAt = expiresAt
            self.singleUse = singleUse
        }
    }

    /// What survives a restart.
    package struct Record: Hashable, Sendable, Codable {
        /// Carried by the invites that are valid now; rotated to revoke them all.
        package var tag: InviteTag
        /// Those that have not expired, and those that have: for ``Limits/joinLifetime``, or until there is another.
        package var invites: [IssuedInvite] = []
        /// Nobody is admitted.
        package var isLocked = false

        package init(tag: InviteTag) { self.tag = tag }
    }

    /// What a join request is answered with.
    package enum Answer: Hashable, Sendable {
        /// First time: record the admission durably, then welcome.
        case admit
        /// The same joiner again: the same welcome.
        case welcomeAgain
        case refuse(JoinErrorType)
        /// A stranger: nothing, so that nobody learns anything.
        case silence
    }

    package private(set) var record: Record

    package init(record: Record) { self.record = record }

    /// Takes an invite on the list.
    /// - Returns: `false` when there are ``Limits/inviteCount`` already.
    package mutating func issue(_ invite: IssuedInvite) -> Bool {
        guard record.invites.count < Limits.inviteCount else { return false }
        record.invites.append(invite)
        return true
    }

    /// Rotates the tag: every invite issued so far is void.
    package mutating func rotate(to tag: InviteTag) { record.tag = tag }

    /// Voids one invite.
    /// - Returns: whether it was there.
    package mutating func revoke(_ id: InviteID) -> Bool {
        guard let index = record.invites.firstIndex(where: { $0.id == id }) else { return false }
        record.invites[index].isRevoked = true
        return true
    }

    /// Rotate the tag as well when locking: what was issued before stays void.
    package mutating func setLocked(_ isLocked: Bool) { record.isLocked = isLocked }

    /// Invites whose joiners can reach us: their routes are registered.
    package func open(now: Timestamp) -> [IssuedInvite] {
        record.invites.filter { $0.expiresAt > now || !$0.admitted.isEmpty }
    }

    /// Generations of our relayed endpoints by which somebody may still come with an invite that admits.
    package func relayGenerations(now: Timestamp) -> Set<UInt64> {
        guard !record.isLocked else { return [] }
        return Set(record.invites.filter { admits($0, now: now) }.map(\.relayGeneration))
    }

    /// The first of those moments at which ``relayGenerations(now:)`` loses one by time.
    package func nextRelayExpiry(now: Timestamp) -> Timestamp? {
        record.invites.filter { admits($0, now: now) }.map(\.expiresAt).min()
    }

    private func admits(_ invite: IssuedInvite, now: Timestamp) -> Bool {
        invite.expiresAt > now && invite.tag == record.tag && !invite.isRevoked
            && !(invite.singleUse && !invite.admitted.isEmpty)
    }

    /// Decides a request whose sender has shown `joiner` in the handshake.
    /// - Parameters:
    ///   - verified: the invite of the request, if its signature is its creator's and the creator is this inbox.
    ///   - opensToken: the sealed token in the invite is this conversation's.
    ///   - memberCount: members now, ourselves included.
    package func decide(
        _ request: JoinRequest, verified: VerifiedInvite?, opensToken: Bool, joiner: PublicKey, isMember: Bool,
        memberCount: Int, now: Timestamp
    ) -> Answer {
        // Without the secret and a valid signature nothing is answered.
        let id = InviteID(unchecked: SHA256.hash(request.joinSecret))
        guard let verified, verified.invite.id == id else { return .silence }
        let issued = record.invites.first { $0.id == id }
        if let issued, issued.admitted.contains(joiner), isMember { return .welcomeAgain }
        // The conversation that the invite names is not this one: for its joiner it is gone.
        guard opensToken else { return .refuse(.conversationExpired) }
        guard let issued, issued.expiresAt > now, verified.invite.expiresAt > now else {
            return .refuse(.genericFailure)
        }
        guard issued.tag == record.tag, verified.invite.tag == record.tag, !issued.isRevoked, !record.isLocked else {
            return .refuse(.genericFailure)
        }
        if issued.singleUse, !issued.admitted.isEmpty { return .refuse(.singleUseConsumed) }
        guard !issued.admitted.contains(joiner), !isMember else { return .refuse(.genericFailure) }
        guard issued.admitted.count < Limits.admissionCount, memberCount < Limits.memberCount else {
            return .refuse(.genericFailure)
        }
        return .admit
    }

    /// To be durable before the welcome leaves.
    package mutating func recordAdmission(of joiner: PublicKey, by id: InviteID) {
        guard let index = record.invites.firstIndex(where: { $0.id == id }) else { return }
        record.invites[index].admitted.append(joiner)
    }

    /// Forgets invites whose time is over.
    /// - Parameter grace: how long their holders are still told so, if nobody has come by them.
    /// - Returns: those whose routes go with them.
    package mutating func prune(now: Timestamp, grace: Milliseconds = 0) -> [InviteID] {
        let over = record.invites.filter { $0.expiresAt + ($0.admitted.isEmpty ? grace : Limits.joinLifetime) <= now }
        guard !over.isEmpty else { return [] }
        let ids = Set(over.map(\.id))
        record.invites.removeAll { ids.contains($0.id) }
        return over.map(\.id)
    }
}
