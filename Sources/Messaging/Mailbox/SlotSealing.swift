import Cryptography

/// Sender and owner derive this secret for one box from their inboxes' static-static ECDH. It makes the tags of the
/// slots and authenticates the sender in the seals. Each direction has its own.
package final class SlotSecret: Sendable {
    private let secret: SecretBytes

    /// - Parameter own: the inbox of one of the two.
    package init(sender: PublicKey, owner: PublicKey, box: BoxID, conversation: ConversationID, own: IdentityKey) {
        let other = own.publicKey == sender ? owner : sender
        let shared = own.secret.sharedSecret(with: other)
        let info = Array("mayfly/1 mailbox slots".utf8) + conversation.bytes + sender.bytes + owner.bytes + box.bytes
        secret = shared.derive(info)
    }

    package func tag(_ number: UInt64) -> SlotTag {
        let secret = Array(derive("slot", number).prefix(SlotTag.secretByteCount))
        return SlotTag(unchecked: secret + zip(bigEndian(number), mark(of: SlotID.hash(secret))).map(^))
    }

    /// The number of this sender's slot; `nil` for another sender's slot.
    package func number(of id: SlotID) -> UInt64? {
        let (hash, mark) = (Array(id.bytes.prefix(SlotID.hashByteCount)), id.bytes.dropFirst(SlotID.hashByteCount))
        let number = zip(mark, self.mark(of: hash)).map(^).reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        return SlotID(tag(number)) == id ? number : nil
    }

    /// Hides the slot's number from the mailbox.
    private func mark(of hash: [UInt8]) -> [UInt8] {
        secret.withBytes { Array(HMACSHA256.authenticate(key: $0, Array("name".utf8), hash).prefix(8)) }
    }

    package var noticeTag: SlotTag { SlotTag(unchecked: derive("notice", 0)) }

    /// Seals the notice, and the owner's answer to it.
    package func noticeKey() -> SecretBytes { secret.derive(Array("notice seal".utf8)) }

    /// Hides the slice and the agreement that a body names.
    fileprivate func mask(_ number: UInt64) -> [UInt8] {
        Array(derive("mask", number).prefix(SlotSealing.hintByteCount))
    }

    fileprivate func key(with shared: borrowing SecretBytes, _ context: [UInt8]) -> SecretBytes {
        let joined = SecretBytes(byteCount: shared.byteCount + secret.byteCount) { target in
            shared.withBytes { target.copyMemory(from: $0) }
            secret.withBytes { UnsafeMutableRawBufferPointer(rebasing: target[$0.count...]).copyMemory(from: $0) }
        }
        return joined.derive(Array("mayfly/1 mailbox seal".utf8) + context)
    }

    private func derive(_ purpose: String, _ number: UInt64) -> [UInt8] {
        secret.withBytes { HMACSHA256.authenticate(key: $0, Array(purpose.utf8), bigEndian(number)) }
    }
}

extension SecretBytes {
    fileprivate borrowing func derive(_ info: [UInt8]) -> SecretBytes {
        withBytes { (bytes: UnsafeRawBufferPointer) -> SecretBytes in HKDF.derive(secret: bytes, info: info) }
    }
}

