import Crypto
import FoundationEssentials

extension ProtoAgreement {
    init(_ agreement: Agreement) {
        proposal = Data(SeedJSON.encode(agreement.proposal))
        accepts = agreement.accepts.map { Data(SeedJSON.encode($0)) }
    }
}

extension Agreement {
    /// - Returns: `nil` for unknown terms.
    static func read(_ proto: ProtoAgreement) throws(WireError) -> Agreement? {
        guard proto.accepts.count < Limits.memberCount else { throw .tooLong("agreement.accepts") }
        let proposed = try SeedJSON.decodeLifetimeMessage(Array(proto.proposal), as: .lifetimeProposal)
        guard case .proposal(let proposal) = proposed else { return nil }
        var accepts: [LifetimeAccept] = []
        for bytes in proto.accepts {
            guard case .accept(let accept) = try SeedJSON.decodeLifetimeMessage(Array(bytes), as: .lifetimeAccept)
            else { throw .malformed("agreement.accepts") }
            accepts.append(accept)
        }
        return Agreement(proposal: proposal, accepts: accepts)
    }
}

extension ProtoLifetimeTerms {
    init(_ terms: LifetimeTerms) {
        lifetime = terms.lifetime.rawValue
        attachment = terms.attachment?.rawValue ?? ""
        unopened = terms.unopened ?? 0
        timer = terms.timer.rawValue
        mailbox = terms.mailbox == .no ? "" : terms.mailbox.rawValue
    }
}

extension LifetimeTerms {
    /// - Returns: `nil` for unknown terms.
    static func read(_ proto: ProtoLifetimeTerms) -> LifetimeTerms? {
        guard let lifetime = Lifetime(rawValue: proto.lifetime), let timer = Timer(rawValue: proto.timer) else {
            return nil
        }
        let attachment = Lifetime(rawValue: proto.attachment)
        if attachment == nil, !proto.attachment.isEmpty { return nil }
        guard let mailbox = proto.mailbox.isEmpty ? .no : MailboxConsent(rawValue: proto.mailbox) else { return nil }
        let terms = LifetimeTerms(
            lifetime, attachment: attachment, unopened: proto.unopened == 0 ? nil : proto.unopened, timer: timer,
            mailbox: mailbox)
        return terms.isValid ? terms : nil
    }
}

extension ProtoLifetimeEnded {
    init(_ id: AgreementID, renewable terms: LifetimeTerms?) {
        agreement = Data(id.bytes)
        if let terms { renewable = ProtoLifetimeTerms(terms) }
    }
}

extension LifetimeMessage {
    static func read(_ proto: ProtoLifetimeEnded) throws(WireError) -> LifetimeMessage {
        .ended(
            try identifier(proto.agreement, "lifetime_ended.agreement"),
            renewable: proto.hasRenewable ? LifetimeTerms.read(proto.renewable) : nil)
    }
}
