import Control
import Cryptography
import Messaging
import NIOCore
import NodeRuntime

enum LifetimeHandlers {
    static func add(to router: inout NodeRouter) {
        addCapsAndAgreements(&router)
        router.on(Methods.lifetimeShow) { node, params in try LifetimeView.lifetime(params.conversation, node) }
        router.reaching(
            Methods.lifetimePropose, { $0.conversation },
            { node, params in
                let terms = try terms(params)
                do { try node.propose(params.conversation, terms) } catch {
                    // A proposal of the terms in force succeeds without effect.
                    guard case .command(.lifetime(.alreadyAgreed))? = error as? NodeError else { throw error }
                }
                guard params.renew == true else {
                    return node.loop.makeSucceededFuture(try LifetimeView.lifetime(params.conversation, node))
                }
                return try node.renew(params.conversation, terms).flatMapThrowing { [node] in
                    try node.assumeIsolated { try LifetimeView.lifetime(params.conversation, $0) }
                }
            })
        addAccept(&router)
        for (method, rejects) in [(Methods.lifetimeReject, true), (Methods.lifetimeWithdraw, false)] {
            router.reaching(
                method, { $0.conversation },
                { node, params in
                    if rejects { try node.reject(params.conversation) } else { try node.withdraw(params.conversation) }
                    return node.loop.makeSucceededFuture(try LifetimeView.lifetime(params.conversation, node))
                })
        }
        router.durably(Methods.lifetimePolicy) { node, params in
            if let text = params.policy {
                guard let policy = Messaging.LifetimePolicy(text) else {
                    throw ControlError(
                        .usage, "`\(text)` is not a policy",
                        hint: "write accept-up-to:7d, accept-up-to:7d:disk, ask or refuse")
                }
                if let conversation = params.conversation {
                    try node.setPolicy(conversation, policy)
                } else {
                    try node.setDefaultPolicy(policy)
                }
            }
            guard let conversation = params.conversation else {
                return LifetimePolicy(policy: node.policyByDefault.text)
            }
            let machine = try node.conversation(conversation)
            return LifetimePolicy(
                policy: (machine.policy ?? node.policyByDefault).text, conversation: machine.conversation.description)
        }
    }

    /// The user agrees to the proposal they saw. While the node dials the members, the proposer may replace it.
    private static func addAccept(_ router: inout NodeRouter) {
        router.later(Methods.lifetimeAccept) { node, call in
            let params = call.params
            // Shorter prefixes could be forged.
            if let proposal = params.proposal, proposal.utf8.count < 12 {
                throw ControlError(.usage, "`\(proposal)` is too short", hint: "give 12 digits of the id, or more")
            }
            let before = try? node.conversation(params.conversation).pendingProposal?.proposal.id
            return node.whenReached(params.conversation).flatMap { [node] in
                node.assumeIsolated { node in
                    do {
                        guard let open = try node.conversation(params.conversation).pendingProposal?.proposal else {
                            throw NodeError.command(.lifetime(.noProposal))
                        }
                        let now = open.id
                        let named = params.proposal.map { now.description.hasPrefix($0.lowercased()) }
                        guard named ?? (now == before) else { throw NodeError.command(.lifetime(.otherProposal)) }
                        let accepted = try node.accept(params.conversation, only: now)
                        let renewed =
                            params.renew == true
                            ? try node.renew(params.conversation, open.terms) : node.loop.makeSucceededVoidFuture()
                        return accepted.and(renewed).flatMapThrowing { [node] _ in
                            try node.assumeIsolated { try LifetimeView.lifetime(params.conversation, $0) }
                        }
                    } catch { return node.loop.makeFailedFuture(error) }
                }
            }
        }
    }

