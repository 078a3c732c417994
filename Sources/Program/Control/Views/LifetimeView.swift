import Control
import Messaging
import NodeRuntime

enum LifetimeView {
    static func lifetime(_ text: String, _ node: isolated Node) throws(NodeError) -> LifetimeStatus {
        let machine = try node.conversation(text)
        let policy = machine.policy ?? node.policyByDefault
        let terms = machine.agreement?.terms ?? machine.pendingProposal?.proposal.terms
        return LifetimeStatus(
            conversation: machine.conversation.description, lifetime: machine.lifetime,
            state: machine.pendingProposal != nil ? .pending : machine.agreement != nil ? .agreed : .none,
            proposal: proposal(of: machine, node), agreement: machine.agreement.map { agreement($0, machine, node) },
            policy: policy.text, renewed: terms.map(policy.accepts),
            renewal: terms.flatMap { policy.accepts($0) ? nil : Messaging.LifetimePolicy.accepting($0)?.text })
    }

    static func proposal(of machine: Messaging.Conversation, _ node: isolated Node) -> LifetimeProposal? {
        guard let pending = machine.pendingProposal else { return nil }
        let proposal = pending.proposal
        let terms = proposal.terms
        return LifetimeProposal(
            lifetime: proposal.lifetime, attachments: terms.attachment,
            unopened: terms.unopened.map { Interval(milliseconds: $0) }, timer: terms.timer == .send ? nil : .read,
            mailbox: terms.mailbox.shown, waiting: machine.unanswered.map { MemberName.shown($0, machine, node) },
            id: proposal.id.description, from: MemberName.shown(proposal.proposer, machine, node),
            member: pending.isOurs ? nil : MemberName.id(proposal.proposer), proposedAt: proposal.proposedAt)
    }

    static func agreement(_ agreement: Agreement, _ machine: Messaging.Conversation, _ node: isolated Node)
        -> LifetimeAgreement
    {
        let terms = agreement.terms
        return LifetimeAgreement(
            id: agreement.id.description, lifetime: agreement.lifetime, attachments: terms.attachment,
            unopened: terms.unopened.map { Interval(milliseconds: $0) }, timer: terms.timer == .send ? nil : .read,
            mailbox: terms.mailbox.shown,
            agreedAt: agreement.accepts.map(\.acceptedAt).max() ?? agreement.proposal.proposedAt,
            members: agreement.signers.map { MemberName.shown($0, machine, node) })
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
                    hint: "`mayfly lifetime agreements \(text)` shows what there is")
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

    static func details(_ terms: LifetimeTerms) -> [Event.Field] {
        var details: [Event.Field] = [.init("lifetime", .text(terms.lifetime.rawValue))]
        if let attachment = terms.attachment { details.append(.init("attachments", .text(attachment.rawValue))) }
        if let unopened = terms.unopened {
            details.append(.init("unopened", .interval(Interval(milliseconds: unopened))))
        }
        if terms.timer == .read { details.append(.init("timer", .text(terms.timer.rawValue))) }
        if terms.mailbox != .no { details.append(.init("mailbox", .text(terms.mailbox.rawValue))) }
        return details
    }
}

enum ExplosionView {
    static func explosion(_ record: ExplosionRecord, _ node: isolated Node) -> ExplosionStatus {
        var status = ExplosionStatus(
            conversation: record.conversation.description, name: record.name, expiresAt: record.explodedAt,
            state: "exploded",
            confirmed: record.members.filter { record.confirmed[$0] != nil }.map { MemberName.id($0) },
            waiting: record.waiting.map { MemberName.id($0) },
            receipts: record.members.compactMap { key in
                record.confirmed[key].map { ExplosionStatus.Receipt(member: MemberName.id(key), destroyedAt: $0) }
            }, trace: !record.isTraceless)
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
            }, trace: machine.isCreator ? !schedule.isTraceless : nil)
    }

    /// Remembered and scheduled explosions, by time. No inbox is woken.
    /// - Parameter place: end of the previous page; `nil` for the first page.
    static func explosions(after place: String?, _ node: isolated Node) throws -> ExplodeListResult {
        let from = try place.map { text in
            guard let place = ExplosionPlace(text) else {
                throw ControlError(
                    .usage, "`from` is not a position in the list of explosions", hint: "give the `next` of an answer")
            }
            return place
        }
        let all = try node.explosions().sorted { $0.place < $1.place }
        var page = AnswerPage(atMost: 256)
        var shown: [ExplosionStatus] = []
        var last: ExplosionPlace?
        for one in all {
            if let from, !(from < one.place) { continue }
            let status =
                switch one {
                case .exploded(let record): explosion(record, node)
                case .scheduled(let machine): explosion(machine, node)
                }
            guard page.take(byteCount: AnswerPage.largestByteCount(of: status)) else { break }
            shown.append(status)
            last = one.place
        }
        return ExplodeListResult(explosions: shown, next: page.isFull ? last?.description : nil)
    }
}

/// Sort key of an explosion: its time, then the conversation's id.
private struct ExplosionPlace: Comparable, CustomStringConvertible {
    let at: Timestamp
    let conversation: ConversationID

    var description: String { "\(at.milliseconds)-\(conversation)" }

    init(at: Timestamp, conversation: ConversationID) {
        self.at = at
        self.conversation = conversation
    }

    init?(_ text: String) {
        let parts = text.split(separator: "-", omittingEmptySubsequences: false)
        guard parts.count == 2, let milliseconds = Int64(parts[0]), let id = ConversationID(hex: String(parts[1]))
        else { return nil }
        self.init(at: Timestamp(milliseconds: milliseconds), conversation: id)
    }

    static func < (one: Self, other: Self) -> Bool { (one.at, one.conversation) < (other.at, other.conversation) }
}

extension ListedExplosion {
    fileprivate var place: ExplosionPlace {
        switch self {
        case .exploded(let record): ExplosionPlace(at: record.explodedAt, conversation: record.conversation)
        case .scheduled(let machine):
            ExplosionPlace(at: machine.record.schedule?.expiresAt ?? .latest, conversation: machine.conversation)
        }
    }
}
