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

    static func proposal(of machine: ConversationStateMachine, _ node: isolated Node) -> LifetimeProposal? {
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

    static func agreement(_ agreement: Agreement, _ machine: ConversationStateMachine, _ node: isolated Node)
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

    private static func record(_ agreement: Agreement, _ machine: ConversationStateMachine, _ node: isolated Node)
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
