import CSodium

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
