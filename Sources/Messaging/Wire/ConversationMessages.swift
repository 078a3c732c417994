import Cryptography

// MARK: Session

extension SessionStart: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        writer.put(1, reset)
        writer.put(2, inForce)
        writer.put(3, head)
        writer.put(6, member)
        writer.put(7, groupDigest)
        writer.put(8, undelivered)
        writer.put(10, renewable)
        writer.put(11, epoch)
        writer.put(12, open)
        writer.put(13, run)
        writer.put(14, copies)
    }

    init(_ fields: ProtoFields) throws(WireError) {
        self.init(
            reset: fields.flag(1), inForce: try fields.optionalID(2, "session.in_force"), head: try fields.optional(3),
            renewable: try fields.optional(10), epoch: fields.number(11),
            open: try fields.optionalID(12, "session.open"))
        groupDigest = fields.bytes(7)
        guard groupDigest.count <= 8 else { throw .malformed("session.group_digest") }
        member = try fields.optional(6)
        undelivered = fields.number(8)
        (run, copies) = (fields.number(13), fields.flag(14))
    }
}

// MARK: Lifetime

extension Agreement: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        writer.put(1, SeedJSON.encode(proposal))
        for accept in accepts { writer.put(3, SeedJSON.encode(accept)) }
    }

    /// - Returns: `nil` for unknown terms.
    init?(_ fields: ProtoFields) throws(WireError) {
        let texts = try fields.all(3, "agreement.accepts", atMost: Limits.memberCount - 1, bytes: { Array($0) })
        let proposed = try SeedJSON.decodeLifetimeMessage(fields.bytes(1), as: .lifetimeProposal)
        guard case .proposal(let proposal) = proposed else { return nil }
        var accepts: [LifetimeAccept] = []
        for text in texts {
            guard case .accept(let accept) = try SeedJSON.decodeLifetimeMessage(text, as: .lifetimeAccept) else {
                throw .malformed("agreement.accepts")
            }
            accepts.append(accept)
        }
        self.init(proposal: proposal, accepts: accepts)
    }
}

extension LifetimeTerms: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        writer.put(1, lifetime.rawValue)
        writer.put(2, attachment?.rawValue)
        writer.put(3, unopened ?? 0)
        writer.put(4, timer.rawValue)
        writer.put(5, mailbox == .no ? nil : mailbox.rawValue)
    }

    /// - Returns: `nil` for unknown terms.
    init?(_ fields: ProtoFields) throws(WireError) {
        let lifetime = try fields.text(1, "lifetime_terms.lifetime")
        let attachment = try fields.optionalText(2, "lifetime_terms.attachment")
        let timer = try fields.text(4, "lifetime_terms.timer")
        let mailbox = try fields.optionalText(5, "lifetime_terms.mailbox")
        guard let lifetime = Lifetime(rawValue: lifetime), let timer = Timer(rawValue: timer),
            let mailbox = mailbox.map(MailboxConsent.init(rawValue:)) ?? .no
        else { return nil }
        let known = attachment.flatMap(Lifetime.init(rawValue:))
        guard (known == nil) == (attachment == nil) else { return nil }
        let unopened = fields.int64(3)
        self.init(lifetime, attachment: known, unopened: unopened == 0 ? nil : unopened, timer: timer, mailbox: mailbox)
        guard isValid else { return nil }
    }
}

// MARK: Group

extension Member: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        writer.put(1, key)
        writer.put(2, profile)
        writer.put(3, each: endpointTexts)
        writer.put(4, version)
        writer.put(5, signature)
    }

    /// Does not check the signature.
    init(_ fields: ProtoFields) throws(WireError) {
        self.init(
            key: try fields.key(1, "member.key"),
            profile: try fields.optionalText(2, "member.profile", atMost: Limits.nameByteCount),
            endpointTexts: try fields.texts(3, "member.endpoints", atMost: Limits.endpointCount),
            version: fields.version(4), signature: try fields.signature(5, "member.signature"))
    }
}

extension ProtoFields {
    /// Leaves room for increments.
    fileprivate func version(_ field: Int) -> UInt64 { min(number(field), 1 << 62) }
}

