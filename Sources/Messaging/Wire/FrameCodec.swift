/// Frames of a link: bytes ↔ ``Frame``. Strict about known fields; ignores unknown ones.
package enum FrameCodec {
    package static func encode(_ frame: Frame) -> [UInt8] {
        var writer = ProtoWriter(capacity: capacity(for: frame))
        write(frame, to: &writer)
        return writer.bytes
    }

    /// Spares the frequent and the large frames a growing buffer.
    private static func capacity(for frame: Frame) -> Int {
        switch frame {
        case .contents(let contents): ContentsCodec.byteCount(of: contents[...])
        case .acknowledgement(let said): 16 + said.count * MessageID.byteCount
        case .attachmentChunk(let chunk): 64 + chunk.bytes.count
        default: 0
        }
    }

    private static func write(_ frame: Frame, to writer: inout ProtoWriter) {
        switch frame {
        case .session(let start): writer.put(1, start)
        case .lifetime(let message): write(message, to: &writer)
        case .joinRequest(let request): control(.joinRequest, request.serialized, to: &writer)
        case .welcome(let welcome): control(.welcome, welcome.serialized, to: &writer)
        case .joinError(let error): control(.joinError, SeedJSON.encode(error), to: &writer)
        case .deletionReceipt(let receipt): control(.deletionReceipt, receipt.serialized, to: &writer)
        case .invitation(let invitation): control(.invitation, invitation.serialized, to: &writer)
        case .memberLeft(let departure): control(.memberLeft, departure.serialized, to: &writer)
        case .group(let update): control(.groupUpdated, update.serialized, to: &writer)
        case .profile(let member): control(.profile, member.serialized, to: &writer)
        case .joinCancelled: control(.joinCancelled, [], to: &writer)
        case .receipt(let receipt): control(.receipt, receipt.serialized, to: &writer)
        case .acknowledgement(let said): writer.put(3, said)
        case .ping(let nonce): writer.put(4, nonce, always: true)
        case .pong(let nonce): writer.put(5, nonce, always: true)
        case .closing(let asleep): writer.put(6, !asleep, always: true)
        case .explosion(let sealed): writer.put(7, sealed, always: true)
        case .contents(let contents): writer.put(8) { $0.put(1, each: contents) }
        case .attachmentRequest(let id, let first, let count):
            writer.put(20) {
                $0.put(1, id)
                $0.put(2, UInt32(clamping: first))
                $0.put(3, UInt32(clamping: count))
            }
        case .attachmentChunk(let chunk): writer.put(21, chunk)
        case .attachmentGone(let id): writer.put(22, id)
        case .relayRequest(let request): writer.put(30, request)
        case .relayAnswer(let answer): writer.put(31, answer)
        case .punch(let message): writer.put(32, message)
        case .mailboxRequest(let request): writer.put(40, request)
        case .mailboxAnswer(let answer): writer.put(41, answer)
        case .mailbox(let message): writer.put(42, message)
        case .unknown: break
        }
    }

    private static func write(_ message: LifetimeMessage, to writer: inout ProtoWriter) {
        switch message {
        case .proposal(let proposal): control(.lifetimeProposal, SeedJSON.encode(proposal), to: &writer)
        case .accept(let accept): control(.lifetimeAccept, SeedJSON.encode(accept), to: &writer)
        case .reject(let id, let reason):
            control(.lifetimeReject, SeedJSON.encodeRejection(of: id, reason), to: &writer)
        case .withdraw(let id): control(.lifetimeWithdraw, SeedJSON.encodeWithdrawal(of: id), to: &writer)
        case .agreement(let agreement): control(.lifetimeAgreement, agreement.serialized, to: &writer)
        case .ended(let id, let renewable):
            let ended = ProtoWriter.bytes {
                $0.put(1, id)
                $0.put(2, renewable)
            }
            control(.lifetimeEnded, ended, to: &writer)
        case .unsupported: preconditionFailure("an unsupported proposal is received, never sent")
        }
    }

    private static func control(_ type: ContentType, _ payload: [UInt8], to writer: inout ProtoWriter) {
        writer.put(2) {
            $0.put(1, type.description)
            $0.put(8, true)
            $0.put(9, payload)
        }
    }

    private static let bodies = [8, 3, 21, 1, 2, 7, 20, 22, 30, 31, 32, 40, 41, 42]
    private static let numbers = [4, 5, 6]

    package static func decode(_ bytes: [UInt8]) throws(WireError) -> Frame {
        let fields = try ProtoFields(bytes)
        switch fields.last(of: bodies, numbers: numbers) {
        case 1: return try SessionStart(fields.fields(1)).map { .session($0) } ?? .unknown
        case 2: return try control(fields.fields(2)) ?? .unknown
        case 3: return .acknowledgement(try Acknowledgement(fields.fields(3)))
        case 4: return .ping(fields.number(4))
        case 5: return .pong(fields.number(5))
        case 6: return .closing(asleep: !fields.flag(6))
        case 7: return .explosion(try fields.bytes(7, "explosion", count: Limits.noticeByteCount))
        case 8:
            let contents: [AgedContent] = try fields.fields(8).messages(1, "contents", atMost: Limits.contentsCount)
            return contents.isEmpty ? .unknown : .contents(contents)
        case 20:
            let request = try fields.fields(20)
            return .attachmentRequest(
                try request.id(1, "attachment_request.message"), first: Int(request.uint32(2)),
                count: Int(request.uint32(3)))
        case 21: return .attachmentChunk(try AttachmentChunk(fields.fields(21)))
        case 22: return .attachmentGone(try fields.id(22, "attachment_gone"))
        case 30: return try RelayRequest(fields.fields(30)).map { .relayRequest($0) } ?? .unknown
        case 31: return try RelayAnswer(fields.fields(31)).map { .relayAnswer($0) } ?? .unknown
        case 32: return try PunchMessage(fields.fields(32)).map { .punch($0) } ?? .unknown
        case 40: return try MailboxRequest(fields.fields(40)).map { .mailboxRequest($0) } ?? .unknown
        case 41: return try MailboxAnswer(fields.fields(41)).map { .mailboxAnswer($0) } ?? .unknown
        case 42: return try MailboxMessage(fields.fields(42)).map { .mailbox($0) } ?? .unknown
        default: return .unknown
        }
    }

    /// A control message, or `nil` for one of a later version.
    private static func control(_ fields: ProtoFields) throws(WireError) -> Frame? {
        let payload = try fields.bytes(9, "content.payload", atMost: Limits.payloadByteCount)
        let type = ContentType(try fields.text(1, "content.type", atMost: Limits.contentTypeByteCount))
        // They have no meaning here, but are texts all the same.
        _ = try (fields.text(4, "content.lifetime"), fields.text(7, "content.fallback"))
        switch type.family {
        case .receipt: return try Receipt(serialized: payload).map { .receipt($0) }
        // Chat contents use `contents` frames; each node makes its system messages itself.
        case .systemMessage, .text, .reply, .reaction, .attachment: throw .malformed("content.type")
        default: break
        }
        switch type {
        case .lifetimeProposal, .lifetimeAccept, .lifetimeReject, .lifetimeWithdraw:
            return .lifetime(try SeedJSON.decodeLifetimeMessage(payload, as: type))
        case .joinRequest: return try JoinRequest(serialized: payload).map { .joinRequest($0) }
        case .welcome: return try Welcome(serialized: payload).map { .welcome($0) }
        case .joinError: return .joinError(try SeedJSON.decodeJoinError(payload))
        case .deletionReceipt: return try DeletionReceipt(serialized: payload).map { .deletionReceipt($0) }
        case .invitation: return try Invitation(serialized: payload).map { .invitation($0) }
        case .memberLeft: return try Departure(serialized: payload).map { .memberLeft($0) }
        case .groupUpdated: return try GroupUpdate(serialized: payload).map { .group($0) }
        case .profile: return try Member(serialized: payload).map { .profile($0) }
        case .lifetimeAgreement: return try Agreement(serialized: payload).map { .lifetime(.agreement($0)) }
        case .lifetimeEnded:
            let ended = try ProtoFields(payload)
            return .lifetime(.ended(try ended.id(1, "lifetime_ended.agreement"), renewable: try ended.optional(2)))
        case .joinCancelled: return .joinCancelled
        // A type of a later version.
        default: return nil
        }
    }
}

package enum WireError: Error, Hashable, Sendable {
    /// Not a known encoding: a damaged or hostile sender.
    case malformed(String)
    /// A field is longer than its limit.
    case tooLong(String)
}