    private static func terms(_ params: LifetimeProposeParams) throws -> LifetimeTerms {
        let wanted = params.terms
        let terms = LifetimeTerms(
            wanted.lifetime, attachment: wanted.attachments, unopened: wanted.unopened?.milliseconds,
            timer: wanted.timer ?? .send, mailbox: wanted.mailbox ?? .no)
        if let unopened = terms.unopened, !LifetimeTerms.unopenedRange.contains(unopened) {
            throw ControlError(
                .usage, "the limit of an unopened message is not between 1 min and 30 d",
                hint: "give such a limit, for example --unopened 1h")
        }
        if terms.mailbox == .disk, terms.lifetime == .ephemeral || terms.attachment == .ephemeral {
            throw ControlError(
                .usage, "a mailbox on disk needs a lifetime that stores texts and files; `ephemeral` stores nothing",
                hint: "give --mailbox ram, or a lifetime: `mayfly lifetime propose C 1d --mailbox disk`")
        }
        guard terms.isValid else {
            throw ControlError(
                .usage, "an ephemeral lifetime has no timer and no limit of unopened messages",
                hint: "propose a stored lifetime: `mayfly lifetime propose C 1d --unopened 1h`")
        }
        return terms
    }

    private static func addCapsAndAgreements(_ router: inout NodeRouter) {
        router.durably(Methods.lifetimeCap) { node, params in
            if let text = params.cap {
                let cap = Messaging.LifetimeCap(text)
                if cap == nil, text != "default" || params.conversation == nil {
                    throw ControlError(
                        .usage, "`\(text)` is not a cap", hint: "write ephemeral, 1h, 6h, 1d, 7d, 30d or none")
                }
                if let conversation = params.conversation {
                    try node.setCap(conversation, cap)
                } else {
                    try node.setDefaultCap(cap ?? .none)
                }
            }
            guard let conversation = params.conversation else { return LifetimeCap(cap: node.capByDefault.text) }
            let machine = try node.conversation(conversation)
            return LifetimeCap(
                cap: (machine.cap ?? node.capByDefault).text, conversation: machine.conversation.description)
        }
        router.on(Methods.lifetimeAgreements) { node, params in
            try LifetimeView.agreements(params.conversation, params.agreement, node)
        }
    }
}

enum ExplosionHandlers {
    static func add(to router: inout NodeRouter) {
        router.later(Methods.explode) { node, call in
            let params = call.params
            if let record = try destroyed(params.conversation, node) {
                return node.loop.makeSucceededFuture(ExplosionView.explosion(record, node))
            }
            var time = ExplosionTime.now
            switch (params.at, params.delay) {
            case (nil, nil): break
            case (let at?, nil): time = .at(at)
            case (nil, let delay?): time = .after(delay.milliseconds)
            case (_?, _?): throw ControlError(.usage, "give only one of `at` and `in`")
            }
            let conversation: ConversationID
            do throws(NodeError) {
                conversation = try node.explode(params.conversation, time, isTraceless: params.noTrace ?? false)
            } catch {
                guard case .command(.notCreator) = error else { throw error }
                throw ControlError(
                    .failed, "only the conversation's creator may explode it",
                    hint: "`mayfly conversation leave C` destroys your own copy")
            }
            let id = conversation.description
            let status = try explosion(id, node)
            if status.state == "scheduled" { return node.whenCommitted().map { status } }
            // Waits for the commit, so that members are notified even after a crash. The keys are destroyed even if a
            // full disk refuses the commit.
            return node.whenCommitted().flatMapErrorThrowing { _ in }.map { [node] in
                node.assumeIsolated { (try? explosion(id, $0)) ?? status }
            }
        }
        router.on(Methods.explodeStatus) { node, params in
            do { return try explosion(params.conversation, node) } catch NodeError.unknownConversation(let text, nil) {
                throw ControlError(
                    .notFound, "no conversation `\(text)`", hint: "`mayfly explode list` shows what has exploded")
            }
        }
        router.on(Methods.explodeList) { node, params in try ExplosionView.explosions(from: params.from, node) }
    }