extension GroupState: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        writer.put(1, conversation)
        writer.put(2, version)
        writer.put(3, membership)
        writer.put(4, name)
        writer.put(5, isLocked)
        for member in members { writer.put(6, member) }
        writer.put(7, signature)
    }

    /// Does not check the signature.
    init(_ fields: ProtoFields) throws(WireError) {
        let members = try fields.all(
            6, "group.members", atMost: Limits.memberCount,
            bytes: { (bytes) throws(WireError) in try ProtoFields.key(bytes, "group.members") })
        self.init(
            conversation: try fields.id(1, "group.conversation"), version: fields.version(2),
            membership: fields.version(3), name: try fields.optionalText(4, "group.name", atMost: Limits.nameByteCount),
            isLocked: fields.flag(5), members: members, signature: try fields.signature(7, "group.signature"))
    }
}

extension Departure: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        writer.put(1, conversation)
        writer.put(2, member)
        writer.put(3, signature)
    }

    /// Does not check the signature.
    init(_ fields: ProtoFields) throws(WireError) {
        self.init(
            conversation: try fields.id(1, "departure.conversation"), member: try fields.key(2, "departure.member"),
            signature: try fields.signature(3, "departure.signature"))
    }
}

extension GroupUpdate: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        writer.put(1, state)
        writer.put(2, each: members)
        writer.put(3, each: departures)
    }

    init(_ fields: ProtoFields) throws(WireError) {
        self.init(
            state: try fields.optional(1), members: try fields.messages(2, "group.members", atMost: Limits.memberCount),
            departures: try fields.messages(3, "group.departures", atMost: Limits.memberCount))
    }
}

// MARK: Join

extension JoinRequest: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        invite.write(to: &writer)
        writer.put(3, joinSecret)
        writer.put(6, member)
    }

    init(_ fields: ProtoFields) throws(WireError) {
        self.init(
            invite: try SignedInvite(fields), joinSecret: try fields.bytes(3, "join_request.join_secret", count: 32),
            member: try Member(fields.fields(6)))
    }
}

extension Welcome: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        writer.put(1, tag.description)
        writer.put(2, genesis)
        writer.put(5, each: members)
        writer.put(6, optional: expiresAt)
        writer.put(7, group)
        writer.put(15, notice ?? [])
        writer.put(20, agreement)
    }

    init(_ fields: ProtoFields) throws(WireError) {
        guard let tag = InviteTag(try fields.text(1, "welcome.tag")) else { throw .malformed("welcome.tag") }
        let notice = fields.bytes(15)
        guard [0, Limits.noticeByteCount].contains(notice.count) else { throw .malformed("welcome.notice") }
        self.init(
            tag: tag, genesis: try Genesis(fields.fields(2)), group: try GroupState(fields.fields(7)),
            members: try fields.messages(5, "welcome.members", atMost: Limits.memberCount),
            expiresAt: fields.optionalTime(6), notice: notice.isEmpty ? nil : notice, agreement: try fields.optional(20)
        )
    }
}

extension Genesis: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        writer.put(1, conversation)
        writer.put(2, creator)
        writer.put(3, createdAt)
        writer.put(4, signature)
    }

    init(_ fields: ProtoFields) throws(WireError) {
        self.init(
            conversation: try fields.id(1, "genesis.conversation"), creator: try fields.key(2, "genesis.creator"),
            createdAt: fields.time(3), signature: try fields.signature(4, "genesis.signature"))
    }
}

extension DeletionReceipt: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        writer.put(1, conversation)
        writer.put(2, member)
        writer.put(3, destroyedAt)
        writer.put(4, signature)
    }

    init(_ fields: ProtoFields) throws(WireError) {
        self.init(
            conversation: try fields.id(1, "receipt.conversation"), member: try fields.key(2, "receipt.member"),
            destroyedAt: fields.time(3), signature: try fields.signature(4, "receipt.signature"))
    }
}

extension Invitation: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        writer.put(1, id)
        writer.put(2, slug)
        writer.put(3, name)
    }

    init(_ fields: ProtoFields) throws(WireError) {
        self.init(
            id: try fields.id(1, "invitation.id"),
            slug: try fields.text(2, "invitation.slug", atMost: InviteSlug.byteCountLimit),
            name: try fields.optionalText(3, "invitation.name", atMost: Limits.nameByteCount))
    }
}
