import Crypto
import FoundationEssentials
import SwiftProtobuf

/// Frames of a link: bytes ↔ ``Frame``. Strict about known fields; ignores unknown ones.
package enum FrameCodec {
    package static func encode(_ frame: Frame) -> [UInt8] {
        var proto = ProtoFrame()
        switch frame {
        case .session(let start): proto.session = ProtoSessionStart(start)
        case .contents(let contents): return ContentsCodec.encode(contents)
        case .acknowledgement(let said): return AcknowledgementCodec.encode(said)
        case .lifetime(let message): proto.content = control(message)
        case .joinRequest(let request): proto.content = control(.joinRequest, serialized(ProtoJoinRequest(request)))
        case .welcome(let welcome): proto.content = control(.welcome, serialized(ProtoWelcome(welcome)))
        case .joinError(let error): proto.content = control(.joinError, SeedJSON.encode(error))
        case .explosion(let sealed): proto.explosion = Data(sealed)
        case .deletionReceipt(let receipt):
            proto.content = control(.deletionReceipt, serialized(ProtoDeletionReceipt(receipt)))
        case .invitation(let invitation): proto.content = control(.invitation, serialized(ProtoInvitation(invitation)))
        case .memberLeft(let departure): proto.content = control(.memberLeft, serialized(ProtoDeparture(departure)))
        case .group(let update): proto.content = control(.groupUpdated, serialized(ProtoGroupUpdate(update)))
        case .profile(let member): proto.content = control(.profile, serialized(ProtoMember(member)))
        case .joinCancelled: proto.content = control(.joinCancelled, [])
        case .ping(let nonce): proto.ping = nonce
        case .pong(let nonce): proto.pong = nonce
        case .closing(let asleep): proto.closing = !asleep
        case .unknown: break
        case .receipt(let receipt): proto.content = control(.receipt, serialized(ProtoReceipt(receipt)))
        case .attachmentRequest(let id, let first, let count):
            proto.attachmentRequest.message = Data(id.bytes)
            proto.attachmentRequest.first = UInt32(clamping: first)
            proto.attachmentRequest.count = UInt32(clamping: count)
        case .attachmentChunk(let chunk): return ChunkCodec.encode(chunk)
        case .attachmentGone(let id): proto.attachmentGone = Data(id.bytes)
        case .relayRequest(let request): proto.relayRequest = ProtoRelayRequest(request)
        case .relayAnswer(let answer): proto.relayAnswer = ProtoRelayAnswer(answer)
        case .punch(let message): proto.punch = ProtoPunch(message)
        case .mailboxRequest(let request): proto.mailboxRequest = ProtoMailboxRequest(request)
        case .mailboxAnswer(let answer): proto.mailboxAnswer = ProtoMailboxAnswer(answer)
        case .mailbox(let message): proto.mailbox = ProtoMailboxMessage(message)
        }
        return serialized(proto)
    }

    package static func decode(_ bytes: [UInt8]) throws(WireError) -> Frame {
        if let contents = try ContentsCodec.decodePlain(bytes) { return .contents(contents) }
        if let said = try AcknowledgementCodec.decodePlain(bytes) { return .acknowledgement(said) }
        if let chunk = try ChunkCodec.decodePlain(bytes) { return .attachmentChunk(chunk) }
        return try decodeGenerated(bytes)
    }

    /// Accepts any protobuf shape.
    package static func decodeGenerated(_ bytes: [UInt8]) throws(WireError) -> Frame {
        let proto = try parse(ProtoFrame.self, bytes)
        switch proto.body {
        case .session(let start): return .session(try SessionStart(start))
        case .content(let content): return try decode(content)
        case .contents(let contents): return try ContentsCodec.decode(contents).map { .contents($0) } ?? .unknown
        case .acknowledgement(let said): return .acknowledgement(try Acknowledgement(said))
        case .ping(let nonce): return .ping(nonce)
        case .pong(let nonce): return .pong(nonce)
        case .closing(let isRetired): return .closing(asleep: !isRetired)
        case .explosion(let sealed):
            guard sealed.count == Limits.noticeByteCount else { throw .malformed("explosion") }
            return .explosion(Array(sealed))
        case .attachmentRequest(let request):
            return .attachmentRequest(
                try identifier(request.message, "attachment_request.message"), first: Int(request.first),
                count: Int(request.count))
        case .attachmentChunk(let chunk): return .attachmentChunk(try AttachmentChunk(chunk))
        case .attachmentGone(let id): return .attachmentGone(try identifier(id, "attachment_gone"))
        case .relayRequest(let request): return try RelayRequest.read(request).map { .relayRequest($0) } ?? .unknown
        case .relayAnswer(let answer): return try RelayAnswer.read(answer).map { .relayAnswer($0) } ?? .unknown
        case .punch(let message): return try PunchMessage.read(message).map { .punch($0) } ?? .unknown
        case .mailboxRequest(let request):
            return try MailboxRequest.read(request).map { .mailboxRequest($0) } ?? .unknown
        case .mailboxAnswer(let answer): return try MailboxAnswer.read(answer).map { .mailboxAnswer($0) } ?? .unknown
        case .mailbox(let message): return try MailboxMessage.read(message).map { .mailbox($0) } ?? .unknown
        case nil: return .unknown
        }
    }

    private static func decode(_ proto: ProtoContent) throws(WireError) -> Frame {
        let payload = Array(proto.payload)
        guard payload.count <= Limits.payloadByteCount else { throw .tooLong("content.payload") }
        guard proto.type.utf8.count <= Limits.contentTypeByteCount else { throw .tooLong("content.type") }
        let type = ContentType(proto.type)
        switch type.family {
        case .receipt:
            let receipt = try parse(ProtoReceipt.self, payload)
            return try Receipt(receipt).map { .receipt($0) } ?? .unknown
        // Chat contents use `contents` frames; each node makes its system messages itself.
        case .systemMessage, .text, .reply, .reaction, .attachment: throw .malformed("content.type")
        default: break
        }
        switch type {
        case .lifetimeProposal, .lifetimeAccept, .lifetimeReject, .lifetimeWithdraw:
            return .lifetime(try SeedJSON.decodeLifetimeMessage(payload, as: type))
        case .joinRequest: return .joinRequest(try JoinRequest(try parse(ProtoJoinRequest.self, payload)))
        case .welcome: return .welcome(try Welcome(try parse(ProtoWelcome.self, payload)))
        case .joinError: return .joinError(try SeedJSON.decodeJoinError(payload))
        case .deletionReceipt:
            return .deletionReceipt(try DeletionReceipt(try parse(ProtoDeletionReceipt.self, payload)))
        case .invitation: return .invitation(try Invitation(try parse(ProtoInvitation.self, payload)))
        case .memberLeft: return .memberLeft(try Departure(try parse(ProtoDeparture.self, payload)))
        case .groupUpdated: return .group(try GroupUpdate(try parse(ProtoGroupUpdate.self, payload)))
        case .profile: return .profile(try Member(try parse(ProtoMember.self, payload)))
        case .lifetimeAgreement:
            // Terms of a later version: skipped.
            guard let agreement = try Agreement.read(try parse(ProtoAgreement.self, payload)) else { return .unknown }
            return .lifetime(.agreement(agreement))
        case .lifetimeEnded: return .lifetime(try LifetimeMessage.read(try parse(ProtoLifetimeEnded.self, payload)))
        case .joinCancelled: return .joinCancelled
        // A type of a later version.
        default: return .unknown
        }
    }

    private static func control(_ message: LifetimeMessage) -> ProtoContent {
        switch message {
        case .proposal(let proposal): control(.lifetimeProposal, SeedJSON.encode(proposal))
        case .accept(let accept): control(.lifetimeAccept, SeedJSON.encode(accept))
        case .reject(let id, let reason): control(.lifetimeReject, SeedJSON.encodeRejection(of: id, reason))
        case .withdraw(let id): control(.lifetimeWithdraw, SeedJSON.encodeWithdrawal(of: id))
        case .agreement(let agreement): control(.lifetimeAgreement, serialized(ProtoAgreement(agreement)))
        case .ended(let id, let renewable):
            control(.lifetimeEnded, serialized(ProtoLifetimeEnded(id, renewable: renewable)))
        case .unsupported: preconditionFailure("an unsupported proposal is received, never sent")
        }
    }

    private static func control(_ type: ContentType, _ payload: [UInt8]) -> ProtoContent {
        var proto = ProtoContent()
        proto.type = type.description
        proto.shouldPush = true
        proto.payload = Data(payload)
        return proto
    }
}

