import Cryptography
import FoundationEssentials

/// Payloads that the reference documents define as JSON: lifetime messages (seed 004) and join errors (seed 002), with
/// signature fields added.
package enum SeedJSON {
    private static let byteCountLimit = 4_096

    // MARK: Lifetime (seed 004, "Signaling Message Format")

    private struct LifetimeBody: Codable {
        var type: String
        var sessionId: String?
        var id: String?
        var lifetime: String?
        var reason: String?
        /// Seconds since 1970.
        var proposedAt: Double?
        var acceptedAt: Double?
        var proposal: String?
        var epoch: UInt64?
        var membership: UInt64?
        var previous: String?
        var nonce: String?
        var proposer: String?
        var acceptor: String?
        var signature: String?
        var attachments: String?
        /// Milliseconds.
        var unopened: Int64?
        var timer: String?
        var mailbox: String?
    }

    package static func encode(_ proposal: LifetimeProposal) -> [UInt8] {
        encode(
            LifetimeBody(
                type: "lifetime_proposal", sessionId: proposal.conversation.description, id: proposal.id.description,
                lifetime: proposal.lifetime.rawValue, proposedAt: seconds(proposal.proposedAt), epoch: proposal.epoch,
                membership: proposal.membership, previous: proposal.previous.description,
                nonce: Hex.encode(proposal.nonce), proposer: Hex.encode(proposal.proposer.bytes),
                signature: Hex.encode(proposal.signature.bytes), attachments: proposal.terms.attachment?.rawValue,
                unopened: proposal.terms.unopened,
                timer: proposal.terms.timer == .send ? nil : proposal.terms.timer.rawValue,
                mailbox: proposal.terms.mailbox.text))
    }

    package static func encode(_ accept: LifetimeAccept) -> [UInt8] {
        encode(
            LifetimeBody(
                type: "lifetime_accept", sessionId: accept.conversation.description, lifetime: accept.lifetime.rawValue,
                acceptedAt: seconds(accept.acceptedAt), proposal: accept.proposal.description,
                acceptor: Hex.encode(accept.acceptor.bytes), signature: Hex.encode(accept.signature.bytes)))
    }

    package static func encodeRejection(of id: ProposalID, _ reason: LifetimeRejectReason) -> [UInt8] {
        encode(LifetimeBody(type: "lifetime_reject", reason: reason.rawValue, proposal: id.description))
    }

    package static func encodeWithdrawal(of id: ProposalID) -> [UInt8] {
        encode(LifetimeBody(type: "lifetime_withdraw", proposal: id.description))
    }

    /// - Parameter type: the announced type, which the JSON must repeat; `nil` for any.
    package static func decodeLifetimeMessage(_ bytes: [UInt8], as type: ContentType? = nil) throws(WireError)
        -> LifetimeMessage
    {
        let body: LifetimeBody = try decode(bytes)
        if let name = type?.parts?.name, body.type != name { throw .malformed("lifetime.type") }
        switch body.type {
        case "lifetime_proposal": return try proposal(body)
        case "lifetime_accept": return .accept(try accept(body))
        case "lifetime_reject":
            let id = try ProposalID(hex: body.proposal ?? "").known("lifetime_reject.proposal")
            return .reject(id, LifetimeRejectReason(rawValue: body.reason ?? "") ?? .unknown)
        case "lifetime_withdraw":
            return .withdraw(try ProposalID(hex: body.proposal ?? "").known("lifetime_withdraw.proposal"))
        default: throw .malformed("lifetime.type")
        }
    }

    private static func proposal(_ body: LifetimeBody) throws(WireError) -> LifetimeMessage {
        guard body.mailbox != MailboxConsent.no.rawValue,
            let terms = LifetimeTerms(
                lifetime: body.lifetime ?? "", attachment: body.attachments, unopened: body.unopened,
                timer: body.timer ?? LifetimeTerms.Timer.send.rawValue, mailbox: body.mailbox)
        else { return .unsupported(ProposalID(hex: body.id ?? "")) }
        guard let conversation = ConversationID(hex: body.sessionId ?? ""), let proposedAt = timestamp(body.proposedAt),
            let epoch = body.epoch, let membership = body.membership,
            let previous = AgreementID(hex: body.previous ?? ""), let nonce = Hex.decode(body.nonce ?? ""),
            nonce.count == 16, let proposer = PublicKey(coded: body.proposer ?? ""),
            let signature = SchnorrSignature(coded: body.signature ?? "")
        else { throw .malformed("lifetime_proposal") }
        return .proposal(
            LifetimeProposal(
                conversation: conversation, membership: membership, epoch: epoch, previous: previous, terms: terms,
                proposedAt: proposedAt, nonce: nonce, proposer: proposer, signature: signature))
    }

    private static func accept(_ body: LifetimeBody) throws(WireError) -> LifetimeAccept {
        guard let conversation = ConversationID(hex: body.sessionId ?? ""),
            let id = ProposalID(hex: body.proposal ?? ""), let lifetime = Lifetime(rawValue: body.lifetime ?? ""),
            let acceptedAt = timestamp(body.acceptedAt), let acceptor = PublicKey(coded: body.acceptor ?? ""),
            let signature = SchnorrSignature(coded: body.signature ?? "")
        else { throw .malformed("lifetime_accept") }
        return LifetimeAccept(
            conversation: conversation, proposal: id, lifetime: lifetime, acceptedAt: acceptedAt, acceptor: acceptor,
            signature: signature)
    }

    // MARK: Join errors (seed 002, 1.1)

    private struct JoinErrorBody: Codable {
        var errorType: String
        var inviteTag: String
        var timestamp: String
    }

    /// All errors have this size, which hides their kind from observers of the link.
    private static let joinErrorByteCount = 160

    package static func encode(_ error: JoinError) -> [UInt8] {
        let bytes = encode(
            JoinErrorBody(
                errorType: error.errorType.rawValue, inviteTag: error.inviteTag.description,
                timestamp: error.timestamp.iso8601))
        return bytes + [UInt8](repeating: 0x20, count: max(0, joinErrorByteCount - bytes.count))
    }

    package static func decodeJoinError(_ bytes: [UInt8]) throws(WireError) -> JoinError {
        let body: JoinErrorBody = try decode(bytes)
        guard let tag = InviteTag(body.inviteTag), let timestamp = Timestamp(iso8601: body.timestamp),
            body.errorType.utf8.count <= Limits.contentTypeByteCount
        else { throw .malformed("invite_join_error") }
        return JoinError(errorType: JoinErrorType(rawValue: body.errorType), inviteTag: tag, timestamp: timestamp)
    }

    private static func encode(_ value: some Encodable) -> [UInt8] {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        guard let data = try? encoder.encode(value) else { preconditionFailure("a value of our own does not encode") }
        return Array(data)
    }

    private static func decode<Value: Decodable>(_ bytes: [UInt8]) throws(WireError) -> Value {
        guard !bytes.isEmpty, bytes.count <= byteCountLimit else { throw .tooLong("payload") }
        do { return try JSONDecoder().decode(Value.self, from: Data(bytes)) } catch {
            throw .malformed("\(Value.self)")
        }
    }

    private static func seconds(_ time: Timestamp) -> Double { Double(time.milliseconds) / 1_000 }

    private static func timestamp(_ seconds: Double?) -> Timestamp? {
        guard let seconds, seconds.isFinite, (0...253_402_300_799).contains(seconds) else { return nil }
        return Timestamp(milliseconds: Int64((seconds * 1_000).rounded()))
    }
}
