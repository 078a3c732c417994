import Cryptography

/// An identifier of fixed byte length. Text form: lower-case hexadecimal.
package protocol FixedBytes: Hashable, Sendable, Comparable, CustomStringConvertible, TextCodable {
    associatedtype Value: InlineBytes
    var value: Value { get }
    init(_ value: Value)
}

extension FixedBytes {
    package func _rawHashValue(seed: Int) -> Int { value._rawHashValue(seed: seed) }

    package static var byteCount: Int { Value.byteCount }
    package var bytes: [UInt8] { value.bytes }

    package init?(_ bytes: some Sequence<UInt8>) {
        guard let value = Value(bytes) else { return nil }
        self.init(value)
    }

    /// - Precondition: there are exactly ``byteCount`` bytes.
    package init(unchecked bytes: [UInt8]) { self.init(bytes.withUnsafeBytes { Value(copying: $0) }) }

    package init?(hex: some StringProtocol) {
        guard let bytes = Hex.decode(hex) else { return nil }
        self.init(bytes)
    }

    package static func random(_ random: inout some RandomNumberGenerator) -> Self {
        Self(unchecked: random.bytes(byteCount))
    }

    package var description: String { Hex.encode(bytes) }

    package static func < (left: Self, right: Self) -> Bool { left.value < right.value }

    package static var expectation: String { "\(byteCount) bytes in hexadecimal" }
    package var coded: String { Hex.encode(bytes) }
    package init?(coded text: String) { self.init(hex: text) }
}

/// The self-certifying id of an inbox: it verifies a key. It never leaves the conversation; logs, metrics and hooks see
/// the ``ClientID``.
package struct InboxID: FixedBytes {
    package let value: Bytes32
    package init(_ value: Bytes32) { self.value = value }

    package init(_ key: PublicKey) { self.init(unchecked: BLAKE2b.hash(Array("mayfly inbox id v1".utf8), key.bytes)) }
}

/// The only id of an inbox outside its conversation: a random UUID that never changes.
package struct ClientID: FixedBytes {
    package let value: Bytes16
    package init(_ value: Bytes16) { self.value = value }

    /// A version 4 UUID (RFC 9562, section 5.4).
    package static func generate(_ random: inout some RandomNumberGenerator) -> ClientID {
        var bytes = random.bytes(byteCount)
        bytes[6] = bytes[6] & 0x0f | 0x40
        bytes[8] = bytes[8] & 0x3f | 0x80
        return ClientID(unchecked: bytes)
    }

    package var description: String {
        let hex = Hex.encode(bytes)
        var text = ""
        for (index, character) in hex.enumerated() {
            if [8, 12, 16, 20].contains(index) { text.append("-") }
            text.append(character)
        }
        return text
    }

    package init?(hex: some StringProtocol) {
        guard let bytes = Hex.decode(String(hex.filter { $0 != "-" })) else { return nil }
        self.init(bytes)
    }
}

/// 32 random bytes from the conversation's creator, known to its members only.
package struct ConversationID: FixedBytes {
    package let value: Bytes32
    package init(_ value: Bytes32) { self.value = value }
}

/// A message's id for all members: 8 random bytes from its sender, and a hash of 8 bytes that binds them to sender and
/// conversation. So no member can use another member's id.
package struct MessageID: FixedBytes {
    package let value: Bytes16
    package init(_ value: Bytes16) { self.value = value }

    package static func make(
        by sender: PublicKey, in conversation: ConversationID, _ random: inout some RandomNumberGenerator
    ) -> MessageID { make(by: sender, in: conversation, from: random.next()) }

    /// - Parameter number: random, used for nothing else.
    package static func make(by sender: PublicKey, in conversation: ConversationID, from number: UInt64) -> MessageID {
        let nonce = UInt64(bigEndian: number.littleEndian)
        return MessageID(Bytes16(nonce, mark(nonce, sender, conversation)))
    }

    package func belongs(to sender: PublicKey, in conversation: ConversationID) -> Bool {
        value.second == Self.mark(value.first, sender, conversation)
    }

    /// Hides the sender from outsiders, because only members know the conversation's id.
    /// - Parameter nonce: the first half of the id, as a big-endian number; so is the mark.
    private static func mark(_ nonce: UInt64, _ sender: PublicKey, _ conversation: ConversationID) -> UInt64 {
        let (label, digestByteCount) = (StaticString("mayfly message id v1"), 32)
        let keyAt = label.utf8CodeUnitCount + ConversationID.byteCount
        let nonceAt = keyAt + PublicKey.byteCount
        let messageByteCount = nonceAt + 8
        return withUnsafeTemporaryAllocation(byteCount: messageByteCount + digestByteCount, alignment: 8) { buffer in
            label.withUTF8Buffer { buffer.copyMemory(from: UnsafeRawBufferPointer($0)) }
            conversation.value.copy(to: UnsafeMutableRawBufferPointer(rebasing: buffer[label.utf8CodeUnitCount...]))
            sender.value.copy(to: UnsafeMutableRawBufferPointer(rebasing: buffer[keyAt...]))
            buffer.storeBytes(of: nonce.bigEndian, toByteOffset: nonceAt, as: UInt64.self)
            let digest = UnsafeMutableRawBufferPointer(rebasing: buffer[messageByteCount...])
            BLAKE2b.hash(UnsafeRawBufferPointer(rebasing: buffer[..<messageByteCount]), into: digest)
            return UInt64(bigEndian: digest.loadUnaligned(as: UInt64.self))
        }
    }
}

/// Hash of a signed lifetime proposal.
package struct ProposalID: FixedBytes {
    package let value: Bytes32
    package init(_ value: Bytes32) { self.value = value }
}

/// Hash of the agreement's proposal, without the accepts.
package struct AgreementID: FixedBytes {
    package let value: Bytes32
    package init(_ value: Bytes32) { self.value = value }

    /// The predecessor of a conversation's first agreement.
    package static let none = AgreementID(unchecked: [UInt8](repeating: 0, count: 32))
}

/// SHA-256 of an invite's join secret: the creator keeps the hash only.
package struct InviteID: FixedBytes {
    package let value: Bytes32
    package init(_ value: Bytes32) { self.value = value }
}

/// One authenticated link, numbered by the shell.
package struct LinkID: Hashable, Sendable, Comparable {
    package let value: UInt64
    package init(_ value: UInt64) { self.value = value }
    /// For frames from a mailbox; nothing is sent over it.
    static let none = LinkID(.max)
    package static func < (left: LinkID, right: LinkID) -> Bool { left.value < right.value }
}