    /// The record of an exploded conversation; `nil` for a living one.
    private static func destroyed(_ text: String, _ node: isolated Node) throws -> ExplosionRecord? {
        let record = try node.explosion(text)
        // A locked node does not know the names of living conversations, so a prefix could mean one of them. It accepts
        // only a full id.
        if let record, node.isLocked, record.conversation.description != text.lowercased() { throw NodeError.locked }
        return record
    }

    private static func explosion(_ text: String, _ node: isolated Node) throws -> ExplosionStatus {
        if let record = try node.explosion(text) { return ExplosionView.explosion(record, node) }
        return ExplosionView.explosion(try node.conversation(text), node)
    }
}

enum LifetimeView {
    static func lifetime(_ text: String, _ node: isolated Node) throws(NodeError) -> LifetimeStatus {
        let machine = try node.conversation(text)
        let policy = machine.policy ?? node.policyByDefault
        let terms = machine.agreement?.terms ?? machine.pendingProposal?.proposal.terms
        return LifetimeStatus(
            conversation: machine.conversation.description, lifetime: machine.lifetime,
            state: machine.pendingProposal != nil ? .pending : machine.agreement != nil ? .agreed : .none,
            proposal: proposal(of: machine, node), agreement: machine.agreement.map { agreement($0, machine, node) },
            policy: policy.text, renewed: terms.map { machine.renews($0, policy) })
    }

    static func proposal(of machine: Messaging.Conversation, _ node: isolated Node) -> LifetimeProposal? {
        guard let pending = machine.pendingProposal else { return nil }
        let proposal = pending.proposal
        return LifetimeProposal(
            terms: .init(proposal.terms), waiting: machine.unanswered.map { MemberName.named($0, machine, node) },
            id: proposal.id.description, from: MemberName.shown(proposal.proposer, machine, node),
            member: pending.isOurs ? nil : MemberName.id(proposal.proposer), proposedAt: proposal.proposedAt)
    }

    static func agreement(_ agreement: Agreement, _ machine: Messaging.Conversation, _ node: isolated Node)
        -> LifetimeAgreement
    { self.agreement(agreement) { MemberName.named($0, machine, node) } }

    static func agreement(_ agreement: Agreement, _ named: (PublicKey) -> NamedMember) -> LifetimeAgreement {
        LifetimeAgreement(
            id: agreement.id.description, terms: .init(agreement.terms),
            agreedAt: agreement.accepts.map(\.acceptedAt).max() ?? agreement.proposal.proposedAt,
            members: agreement.signers.map(named))
    }

    /// Agreements with the signed values that prove them.
    /// - Parameter id: prefix of an agreement's id; `nil` for all.
    static func agreements(_ text: String, _ id: String?, _ node: isolated Node) throws -> LifetimeAgreementsResult {
        let machine = try node.conversation(text)
        let matches = machine.agreements.filter { agreement in
            id.map { agreement.id.description.hasPrefix($0.lowercased()) } ?? true
        }
        if let id {
            if id.isEmpty || matches.isEmpty {
                throw ControlError(
                    .notFound, "no agreement `\(id)` is kept",
                    hint: "`mayfly lifetime agreements C` shows what there is")
            }
            if matches.count > 1 { throw NodeError.ambiguous(id, matches: matches.map(\.id.description)) }
        }
        return LifetimeAgreementsResult(agreements: matches.map { record($0, machine, node) })
    }

    private static func record(_ agreement: Agreement, _ machine: Messaging.Conversation, _ node: isolated Node)
        -> LifetimeAgreementRecord
    {
        let state =
            machine.agreement?.id == agreement.id
            ? "inForce" : machine.standing?.id == agreement.id ? "suspended" : "ended"
        func value(_ bytes: [UInt8]) -> JSONValue { (try? JSONReader.read(bytes)) ?? .null }
        return LifetimeAgreementRecord(
            agreement: self.agreement(agreement, machine, node), state: state,
            verified: agreement.isValid(conversation: machine.conversation),
            proposal: value(SeedJSON.encode(agreement.proposal)),
            accepts: agreement.accepts.map { value(SeedJSON.encode($0)) })
    }
}

