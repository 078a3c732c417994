import Crypto
import FoundationEssentials

extension Content {
    init(_ proto: ProtoContent) throws(WireError) {
        let (payload, body) = try ContentCodec.decode(ContentType(proto.type), Array(proto.payload))
        self.init(
            type: ContentType(proto.type), id: try identifier(proto.id, "content.id"),
            sentAt: Timestamp(milliseconds: proto.sentAt),
            // An unknown lifetime counts as ephemeral: the content stays in memory.
            lifetime: Lifetime(rawValue: proto.lifetime) ?? .ephemeral,
            agreement: proto.agreement.isEmpty ? nil : try identifier(proto.agreement, "content.agreement"),
            fallback: try boundedText(proto.fallback, Limits.fallbackByteCount, "content.fallback") ?? "",
            shouldPush: proto.shouldPush, payload: payload, body: body)
    }
}

extension ProtoSessionStart {
    init(_ start: SessionStart) {
        reset = start.reset
        inForce = Data(start.inForce?.bytes ?? [])
        if let agreement = start.head { head = ProtoAgreement(agreement) }
        if let terms = start.renewable { renewable = ProtoLifetimeTerms(terms) }
        if let own = start.member { member = ProtoMember(own) }
        groupDigest = Data(start.groupDigest)
        undelivered = start.undelivered
        epoch = start.epoch
        open = Data(start.open?.bytes ?? [])
        run = start.run
        copies = start.copies
    }
}

extension SessionStart {
    init(_ proto: ProtoSessionStart) throws(WireError) {
        self.init(
            reset: proto.reset,
            inForce: proto.inForce.isEmpty ? nil : try identifier(proto.inForce, "session.in_force"),
            head: proto.hasHead ? try Agreement.read(proto.head) : nil,
            renewable: proto.hasRenewable ? LifetimeTerms.read(proto.renewable) : nil, epoch: proto.epoch,
            open: proto.open.isEmpty ? nil : try identifier(proto.open, "session.open"))
        guard proto.groupDigest.count <= 8 else { throw .malformed("session.group_digest") }
        groupDigest = Array(proto.groupDigest)
        member = proto.hasMember ? try Member(proto.member) : nil
        undelivered = proto.undelivered
        (run, copies) = (proto.run, proto.copies)
    }
}

extension ProtoJoinRequest {
    init(_ request: JoinRequest) {
        invitePayload = Data(request.invite.payload)
        inviteSignature = Data(request.invite.signature.bytes)
        joinSecret = Data(request.joinSecret)
        member = ProtoMember(request.member)
    }
}

extension JoinRequest {
    init(_ proto: ProtoJoinRequest) throws(WireError) {
        let signature: RecoverableSignature
        do throws(CurveError) { signature = try RecoverableSignature(proto.inviteSignature) } catch {
            throw .malformed("join_request.invite_signature")
        }
        guard proto.joinSecret.count == 32 else { throw .malformed("join_request.join_secret") }
        self.init(
            invite: SignedInvite(payload: Array(proto.invitePayload), signature: signature),
            joinSecret: Array(proto.joinSecret), member: try Member(proto.member))
    }
}

extension ProtoWelcome {
    init(_ welcome: Welcome) {
        tag = welcome.tag.description
        genesis.conversation = Data(welcome.genesis.conversation.bytes)
        genesis.creator = Data(welcome.genesis.creator.bytes)
        genesis.createdAt = welcome.genesis.createdAt.milliseconds
        genesis.signature = Data(welcome.genesis.signature.bytes)
        group = ProtoGroupState(welcome.group)
        members = welcome.members.map(ProtoMember.init)
        if let time = welcome.expiresAt { expiresAt = time.milliseconds }
        notice = Data(welcome.notice ?? [])
        if let standing = welcome.agreement { agreement = ProtoAgreement(standing) }
    }
}

extension Welcome {
    init(_ proto: ProtoWelcome) throws(WireError) {
        guard let tag = InviteTag(proto.tag) else { throw .malformed("welcome.tag") }
        guard [0, Limits.noticeByteCount].contains(proto.notice.count) else { throw .malformed("welcome.notice") }
        let members = try Messaging.members(proto.members, "welcome.members")
        self.init(
            tag: tag,
            genesis: Genesis(
                conversation: try identifier(proto.genesis.conversation, "genesis.conversation"),
                creator: try publicKey(proto.genesis.creator, "genesis.creator"),
                createdAt: Timestamp(milliseconds: proto.genesis.createdAt),
                signature: try signature(proto.genesis.signature, "genesis.signature")),
            group: try GroupState(proto.group), members: members,
            expiresAt: proto.hasExpiresAt ? Timestamp(milliseconds: proto.expiresAt) : nil,
            notice: proto.notice.isEmpty ? nil : Array(proto.notice),
            agreement: proto.hasAgreement ? try Agreement.read(proto.agreement) : nil)
    }
}

extension ProtoDeletionReceipt {
    init(_ receipt: DeletionReceipt) {
        conversation = Data(receipt.conversation.bytes)
        member = Data(receipt.member.bytes)
        destroyedAt = receipt.destroyedAt.milliseconds
        signature = Data(receipt.signature.bytes)
    }
}

extension DeletionReceipt {
    init(_ proto: ProtoDeletionReceipt) throws(WireError) {
        self.init(
            conversation: try identifier(proto.conversation, "receipt.conversation"),
            member: try publicKey(proto.member, "receipt.member"),
            destroyedAt: Timestamp(milliseconds: proto.destroyedAt),
            signature: try Messaging.signature(proto.signature, "receipt.signature"))
    }
}

extension ProtoInvitation {
    init(_ invitation: Invitation) {
        id = Data(invitation.id.bytes)
        slug = invitation.slug
        name = invitation.name ?? ""
    }
}

extension Invitation {
    init(_ proto: ProtoInvitation) throws(WireError) {
        guard proto.slug.utf8.count <= InviteSlug.byteCountLimit else { throw .tooLong("invitation.slug") }
        self.init(
            id: try identifier(proto.id, "invitation.id"), slug: proto.slug,
            name: try boundedText(proto.name, Limits.nameByteCount, "invitation.name"))
    }
}
