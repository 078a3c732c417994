import COpenSSL
import CSodium

/// SHA-256 (FIPS 180-4), incremental and in one call. libcrypto uses the processor's SHA instructions and takes a
/// quarter of libsodium's time.
package struct SHA256 {
    package static let byteCount = 32
    private var state = SHA256_CTX()

    package init() { SHA256_Init(&state) }

    package mutating func update(_ bytes: some Collection<UInt8>) {
        withContiguousBytes(bytes) { bytes in
            if let base = bytes.baseAddress { SHA256_Update(&state, base, bytes.count) }
        }
    }

    package consuming func finalize() -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: Self.byteCount)
        SHA256_Final(&digest, &state)
        return digest
    }

    package static func hash(_ bytes: some Collection<UInt8>) -> [UInt8] {
        var hasher = SHA256()
        hasher.update(bytes)
        return hasher.finalize()
    }

    /// The tagged hash of BIP 340: SHA-256(SHA-256(tag) ‖ SHA-256(tag) ‖ message).
    package static func tagged(_ tag: String, _ message: some Collection<UInt8>) -> [UInt8] {
        let prefix = hash(Array(tag.utf8))
        var hasher = SHA256()
        hasher.update(prefix)
        hasher.update(prefix)
        hasher.update(message)
        return hasher.finalize()
    }
}

/// SHA-256 of secret pieces, whose last bytes are overwritten with the last reference.
package final class SHA256Hasher {
    private var hash = SHA256()

    package init() {}

    deinit { withUnsafeMutableBytes(of: &hash) { wipe($0) } }

    package func update(_ bytes: some Collection<UInt8>) { hash.update(bytes) }

    /// Call once.
    package func finalize() -> [UInt8] { hash.finalize() }
}

/// HMAC-SHA-256 (RFC 2104).
package enum HMACSHA256 {
    package static func authenticate(key: UnsafeRawBufferPointer, _ parts: [UInt8]...) -> [UInt8] {
        let (inner, outer) = (SHA256Hasher(), SHA256Hasher())
        var block = [UInt8](repeating: 0x36, count: 64)
        func mix(_ key: some Sequence<UInt8>) { for (index, byte) in key.enumerated() { block[index] ^= byte } }
        if key.count > block.count { mix(SHA256.hash(key)) } else { mix(key) }
        inner.update(block)
        for part in parts { inner.update(part) }
        for index in block.indices { block[index] ^= 0x36 ^ 0x5c }
        outer.update(block)
        outer.update(inner.finalize())
        wipe(&block)
        return outer.finalize()
    }

    package static func authenticate(key: [UInt8], _ parts: [UInt8]...) -> [UInt8] {
        key.withUnsafeBytes { authenticate(key: $0, parts.flatMap { $0 }) }
    }
}

/// HKDF with SHA-256 (RFC 5869).
package enum HKDF {
    /// Extract-and-expand into locked memory.
    /// - Parameter byteCount: at most 8,160 (255 blocks).
    package static func derive(secret: UnsafeRawBufferPointer, salt: [UInt8] = [], info: [UInt8], byteCount: Int = 32)
        -> SecretBytes
    {
        var block: [UInt8] = []
        var pseudorandomKey = salt.withUnsafeBytes { HMACSHA256.authenticate(key: $0, Array(secret)) }
        defer {
            wipe(&block)
            wipe(&pseudorandomKey)
        }
        return SecretBytes(byteCount: byteCount) { output in
            var written = 0
            var counter: UInt8 = 0
            while written < byteCount {
                counter += 1
                block = pseudorandomKey.withUnsafeBytes { HMACSHA256.authenticate(key: $0, block, info, [counter]) }
                let count = min(32, byteCount - written)
                for index in 0..<count { output[written + index] = block[index] }
                written += count
            }
        }
    }

    package static func derive(secret: borrowing SecretBytes, salt: [UInt8] = [], info: String, byteCount: Int = 32)
        -> SecretBytes
    { secret.withBytes { derive(secret: $0, salt: salt, info: Array(info.utf8), byteCount: byteCount) } }
}

