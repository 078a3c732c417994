import Cryptography

extension SessionStart: ProtoTabled {
    static let table = ProtoTable(
        {
            (
                reset: Bool, inForce: AgreementID?, head: Agreement?, member: Member?, digest: [UInt8],
                undelivered: UInt64, renewable: LifetimeTerms?, epoch: UInt64, open: ProposalID?, run: UInt64,
                copies: Bool
            ) in
            var start = SessionStart(
                reset: reset, inForce: inForce, head: head, renewable: renewable, epoch: epoch, open: open)
            (start.member, start.groupDigest, start.undelivered) = (member, digest, undelivered)
            (start.run, start.copies) = (run, copies)
            return start
        },
        {
            (
                $0.reset, $0.inForce, $0.head, $0.member, $0.groupDigest, $0.undelivered, $0.renewable, $0.epoch,
                $0.open, $0.run, $0.copies
            )
        }, .flag(1), .optionalID(2), .optionalMessage(3), .optionalMessage(6), .bytes(7, atMost: 8), .number(8),
        .optionalMessage(10), .number(11), .optionalID(12), .number(13), .flag(14))
}

extension Agreement: ProtoTabled {
    /// `nil` for unknown terms.
    static let table = ProtoTable<Agreement>(
        { (proposal: [UInt8], accepts: [[UInt8]]) throws(WireError) in
            let proposed = try SeedJSON.decodeLifetimeMessage(proposal, as: .lifetimeProposal)
            guard case .proposal(let proposal) = proposed else { return nil }
            let signed = try accepts.map { (text) throws(WireError) -> LifetimeAccept in
                guard case .accept(let accept) = try SeedJSON.decodeLifetimeMessage(text, as: .lifetimeAccept) else {
                    throw .malformed("agreement.accepts")
                }
                return accept
            }
            return Agreement(proposal: proposal, accepts: signed)
        }, { (SeedJSON.encode($0.proposal), $0.accepts.map { SeedJSON.encode($0) }) }, .bytes(1),
        .eachBytes(3, atMost: Limits.memberCount - 1))
}

extension LifetimeTerms: ProtoTabled {
    static let table = ProtoTable<LifetimeTerms>(
        { (lifetime, attachment, unopened: Milliseconds, timer, mailbox) in
            LifetimeTerms(
                lifetime: lifetime, attachment: attachment, unopened: unopened == 0 ? nil : unopened, timer: timer,
                mailbox: mailbox)
        }, { ($0.lifetime.rawValue, $0.attachment?.rawValue, $0.unopened ?? 0, $0.timer.rawValue, $0.mailbox.text) },
        .text(1), .optionalText(2), .number(3), .text(4), .optionalText(5))

    /// `nil` for a lifetime, a timer or a mailbox of a later version, and for times out of range.
    init?(lifetime: String, attachment: String?, unopened: Milliseconds?, timer: String, mailbox: String?) {
        guard let lifetime = Lifetime(rawValue: lifetime), let timer = Timer(rawValue: timer),
            let mailbox = mailbox.map(MailboxConsent.init(rawValue:)) ?? .no
        else { return nil }
        let known = attachment.flatMap(Lifetime.init(rawValue:))
        self.init(lifetime, attachment: known, unopened: unopened, timer: timer, mailbox: mailbox)
        guard (known == nil) == (attachment == nil), isValid else { return nil }
    }
}

extension MailboxConsent {
    /// `no` is encoded by leaving the field out.
    var text: String? { self == .no ? nil : rawValue }
}

// MARK: Group, without checks of signatures

extension Member: ProtoTabled {
    static let table = ProtoTable(
        Member.init(key:profile:endpointTexts:version:signature:),
        { ($0.key, $0.profile, $0.endpointTexts, $0.version, $0.signature) }, .key(1),
        .optionalText(2, atMost: Limits.nameByteCount), .texts(3, atMost: Limits.endpointCount), .version(4),
        .signature(5))
}

extension GroupState: ProtoTabled {
    static let table = ProtoTable(
        GroupState.init(conversation:version:membership:name:isLocked:members:signature:),
        { ($0.conversation, $0.version, $0.membership, $0.name, $0.isLocked, $0.members, $0.signature) }, .id(1),
        .version(2), .version(3), .optionalText(4, atMost: Limits.nameByteCount), .flag(5),
        .keys(6, atMost: Limits.memberCount), .signature(7))
}

extension Departure: ProtoTabled {
    static let table = ProtoTable(
        Departure.init(conversation:member:signature:), { ($0.conversation, $0.member, $0.signature) }, .id(1), .key(2),
        .signature(3))
}

extension GroupUpdate: ProtoTabled {
    static let table = ProtoTable(
        GroupUpdate.init(state:members:departures:), { ($0.state, $0.members, $0.departures) }, .optionalMessage(1),
        .messages(2, atMost: Limits.memberCount), .messages(3, atMost: Limits.memberCount))
}

extension JoinRequest: ProtoTabled {
    static let table = ProtoTable(
        JoinRequest.init(invite:joinSecret:member:), { ($0.invite, $0.joinSecret, $0.member) }, .inline(),
        .bytes(3, count: 32), .message(6))
}

extension Welcome: ProtoTabled {
    static let table = ProtoTable(
        { (tag, genesis, members, expiresAt, group, notice: [UInt8], agreement) throws(WireError) in
            guard [0, Limits.noticeByteCount].contains(notice.count) else { throw .malformed("welcome.notice") }
            return Welcome(
                tag: try InviteTag(tag).known("welcome.tag"), genesis: genesis, group: group, members: members,
                expiresAt: expiresAt, notice: notice.isEmpty ? nil : notice, agreement: agreement)
        }, { ($0.tag.description, $0.genesis, $0.members, $0.expiresAt, $0.group, $0.notice ?? [], $0.agreement) },
        .text(1), .message(2), .messages(5, atMost: Limits.memberCount), .optionalTime(6), .message(7), .bytes(15),
        .optionalMessage(20))
}

extension Genesis: ProtoTabled {
    static let table = ProtoTable(
        Genesis.init(conversation:creator:createdAt:signature:),
        { ($0.conversation, $0.creator, $0.createdAt, $0.signature) }, .id(1), .key(2), .time(3), .signature(4))
}

extension DeletionReceipt: ProtoTabled {
    static let table = ProtoTable(
        DeletionReceipt.init(conversation:member:destroyedAt:signature:),
        { ($0.conversation, $0.member, $0.destroyedAt, $0.signature) }, .id(1), .key(2), .time(3), .signature(4))
}

extension Invitation: ProtoTabled {
    static let table = ProtoTable(
        { Invitation(id: $0, slug: $1, name: DisplayName.kept($2)) }, { ($0.id, $0.slug, $0.name) }, .id(1),
        .text(2, atMost: InviteSlug.byteCountLimit), .optionalText(3, atMost: Limits.nameByteCount))
}
