import CSodium

/// SHA-512 (FIPS 180-4) and HMAC-SHA-512 (RFC 2104), as CPace uses them.
package enum SHA512 {
    package static let byteCount = 64
    package static let blockByteCount = 128

    /// Hashes the concatenation of `parts` into `output`, which has 64 bytes. Overwrites its state, which depends on
    /// secrets.
    static func hash(_ parts: [UInt8]..., into output: UnsafeMutableRawBufferPointer) {
        precondition(output.count == byteCount)
        Sodium.start()
        var state = crypto_hash_sha512_state()
        crypto_hash_sha512_init(&state)
        for part in parts { crypto_hash_sha512_update(&state, part, UInt64(part.count)) }
        crypto_hash_sha512_final(&state, output.octets)
        sodium_memzero(&state, MemoryLayout.size(ofValue: state))
    }

    /// For public bytes.
    package static func hash(_ bytes: [UInt8]) -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: byteCount)
        digest.withUnsafeMutableBytes { hash(bytes, into: $0) }
        return digest
    }

    static func authenticate(key: borrowing SecretBytes, _ message: [UInt8]) -> [UInt8] {
        Sodium.start()
        var state = crypto_auth_hmacsha512_state()
        key.withBytes { key in _ = crypto_auth_hmacsha512_init(&state, key.octets, key.count) }
        crypto_auth_hmacsha512_update(&state, message, UInt64(message.count))
        var code = [UInt8](repeating: 0, count: byteCount)
        crypto_auth_hmacsha512_final(&state, &code)
        sodium_memzero(&state, MemoryLayout.size(ofValue: state))
        return code
    }
}