/// BLAKE2b (RFC 7693).
package enum BLAKE2b {
    /// Unkeyed digest of `byteCount` bytes (16 to 64).
    package static func hash(_ parts: [UInt8]..., byteCount: Int = 32) -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: byteCount)
        digest.withUnsafeMutableBytes { compute(key: nil, parts, into: $0) }
        return digest
    }

    /// Unkeyed digest of 16 to 64 bytes, without a copy on the heap.
    package static func hash(_ message: UnsafeRawBufferPointer, into digest: UnsafeMutableRawBufferPointer) {
        precondition((16...64).contains(digest.count), "BLAKE2b digests have 16 to 64 bytes")
        Sodium.start()
        crypto_generichash_blake2b(digest.octets, digest.count, message.octets, UInt64(message.count), nil, 0)
    }

    /// Keyed digest into locked memory: our key derivation inside the store.
    /// - Parameter key: 16 to 64 bytes.
    package static func derive(key: borrowing SecretBytes, _ parts: [UInt8]..., byteCount: Int = 32) -> SecretBytes {
        key.withBytes { key in SecretBytes(byteCount: byteCount) { compute(key: key, parts, into: $0) } }
    }

    /// Keyed digest for values that are not secret (names, tags, message authentication codes).
    package static func authenticate(key: borrowing SecretBytes, _ parts: [UInt8]..., byteCount: Int = 32) -> [UInt8] {
        key.withBytes { key in
            var digest = [UInt8](repeating: 0, count: byteCount)
            digest.withUnsafeMutableBytes { compute(key: key, parts, into: $0) }
            return digest
        }
    }

    private static func compute(
        key: UnsafeRawBufferPointer?, _ parts: [[UInt8]], into output: UnsafeMutableRawBufferPointer
    ) {
        precondition((16...64).contains(output.count), "BLAKE2b digests have 16 to 64 bytes")
        Sodium.start()
        var message = parts.count == 1 ? parts[0] : parts.flatMap { $0 }
        crypto_generichash_blake2b(
            output.octets, output.count, message, UInt64(message.count), key?.octets, key?.count ?? 0)
        if key != nil { wipe(&message) }
    }
}

/// SipHash-2-4 (Aumasson and Bernstein, 2012).
package enum SipHash {
    /// - Precondition: `key` has 16 bytes.
    package static func hash(key: UnsafeRawBufferPointer, _ bytes: UnsafeRawBufferPointer) -> UInt64 {
        precondition(key.count == 16)
        var output: UInt64 = 0
        withUnsafeMutableBytes(of: &output) { output in
            withUnsafeBytes(of: 0 as UInt64) { nothing in
                _ = crypto_shorthash_siphash24(
                    output.octets, (bytes.baseAddress ?? nothing.baseAddress!).assumingMemoryBound(to: UInt8.self),
                    UInt64(bytes.count), key.octets)
            }
        }
        return UInt64(littleEndian: output)
    }
}

/// Argon2id (RFC 9106), one lane, of libsodium.
package enum Argon2id {
    package static let saltByteCount = 16

    package enum Failure: Error, Equatable {
        /// libsodium could not allocate `memoryByteCount` bytes.
        case outOfMemory
    }

    /// - Parameters:
    ///   - iterations: passes over the memory, t.
    ///   - memoryByteCount: size of the memory, m, in bytes.
    package static func derive(
        passphrase: borrowing SecretBytes, salt: [UInt8], iterations: UInt64, memoryByteCount: Int, byteCount: Int = 32
    ) throws(Failure) -> SecretBytes {
        precondition(salt.count == saltByteCount)
        Sodium.start()
        return try passphrase.withBytes { passphrase throws(Failure) in
            try SecretBytes(byteCount: byteCount) { output throws(Failure) in
                let result = crypto_pwhash(
                    output.octets, UInt64(byteCount), passphrase.baseAddress!.assumingMemoryBound(to: CChar.self),
                    UInt64(passphrase.count), salt, iterations, memoryByteCount, crypto_pwhash_ALG_ARGON2ID13)
                guard result == 0 else { throw .outOfMemory }
            }
        }
    }
}
