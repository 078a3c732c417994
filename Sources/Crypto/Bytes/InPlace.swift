import CSodium

extension XChaChaPoly {
    /// Seals a record where it lies: nonce (24) ‖ plaintext ‖ room for the tag (16).
    /// - Precondition: `key` has 32 bytes, and `record` at least those of nonce and tag.
    package static func seal(
        inPlace record: UnsafeMutableRawBufferPointer,
        key: borrowing SecretBytes,
        authenticating data: UnsafeRawBufferPointer
    ) {
        precondition(key.byteCount == 32 && record.count >= overheadByteCount)
        Sodium.start()
        let base = record.baseAddress!.assumingMemoryBound(to: UInt8.self)
        key.withBytes { key in
            _ = crypto_aead_xchacha20poly1305_ietf_encrypt(
                base + nonceByteCount,
                nil,
                base + nonceByteCount,
                UInt64(record.count - overheadByteCount),
                data.baseAddress?.assumingMemoryBound(to: UInt8.self),
                UInt64(data.count),
                nil,
                base,
                key.baseAddress!.assumingMemoryBound(to: UInt8.self)
            )
        }
    }

    /// Opens nonce ‖ ciphertext ‖ tag.
    /// - Parameter data: the associated data.
    /// - Throws: ``AEADError/authenticationFailed``, also for input shorter than nonce and tag.
    package static func open(
        _ sealed: UnsafeRawBufferPointer,
        key: borrowing SecretBytes,
        authenticating data: UnsafeRawBufferPointer
    ) throws(AEADError) -> [UInt8] {
        precondition(key.byteCount == 32)
        Sodium.start()
        guard sealed.count >= overheadByteCount else { throw .authenticationFailed }
        let base = sealed.baseAddress!.assumingMemoryBound(to: UInt8.self)
        var failed = false
        let plaintext = key.withBytes { key in
            // Never of no capacity: the library would write the count into the one empty array that all threads share.
            [UInt8](unsafeUninitializedCapacity: max(1, sealed.count - overheadByteCount)) { output, count in
                failed =
                    crypto_aead_xchacha20poly1305_ietf_decrypt(
                        output.baseAddress!,
                        nil,
                        nil,
                        base + nonceByteCount,
                        UInt64(sealed.count - nonceByteCount),
                        data.baseAddress?.assumingMemoryBound(to: UInt8.self),
                        UInt64(data.count),
                        base,
                        key.baseAddress!.assumingMemoryBound(to: UInt8.self)
                    ) != 0
                count = failed ? 0 : sealed.count - overheadByteCount
            }
        }
        if failed { throw .authenticationFailed }
        return plaintext
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
                    output.baseAddress!.assumingMemoryBound(to: UInt8.self),
                    (bytes.baseAddress ?? nothing.baseAddress!).assumingMemoryBound(to: UInt8.self),
                    UInt64(bytes.count),
                    key.baseAddress!.assumingMemoryBound(to: UInt8.self)
                )
            }
        }
        return UInt64(littleEndian: output)
    }
}

/// Random bytes from the operating system's generator into memory that is there.
package func fillRandomly(_ buffer: UnsafeMutableRawBufferPointer) {
    Sodium.start()
    if let base = buffer.baseAddress { randombytes_buf(base, buffer.count) }
}
