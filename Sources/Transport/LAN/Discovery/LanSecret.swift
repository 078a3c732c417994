import Crypto

/// Key of the tags of one direction of a pair of inboxes, used for nothing else. The last reference wipes it.
package final class LanSecret: Sendable {
    private let secret: SecretBytes

    /// HKDF-SHA-256 of the routing secret, 32 bytes, info "mayfly/1 lan".
    package init(routingSecret: UnsafeRawBufferPointer) {
        secret = HKDF.derive(secret: routingSecret, info: Array("mayfly/1 lan".utf8))
    }

    /// Identifies the announcing inbox to its peer: HMAC-SHA-256(K, 1 ‖ slot), cut to 8 bytes.
    package func tag(slot: Int64) -> UInt64 { code([1], bigEndian(UInt64(bitPattern: slot))) }

    /// Binds an announcement to its source, so that it cannot be replayed from elsewhere: HMAC-SHA-256(K, 2 ‖ slot ‖
    /// nonce ‖ port ‖ address), cut to 8 bytes.
    package func proof(slot: Int64, nonce: UInt64, port: UInt16, address: IPAddress) -> UInt64 {
        code([2], bigEndian(UInt64(bitPattern: slot)), place(nonce, port, address))
    }

    /// Binds an answer to its question and source: HMAC-SHA-256(K, 3 ‖ nonce ‖ port ‖ address), cut to 8 bytes.
    package func answerProof(nonce: UInt64, port: UInt16, address: IPAddress) -> UInt64 {
        code([3], place(nonce, port, address))
    }

    private func place(_ nonce: UInt64, _ port: UInt16, _ address: IPAddress) -> [UInt8] {
        bigEndian(nonce) + [UInt8(port >> 8), UInt8(port & 0xff)] + address.mappedBytes
    }

    private func code(_ parts: [UInt8]...) -> UInt64 {
        let message = parts.flatMap { $0 }
        let code = secret.withBytes { HMACSHA256.authenticate(key: $0, message) }
        return code.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    }
}