extension LifetimeTermsRecord {
    init(_ terms: LifetimeTerms) {
        self.init(
            lifetime: terms.lifetime, attachments: terms.attachment,
            unopened: terms.unopened.map { Interval(milliseconds: $0) }, timer: terms.timer == .send ? nil : .read,
            mailbox: terms.mailbox.shown)
    }
}

enum ExplosionView {
    static func explosion(_ record: ExplosionRecord, _ node: isolated Node) -> ExplosionStatus {
        let known = node.names(ofExploded: record.conversation)
        func name(_ key: PublicKey) -> String { known[key] ?? MemberName.id(key) }
        var status = ExplosionStatus(
            conversation: record.conversation.description, name: record.name, expiresAt: record.explodedAt,
            state: "exploded",
            confirmed: record.members.filter { record.confirmed[$0] != nil }.map { MemberName.id($0) },
            waiting: record.waiting.map { MemberName.id($0) },
            receipts: record.members.compactMap { key in
                record.confirmed[key].map { ExplosionStatus.Receipt(member: MemberName.id(key), destroyedAt: $0) }
            }, names: known.isEmpty ? nil : record.members.map { .init(member: MemberName.id($0), name: name($0)) },
            by: record.role == .creator ? MemberName.own : record.creator.map(name), trace: !record.isTraceless)
        switch node.progress(of: record.conversation) {
        case .exploded: break
        case .exploding: status.state = "exploding"
        case .failed(let failure):
            status.state = "error"
            status.error = "the keys could not be destroyed yet: \(failure)"
        }
        return status
    }

    static func explosion(_ machine: Messaging.Conversation, _ node: isolated Node) -> ExplosionStatus {
        guard let schedule = machine.record.schedule else {
            return ExplosionStatus(
                conversation: machine.conversation.description, name: node.alias(of: machine.client), state: "none",
                confirmed: [], waiting: [])
        }
        let members = machine.currentMembers.map(\.key)
        return ExplosionStatus(
            conversation: machine.conversation.description, name: node.alias(of: machine.client),
            expiresAt: schedule.expiresAt, state: "scheduled",
            confirmed: members.filter(schedule.confirmed.contains).map { MemberName.id($0) },
            waiting: members.filter { !schedule.confirmed.contains($0) }.map { MemberName.id($0) },
            names: members.map {
                ExplosionStatus.Name(member: MemberName.id($0), name: MemberName.shown($0, machine, node))
            }, by: machine.isCreator ? MemberName.own : MemberName.shown(machine.record.genesis.creator, machine, node),
            trace: machine.isCreator ? !schedule.isTraceless : nil)
    }

    /// Remembered and scheduled explosions, by time. No inbox is woken.
    static func explosions(from: String?, _ node: isolated Node) throws -> ExplodeListResult {
        let all = try node.explosions().map { ($0, $0.place) }.sorted { $0.1 < $1.1 }
        let (shown, next) = try AnswerPage.list(
            all, from: from, atMost: 256, byteCount: { AnswerPage.largestByteCount(of: $0) },
            show: { one -> ExplosionStatus in
                switch one {
                case .exploded(let record): explosion(record, node)
                case .scheduled(let machine): explosion(machine, node)
                }
            })
        return ExplodeListResult(explosions: shown, next: next)
    }
}

extension ListedExplosion {
    fileprivate var place: ListPlace {
        switch self {
        case .exploded(let record): ListPlace(at: record.explodedAt, id: record.conversation.description)
        case .scheduled(let machine):
            ListPlace(at: machine.record.schedule?.expiresAt ?? .latest, id: machine.conversation.description)
        }
    }
}
