package enum AEADError: Error, Equatable {
    /// The tag does not match: wrong key, nonce or associated data, or changed bytes.
    case authenticationFailed
}

/// ChaCha20-Poly1305 (RFC 8439): 32-byte key, 12-byte nonce, 16-byte tag.
package enum ChaChaPoly {
    package static let tagByteCount = RawChaChaPoly.tagByteCount

    /// - Precondition: `key` has 32 bytes and `nonce` 12.
    package static func seal(
        _ plaintext: some Collection<UInt8>, key: UnsafeRawBufferPointer, nonce: [UInt8],
        authenticating data: [UInt8] = []
    ) -> [UInt8] {
        precondition(key.count == 32 && nonce.count == 12)
        return withContiguousBytes(plaintext) { plaintext in
            [UInt8](unsafeUninitializedCapacity: plaintext.count + tagByteCount) { output, count in
                nonce.withUnsafeBytes { nonce in
                    data.withUnsafeBytes { data in
                        RawChaChaPoly.seal(
                            UnsafeRawBufferPointer(plaintext), into: output.baseAddress!, key: key.baseAddress!,
                            nonce: nonce, authenticating: data)
                    }
                }
                count = plaintext.count + tagByteCount
            }
        }
    }

    /// - Throws: ``AEADError/authenticationFailed``, also for input shorter than a tag.
    package static func open(
        _ ciphertext: some Collection<UInt8>, key: UnsafeRawBufferPointer, nonce: [UInt8],
        authenticating data: [UInt8] = []
    ) throws(AEADError) -> [UInt8] {
        precondition(key.count == 32 && nonce.count == 12)
        let plaintext = withContiguousBytes(ciphertext) { ciphertext in
            nonce.withUnsafeBytes { nonce in
                data.withUnsafeBytes { data in
                    RawChaChaPoly.opened(UnsafeRawBufferPointer(ciphertext), key.baseAddress!, nonce, data)
                }
            }
        }
        guard let plaintext else { throw .authenticationFailed }
        return plaintext
    }

    /// Seals `packet` behind its header in place, authenticates the header and appends the tag.
    /// - Parameters:
    ///   - headerByteCount: length of the header, which stays in the clear.
    ///   - counter: the nonce is 32 zero bits and this number, little-endian (Noise, section 12.3).
    /// - Precondition: `key` has 32 bytes, and the packet its header.
    package static func seal(
        _ packet: inout [UInt8], headerByteCount: Int, key: UnsafeRawBufferPointer, counter: UInt64
    ) {
        precondition(key.count == 32 && headerByteCount >= 0 && headerByteCount <= packet.count)
        let plaintextByteCount = packet.count - headerByteCount
        for _ in 0..<tagByteCount { packet.append(0) }
        packet.withUnsafeMutableBytes { packet in
            withNonce(counter) { nonce in
                let body = packet.baseAddress! + headerByteCount
                RawChaChaPoly.seal(
                    UnsafeRawBufferPointer(start: body, count: plaintextByteCount), into: body, key: key.baseAddress!,
                    nonce: nonce, authenticating: UnsafeRawBufferPointer(rebasing: packet[..<headerByteCount]))
            }
        }
    }

    /// Opens in place and removes the tag.
    /// - Throws: ``AEADError/authenticationFailed``; the bytes after the header are then invalid.
    package static func open(
        _ packet: inout [UInt8], headerByteCount: Int, key: UnsafeRawBufferPointer, counter: UInt64
    ) throws(AEADError) {
        precondition(key.count == 32 && headerByteCount >= 0)
        guard packet.count - tagByteCount >= headerByteCount else { throw .authenticationFailed }
        let isOpened = packet.withUnsafeMutableBytes { packet in
            withNonce(counter) { nonce in
                let body = UnsafeRawBufferPointer(rebasing: packet[headerByteCount...])
                return RawChaChaPoly.open(
                    body, into: packet.baseAddress! + headerByteCount, key: key.baseAddress!, nonce: nonce,
                    authenticating: UnsafeRawBufferPointer(rebasing: packet[..<headerByteCount]))
            }
        }
        guard isOpened else { throw .authenticationFailed }
        packet.removeLast(tagByteCount)
    }

    private static func withNonce<Result>(_ counter: UInt64, _ body: (UnsafeRawBufferPointer) -> Result) -> Result {
        let counter = counter.littleEndian
        let nonce = (UInt32(0), UInt32(truncatingIfNeeded: counter), UInt32(truncatingIfNeeded: counter >> 32))
        return withUnsafeBytes(of: nonce, body)
    }
}

/// XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha): 32-byte key, 24-byte nonce that may be random, 16-byte tag.
package enum XChaChaPoly {
    package static let nonceByteCount = 24
    package static let tagByteCount = RawChaChaPoly.tagByteCount
    /// Bytes that ``seal(_:key:nonce:authenticating:)`` adds: nonce and tag.
    package static let overheadByteCount = nonceByteCount + tagByteCount

    /// - Returns: nonce ‖ ciphertext ‖ tag.
    /// - Precondition: `key` has 32 bytes and `nonce` 24.
    package static func seal(
        _ plaintext: [UInt8], key: borrowing SecretBytes, nonce: [UInt8], authenticating data: [UInt8] = []
    ) -> [UInt8] {
        precondition(key.byteCount == 32 && nonce.count == nonceByteCount)
        return key.withBytes { key in
            [UInt8](unsafeUninitializedCapacity: plaintext.count + overheadByteCount) { output, count in
                _ = output.update(fromContentsOf: nonce)
                plaintext.withUnsafeBytes { plaintext in
                    data.withUnsafeBytes { data in
                        RawChaChaPoly.seal(
                            plaintext, into: output.baseAddress! + nonceByteCount, key: key.baseAddress!,
                            nonce: UnsafeRawBufferPointer(rebasing: UnsafeRawBufferPointer(output)[..<nonceByteCount]),
                            authenticating: data)
                    }
                }
                count = plaintext.count + overheadByteCount
            }
        }
    }

    /// Seals a record in place: nonce (24) ‖ plaintext ‖ room for the tag (16).
    /// - Precondition: `key` has 32 bytes, and `record` at least those of nonce and tag.
    package static func seal(
        inPlace record: UnsafeMutableRawBufferPointer, key: borrowing SecretBytes,
        authenticating data: UnsafeRawBufferPointer
    ) {
        precondition(key.byteCount == 32 && record.count >= overheadByteCount)
        key.withBytes { key in
            RawChaChaPoly.seal(
                UnsafeRawBufferPointer(rebasing: record[nonceByteCount..<(record.count - tagByteCount)]),
                into: record.baseAddress! + nonceByteCount, key: key.baseAddress!,
                nonce: UnsafeRawBufferPointer(rebasing: record[..<nonceByteCount]), authenticating: data)
        }
    }

    /// Opens nonce ‖ ciphertext ‖ tag.
    /// - Throws: ``AEADError/authenticationFailed``, also for input shorter than nonce and tag.
    package static func open(
        _ sealed: some Collection<UInt8>, key: borrowing SecretBytes, authenticating data: [UInt8] = []
    ) throws(AEADError) -> [UInt8] {
        let plaintext = key.withBytes { key in
            withContiguousBytes(sealed) { sealed in
                data.withUnsafeBytes { opened(UnsafeRawBufferPointer(sealed), key, $0) }
            }
        }
        guard let plaintext else { throw .authenticationFailed }
        return plaintext
    }

    /// Reads from the caller's memory.
    package static func open(
        _ sealed: UnsafeRawBufferPointer, key: borrowing SecretBytes, authenticating data: UnsafeRawBufferPointer
    ) throws(AEADError) -> [UInt8] {
        guard let plaintext = key.withBytes({ opened(sealed, $0, data) }) else { throw .authenticationFailed }
        return plaintext
    }

    private static func opened(
        _ sealed: UnsafeRawBufferPointer, _ key: UnsafeRawBufferPointer, _ data: UnsafeRawBufferPointer
    ) -> [UInt8]? {
        precondition(key.count == 32)
        guard sealed.count >= overheadByteCount else { return nil }
        return RawChaChaPoly.opened(
            UnsafeRawBufferPointer(rebasing: sealed[nonceByteCount...]), key.baseAddress!,
            UnsafeRawBufferPointer(rebasing: sealed[..<nonceByteCount]), data)
    }
}
