import Cryptography

/// The messages of the exchange, and the CPace context (Join.md, "Exchange").
package enum CodeExchange {
    package static let shareByteCount = CPace.pointByteCount
    /// Key confirmation.
    package static let tagByteCount = CPace.tagByteCount
    /// The invite's length and text, padded with zeros to hide its length.
    package static let paddedByteCount = 4_096
    package static let textByteCount = paddedByteCount - 2
    package static let inviteByteCount = tagByteCount + paddedByteCount + ChaChaPoly.tagByteCount

    /// Follows the protocol byte of a connection: the code's number and 14 random bytes of the joiner. Unique for each
    /// session.
    package struct Greeting: Hashable, Sendable {
        package static let byteCount = 16
        private static let nonceByteCount = 14
        package let bytes: [UInt8]

        package init(slot: UInt16, _ random: inout Randomness) {
            bytes = bigEndian(slot) + random.bytes(Self.nonceByteCount)
        }

        package init?(_ bytes: [UInt8]) {
            guard bytes.count == Self.byteCount else { return nil }
            self.bytes = bytes
        }

        package var slot: UInt16 { UInt16(bytes[0]) << 8 | UInt16(bytes[1]) }
    }

    private static let channel = Array("mayfly/1 code".utf8)

    /// Binds the roles, so that a message cannot be reflected.
    static func context(_ greeting: Greeting) -> CPace.Context {
        CPace.Context(
            channel: channel, session: greeting.bytes, initiator: Array("joiner".utf8), responder: Array("creator".utf8)
        )
    }

    /// In locked memory from the start.
    package static func scalar(_ random: inout Randomness) -> SecretBytes {
        let words = CPace.scalarByteCount / 8
        let bytes = SecretBytes(byteCount: CPace.scalarByteCount) { buffer in
            for index in 0..<words {
                buffer.storeBytes(of: random.next().littleEndian, toByteOffset: 8 * index, as: UInt64.self)
            }
        }
        return CPace.scalar(random: bytes)
    }

    /// Tag and sealed invite. The key seals this one message, so the nonce is zero.
    /// - Parameter text: at most ``textByteCount`` bytes.
    static func seal(invite text: [UInt8], _ key: CPaceKey) -> [UInt8] {
        precondition(text.count <= textByteCount, "an invite fits into a code's last message")
        var padded = bigEndian(UInt16(text.count)) + text
        padded += [UInt8](repeating: 0, count: paddedByteCount - padded.count)
        defer { wipe(&padded) }
        return key.tag(of: .responder)
            + ChaChaPoly.seal(padded, key: key.derive("mayfly/1 code invite"), nonce: ChaChaPoly.Nonce(counter: 0))
    }

    /// - Returns: the invite's text; `nil` if its sender does not know the code.
    static func open(invite message: [UInt8], _ key: CPaceKey) -> [UInt8]? {
        guard message.count == inviteByteCount, key.isAuthentic(Array(message.prefix(tagByteCount)), of: .responder)
        else { return nil }
        let sealed = message.dropFirst(tagByteCount)
        let opened = try? ChaChaPoly.open(
            sealed, key: key.derive("mayfly/1 code invite"), nonce: ChaChaPoly.Nonce(counter: 0))
        guard var padded = opened else { return nil }
        defer { wipe(&padded) }
        let count = Int(padded[0]) << 8 | Int(padded[1])
        guard count <= textByteCount, padded.dropFirst(2 + count).allSatisfy({ $0 == 0 }) else { return nil }
        return Array(padded[2..<(2 + count)])
    }
}
