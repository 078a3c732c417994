import Primitives

extension LifetimeStateMachine {
    /// What survives a restart. Saved before anything that rests on it is sent.
    package struct Record: Hashable, Sendable, Codable {
        /// The newest agreement.
        package var head: Agreement?
        /// ``head`` stands: its session has not ended.
        package var isStanding = false
        /// What stood before, for a withdrawal that crosses our accept.
        package var before: Agreement?
        /// Older agreements whole, so that what is stored under them can be proven; oldest first.
        package var earlier: [Agreement] = []
        /// Highest epoch of an agreement; proposals must exceed it.
        package var epoch: UInt64 = 0
        /// Highest epoch that anybody has named; our own proposals exceed it.
        package var seen: UInt64 = 0
        /// Agreements that were in force here and under which a content may still arrive, oldest first.
        package var known: [KnownAgreement] = []
        /// Up to which epoch the proposals of a member are void: taken back, or consent to them is.
        package var floors: [EpochFloor] = []
        /// What we have signed last without having seen the others' signatures.
        package var accepted: AcceptedProposal?
        /// The newest agreement that the proposer has shown to hold: it cannot take it back any more.
        package var confirmed: AgreementID?
        /// When the agreement that stands came to be.
        package var settledAt: Timestamp?
        /// What a standing policy of all members would renew.
        package var renewable: LifetimeTerms?
        /// `nil`: the node's default policy.
        package var policy: LifetimePolicy?
        /// `nil`: the node's default cap.
        package var cap: LifetimeCap?
        /// Agreements of an earlier version of the member list count no more: we were alone since.
        package var membershipFloor: UInt64 = 0

        package init() {}
    }

    /// What is kept of an agreement.
    package struct KnownAgreement: Hashable, Sendable, Codable {
        package var id: AgreementID
        package var terms: LifetimeTerms
        /// When it ceased to be in force: it covers what was sent before.
        package var endedAt: Timestamp?
    }

    /// Proposals of a member that are void.
    package struct EpochFloor: Hashable, Sendable, Codable {
        package var proposer: PublicKey
        package var epoch: UInt64
    }

    /// A proposal that we have accepted.
    package struct AcceptedProposal: Hashable, Sendable, Codable {
        package var id: ProposalID
        package var proposer: PublicKey
        package var epoch: UInt64
    }
}

extension LifetimeStateMachine.Record {
    private enum CodingKeys: String, CodingKey {
        case head, isStanding, before, earlier, epoch, seen, known, floors, accepted, confirmed, settledAt, renewable
        case policy, cap, membershipFloor
    }

    /// Reads records of the first version too: their agreements are signed in another way and count no more, as after
    /// the end of a session.
    package init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        func read<Value: Decodable>(_ type: Value.Type, _ key: CodingKeys) -> Value? {
            // Not as it is written now: absent.
            try? container.decodeIfPresent(type, forKey: key)
        }
        self.init()
        head = read(Agreement.self, .head)
        isStanding = head != nil && read(Bool.self, .isStanding) ?? false
        before = read(Agreement.self, .before)
        earlier = read([Agreement].self, .earlier) ?? []
        epoch = read(UInt64.self, .epoch) ?? 0
        seen = read(UInt64.self, .seen) ?? 0
        known = read([LifetimeStateMachine.KnownAgreement].self, .known) ?? []
        floors = read([LifetimeStateMachine.EpochFloor].self, .floors) ?? []
        accepted = read(LifetimeStateMachine.AcceptedProposal.self, .accepted)
        confirmed = read(AgreementID.self, .confirmed)
        settledAt = read(Timestamp.self, .settledAt)
        renewable = read(LifetimeTerms.self, .renewable)
        policy = try container.decodeIfPresent(LifetimePolicy.self, forKey: .policy)
        cap = try container.decodeIfPresent(LifetimeCap.self, forKey: .cap)
        membershipFloor = read(UInt64.self, .membershipFloor) ?? 0
    }
}