/// The format of slot bodies:
///
///     hint (12, masked): agreement's first 8 bytes ‖ slice (4)
///     ‖ ephemeral public key (33) ‖ nonce (24) ‖ frames, padded ‖ tag (16)
///
/// The key is HKDF(ECDH(ephemeral, slice) ‖ secret of sender and owner). The sender destroys the ephemeral key at once;
/// the owner's store destroys the slice's key.
package enum SlotSealing {
    static let hintByteCount = 12
    package static let overheadByteCount = hintByteCount + PublicKey.byteCount + XChaChaPoly.overheadByteCount
    /// Most bytes of the frames in one slot, each with its length of 4.
    package static let capacity = SlotSize.largest - overheadByteCount

    package struct Hint: Hashable, Sendable {
        package var agreement: [UInt8]
        package var slice: UInt32

        package init(agreement: AgreementID, slice: UInt32) {
            self.agreement = Array(agreement.bytes.prefix(8))
            self.slice = slice
        }

        fileprivate init(_ bytes: some Collection<UInt8>) {
            agreement = Array(bytes.prefix(8))
            slice = bytes.dropFirst(8).reduce(0) { $0 << 8 | UInt32($1) }
        }

        fileprivate var bytes: [UInt8] { agreement + bigEndian(slice) }

        package func names(_ agreement: AgreementID) -> Bool { agreement.bytes.starts(with: self.agreement) }
    }

    /// - Parameters:
    ///   - frames: their lengths and 4 for each are at most ``capacity``.
    ///   - ephemeral: for this slot only.
    ///   - nonce: 24 random bytes.
    /// - Returns: a body with one of the lengths of ``SlotSize``; `nil` if it is too large.
    package static func seal(
        _ frames: [[UInt8]], to slice: PublicKey, _ hint: Hint, number: UInt64, _ secret: SlotSecret, box: BoxID,
        ephemeral: consuming SecretKey, nonce: [UInt8]
    ) -> [UInt8]? {
        let byteCount = frames.reduce(0) { $0 + 4 + $1.count }
        guard let size = SlotSize.holding(byteCount + overheadByteCount) else { return nil }
        var plain: [UInt8] = []
        plain.reserveCapacity(size - overheadByteCount)
        defer { wipe(&plain) }
        for frame in frames {
            plain += bigEndian(UInt32(frame.count))
            plain += frame
        }
        plain += [UInt8](repeating: 0, count: size - overheadByteCount - plain.count)
        let head = zip(hint.bytes, secret.mask(number)).map(^) + ephemeral.publicKey.bytes
        let key = secret.key(with: ephemeral.sharedSecret(with: slice), head + slice.bytes)
        return head
            + XChaChaPoly.seal(plain, key: key, nonce: nonce, authenticating: head + box.bytes + bigEndian(number))
    }

    /// The slice to which a body is sealed; meaningless unless the body is this sender's slot of this number.
    package static func hint(of body: [UInt8], number: UInt64, _ secret: SlotSecret) -> Hint? {
        guard SlotSize.byteCounts.contains(body.count) else { return nil }
        return Hint(zip(body.prefix(hintByteCount), secret.mask(number)).map(^))
    }

    package static func open(
        _ body: [UInt8], with slice: borrowing SecretKey, number: UInt64, _ secret: SlotSecret, box: BoxID
    ) -> [[UInt8]]? {
        let headByteCount = hintByteCount + PublicKey.byteCount
        guard SlotSize.byteCounts.contains(body.count),
            let ephemeral = try? PublicKey(body[hintByteCount..<headByteCount])
        else { return nil }
        let head = Array(body.prefix(headByteCount))
        let key = secret.key(with: slice.sharedSecret(with: ephemeral), head + slice.publicKey.bytes)
        guard
            var plain = try? XChaChaPoly.open(
                body.dropFirst(headByteCount), key: key, authenticating: head + box.bytes + bigEndian(number))
        else { return nil }
        defer { wipe(&plain) }
        return frames(in: plain)
    }

    private static func frames(in plain: [UInt8]) -> [[UInt8]]? {
        var frames: [[UInt8]] = []
        var rest = plain[...]
        while rest.count >= 4 {
            let count = rest.prefix(4).reduce(0) { $0 << 8 | Int($1) }
            guard count > 0 else { break }
            rest = rest.dropFirst(4)
            guard count <= rest.count else { return nil }
            frames.append(Array(rest.prefix(count)))
            rest = rest.dropFirst(count)
        }
        return frames
    }

    /// The body of a reserved slot. The sealed notice is sealed again for this box, so that a mailbox cannot recognize
    /// the same notice in two boxes.
    package static func seal(notice: [UInt8], _ secret: SlotSecret, box: BoxID, nonce: [UInt8]) -> [UInt8] {
        let padding = SlotSize.byteCounts[0] - XChaChaPoly.overheadByteCount - notice.count
        return XChaChaPoly.seal(
            notice + [UInt8](repeating: 0, count: padding), key: secret.noticeKey(), nonce: nonce,
            authenticating: Array("notice".utf8) + box.bytes)
    }

    /// - Returns: ``Limits/noticeByteCount`` bytes; `nil` when authentication fails.
    package static func notice(in body: [UInt8], _ secret: SlotSecret, box: BoxID) -> [UInt8]? {
        guard body.count == SlotSize.byteCounts[0],
            let plain = try? XChaChaPoly.open(
                body, key: secret.noticeKey(), authenticating: Array("notice".utf8) + box.bytes)
        else { return nil }
        return Array(plain.prefix(Limits.noticeByteCount))
    }

    /// The owner's sealed receipt, in place of the notice.
    /// - Parameter nonce: 24 random bytes.
    package static func seal(answer: [UInt8], _ secret: SlotSecret, box: BoxID, nonce: [UInt8]) -> [UInt8] {
        XChaChaPoly.seal(
            answer, key: secret.noticeKey(), nonce: nonce, authenticating: Array("answer".utf8) + box.bytes)
    }

    package static func answer(in body: [UInt8], key: borrowing SecretBytes, box: BoxID) -> [UInt8]? {
        try? XChaChaPoly.open(body, key: key, authenticating: Array("answer".utf8) + box.bytes)
    }
}