// MARK: Shared steps

func serialized(_ message: some SwiftProtobuf.Message) -> [UInt8] {
    // Fails only for required fields and recursion: proto3 has none, our messages are flat.
    guard let bytes: [UInt8] = try? message.serializedBytes() else {
        preconditionFailure("a message of our own does not encode")
    }
    return bytes
}

func parse<Proto: SwiftProtobuf.Message>(_ type: Proto.Type, _ bytes: [UInt8]) throws(WireError) -> Proto {
    var options = BinaryDecodingOptions()
    options.messageDepthLimit = 8
    do { return try Proto(serializedBytes: bytes, options: options) } catch { throw .malformed(Proto.protoMessageName) }
}

func identifier<Identifier: FixedBytes>(_ bytes: Data, _ field: String) throws(WireError) -> Identifier {
    guard let identifier = Identifier(bytes) else { throw .malformed(field) }
    return identifier
}

/// Concatenated identifiers.
func identifiers<Identifier: FixedBytes>(_ bytes: Data, _ field: String) throws(WireError) -> [Identifier] {
    let size = Identifier.byteCount
    guard bytes.count.isMultiple(of: size) else { throw .malformed(field) }
    var result: [Identifier] = []
    result.reserveCapacity(bytes.count / size)
    var rest = bytes[...]
    while !rest.isEmpty {
        result.append(try identifier(rest.prefix(size), field))
        rest = rest.dropFirst(size)
    }
    return result
}

func publicKey(_ bytes: Data, _ field: String) throws(WireError) -> PublicKey {
    do throws(CurveError) { return try PublicKey(bytes) } catch { throw .malformed(field) }
}

func signature(_ bytes: Data, _ field: String) throws(WireError) -> SchnorrSignature {
    do throws(CurveError) { return try SchnorrSignature(bytes) } catch { throw .malformed(field) }
}

func endpoints(_ texts: [String]) throws(WireError) -> [Endpoint] {
    guard texts.count <= Limits.endpointCount else { throw .tooLong("endpoints") }
    // An endpoint of a later kind is skipped.
    return texts.compactMap { Endpoint($0) }
}

func boundedText(_ text: String, _ limit: Int, _ field: String) throws(WireError) -> String? {
    guard text.utf8.count <= limit else { throw .tooLong(field) }
    return text.isEmpty ? nil : text
}
