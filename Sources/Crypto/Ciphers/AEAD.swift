import CSodium

package enum AEADError: Error, Equatable {
    /// The tag does not match: wrong key, nonce or associated data, or changed bytes.
    case authenticationFailed
}

/// ChaCha20-Poly1305 (RFC 8439): 32-byte key, 12-byte nonce, 16-byte tag.
package enum ChaChaPoly {
    package static let tagByteCount = 16

    /// - Precondition: `key` has 32 bytes and `nonce` 12.
    package static func seal(
        _ plaintext: some Collection<UInt8>,
        key: UnsafeRawBufferPointer,
        nonce: [UInt8],
        authenticating data: [UInt8] = []
    ) -> [UInt8] {
        precondition(key.count == 32 && nonce.count == 12)
        Sodium.start()
        return withContiguousBytes(plaintext) { plaintext in
            [UInt8](unsafeUninitializedCapacity: plaintext.count + tagByteCount) { output, count in
                var written: UInt64 = 0
                crypto_aead_chacha20poly1305_ietf_encrypt(
                    output.baseAddress!,
                    &written,
                    plaintext.baseAddress,
                    UInt64(plaintext.count),
                    data,
                    UInt64(data.count),
                    nil,
                    nonce,
                    key.baseAddress!.assumingMemoryBound(to: UInt8.self)
                )
                count = Int(written)
            }
        }
    }

    /// - Throws: ``AEADError/authenticationFailed``, also for input shorter than a tag.
    package static func open(
        _ ciphertext: some Collection<UInt8>,
        key: UnsafeRawBufferPointer,
        nonce: [UInt8],
        authenticating data: [UInt8] = []
    ) throws(AEADError) -> [UInt8] {
        precondition(key.count == 32 && nonce.count == 12)
        Sodium.start()
        guard ciphertext.count >= tagByteCount else { throw .authenticationFailed }
        var failed = false
        let plaintext = withContiguousBytes(ciphertext) { ciphertext in
            // Never of no capacity: the library would write the count into the one empty array that all threads share.
            [UInt8](unsafeUninitializedCapacity: max(1, ciphertext.count - tagByteCount)) { output, count in
                var written: UInt64 = 0
                failed =
                    crypto_aead_chacha20poly1305_ietf_decrypt(
                        output.baseAddress!,
                        &written,
                        nil,
                        ciphertext.baseAddress!,
                        UInt64(ciphertext.count),
                        data,
                        UInt64(data.count),
                        nonce,
                        key.baseAddress!.assumingMemoryBound(to: UInt8.self)
                    ) != 0
                count = failed ? 0 : Int(written)
            }
        }
        if failed { throw .authenticationFailed }
        return plaintext
    }
}

extension ChaChaPoly {
    /// Seals all of `packet` after its first bytes, in place, and appends the tag; the first bytes are authenticated.
    /// - Parameters:
    ///   - headerByteCount: how many bytes stay in the clear.
    ///   - counter: the nonce is 32 zero bits and this number, little-endian (Noise, section 12.3).
    /// - Precondition: `key` has 32 bytes, and the packet its header.
    package static func seal(
        _ packet: inout [UInt8],
        headerByteCount: Int,
        key: UnsafeRawBufferPointer,
        counter: UInt64
    ) {
        precondition(key.count == 32 && headerByteCount >= 0 && headerByteCount <= packet.count)
        Sodium.start()
        let plaintextByteCount = packet.count - headerByteCount
        for _ in 0..<tagByteCount { packet.append(0) }
        var nonce = (UInt32(0), counter.littleEndian.low, counter.littleEndian.high)
        packet.withUnsafeMutableBufferPointer { packet in
            withUnsafeBytes(of: &nonce) { nonce in
                let body = packet.baseAddress! + headerByteCount
                _ = crypto_aead_chacha20poly1305_ietf_encrypt(
                    body,
                    nil,
                    body,
                    UInt64(plaintextByteCount),
                    packet.baseAddress!,
                    UInt64(headerByteCount),
                    nil,
                    nonce.baseAddress!.assumingMemoryBound(to: UInt8.self),
                    key.baseAddress!.assumingMemoryBound(to: UInt8.self)
                )
            }
        }
    }

    /// Opens in place what ``seal(_:headerByteCount:key:counter:)`` has made, and takes the tag off.
    /// - Throws: ``AEADError/authenticationFailed``; the bytes after the header are then worth nothing.
    package static func open(
        _ packet: inout [UInt8],
        headerByteCount: Int,
        key: UnsafeRawBufferPointer,
        counter: UInt64
    ) throws(AEADError) {
        precondition(key.count == 32 && headerByteCount >= 0)
        Sodium.start()
        guard packet.count - tagByteCount >= headerByteCount else { throw .authenticationFailed }
        let sealedByteCount = packet.count - headerByteCount
        var nonce = (UInt32(0), counter.littleEndian.low, counter.littleEndian.high)
        let result = packet.withUnsafeMutableBufferPointer { packet in
            withUnsafeBytes(of: &nonce) { nonce in
                let body = packet.baseAddress! + headerByteCount
                return crypto_aead_chacha20poly1305_ietf_decrypt(
                    body,
                    nil,
                    nil,
                    body,
                    UInt64(sealedByteCount),
                    packet.baseAddress!,
                    UInt64(headerByteCount),
                    nonce.baseAddress!.assumingMemoryBound(to: UInt8.self),
                    key.baseAddress!.assumingMemoryBound(to: UInt8.self)
                )
            }
        }
        guard result == 0 else { throw .authenticationFailed }
        packet.removeLast(tagByteCount)
    }
}

extension UInt64 {
    /// The half that comes first in memory on a little-endian machine.
    fileprivate var low: UInt32 { UInt32(truncatingIfNeeded: self) }
    fileprivate var high: UInt32 { UInt32(truncatingIfNeeded: self >> 32) }
}

/// XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha): 32-byte key, 24-byte nonce that may be random, 16-byte tag.
package enum XChaChaPoly {
    package static let nonceByteCount = 24
    package static let tagByteCount = 16
    /// Bytes that ``seal(_:key:nonce:authenticating:)`` adds: nonce and tag.
    package static let overheadByteCount = nonceByteCount + tagByteCount

    /// - Returns: nonce ‖ ciphertext ‖ tag.
    /// - Precondition: `key` has 32 bytes and `nonce` 24.
    package static func seal(
        _ plaintext: [UInt8],
        key: borrowing SecretBytes,
        nonce: [UInt8],
        authenticating data: [UInt8] = []
    ) -> [UInt8] {
        precondition(key.byteCount == 32 && nonce.count == nonceByteCount)
        Sodium.start()
        return key.withBytes { key in
            [UInt8](unsafeUninitializedCapacity: plaintext.count + overheadByteCount) { output, count in
                _ = output.update(fromContentsOf: nonce)
                var written: UInt64 = 0
                crypto_aead_xchacha20poly1305_ietf_encrypt(
                    output.baseAddress! + nonceByteCount,
                    &written,
                    plaintext,
                    UInt64(plaintext.count),
                    data,
                    UInt64(data.count),
                    nil,
                    nonce,
                    key.baseAddress!.assumingMemoryBound(to: UInt8.self)
                )
                count = nonceByteCount + Int(written)
            }
        }
    }

    /// Opens nonce ‖ ciphertext ‖ tag.
    /// - Throws: ``AEADError/authenticationFailed``, also for input shorter than nonce and tag.
    package static func open(
        _ sealed: some Collection<UInt8>,
        key: borrowing SecretBytes,
        authenticating data: [UInt8] = []
    ) throws(AEADError) -> [UInt8] {
        precondition(key.byteCount == 32)
        Sodium.start()
        guard sealed.count >= overheadByteCount else { throw .authenticationFailed }
        var failed = false
        let plaintext = key.withBytes { key in
            withContiguousBytes(sealed) { sealed in
                [UInt8](unsafeUninitializedCapacity: sealed.count - overheadByteCount) { output, count in
                    var written: UInt64 = 0
                    failed =
                        crypto_aead_xchacha20poly1305_ietf_decrypt(
                            output.baseAddress!,
                            &written,
                            nil,
                            sealed.baseAddress! + nonceByteCount,
                            UInt64(sealed.count - nonceByteCount),
                            data,
                            UInt64(data.count),
                            sealed.baseAddress!,
                            key.baseAddress!.assumingMemoryBound(to: UInt8.self)
                        ) != 0
                    count = failed ? 0 : Int(written)
                }
            }
        }
        if failed { throw .authenticationFailed }
        return plaintext
    }
}
