import COpenSSL
import CSodium

package enum AEADError: Error, Equatable {
    /// The tag does not match: wrong key, nonce or associated data, or changed bytes.
    case authenticationFailed
}

/// ChaCha20-Poly1305 (RFC 8439): 32-byte key, 12-byte nonce, 16-byte tag.
package enum ChaChaPoly {
    package static let tagByteCount = AEAD.tagByteCount

    package struct Nonce: Sendable {
        private let words: (UInt32, UInt32, UInt32)

        /// 32 zero bits and the number, little-endian (Noise, section 12.3).
        package init(counter: UInt64) {
            let (low, high) = (UInt32(truncatingIfNeeded: counter), UInt32(truncatingIfNeeded: counter >> 32))
            words = (0, low.littleEndian, high.littleEndian)
        }

        /// - Precondition: 12 bytes.
        package init(_ bytes: [UInt8]) {
            precondition(bytes.count == 12)
            words = bytes.withUnsafeBytes { $0.loadUnaligned(as: (UInt32, UInt32, UInt32).self) }
        }

        func withBytes<Result, Failure: Error>(_ body: (UnsafeRawBufferPointer) throws(Failure) -> Result)
            throws(Failure) -> Result
        { try withUnsafeBytes(of: words, body) }
    }

    /// - Returns: ciphertext ‖ tag.
    package static func seal(
        _ plaintext: some Collection<UInt8>, key: borrowing SecretBytes, nonce: Nonce, authenticating data: [UInt8] = []
    ) -> [UInt8] {
        var sealed: [UInt8] = []
        nonce.withBytes { AEAD.seal(plaintext, appendingTo: &sealed, key: key, nonce: $0, authenticating: data) }
        return sealed
    }

    /// - Throws: ``AEADError/authenticationFailed``, also for input shorter than a tag.
    package static func open(
        _ sealed: some Collection<UInt8>, key: borrowing SecretBytes, nonce: Nonce, authenticating data: [UInt8] = []
    ) throws(AEADError) -> [UInt8] {
        let plaintext = withContiguousBytes(sealed) { sealed in
            nonce.withBytes { nonce in
                data.withUnsafeBytes { AEAD.open(sealed, key: key, nonce: nonce, authenticating: $0) }
            }
        }
        guard let plaintext else { throw .authenticationFailed }
        return plaintext
    }
}

/// XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha): 32-byte key, 24-byte nonce that may be random, 16-byte tag. A sealed
/// message is nonce ‖ ciphertext ‖ tag.
package enum XChaChaPoly {
    package static let nonceByteCount = 24
    package static let tagByteCount = AEAD.tagByteCount
    package static let overheadByteCount = nonceByteCount + tagByteCount

    /// - Precondition: `nonce` has 24 bytes.
    package static func seal(
        _ plaintext: [UInt8], key: borrowing SecretBytes, nonce: [UInt8], authenticating data: [UInt8] = []
    ) -> [UInt8] {
        precondition(nonce.count == nonceByteCount)
        var sealed = nonce
        nonce.withUnsafeBytes { AEAD.seal(plaintext, appendingTo: &sealed, key: key, nonce: $0, authenticating: data) }
        return sealed
    }

    /// Seals a record in place: nonce ‖ plaintext ‖ room for the tag.
    package static func seal(
        inPlace record: UnsafeMutableRawBufferPointer, key: borrowing SecretBytes,
        authenticating data: UnsafeRawBufferPointer
    ) {
        let (nonce, body) = (record[..<nonceByteCount], record[nonceByteCount...])
        AEAD.seal(
            inPlace: UnsafeMutableRawBufferPointer(rebasing: body), key: key,
            nonce: UnsafeRawBufferPointer(rebasing: nonce), authenticating: data)
    }

    /// - Throws: ``AEADError/authenticationFailed``, also for input shorter than nonce and tag.
    package static func open(
        _ sealed: some Collection<UInt8>, key: borrowing SecretBytes,
        authenticating data: some Collection<UInt8> = [UInt8]()
    ) throws(AEADError) -> [UInt8] {
        let plaintext: [UInt8]? = withContiguousBytes(sealed) { sealed in
            guard sealed.count >= overheadByteCount else { return nil }
            return withContiguousBytes(data) { data in
                AEAD.open(
                    UnsafeRawBufferPointer(rebasing: sealed[nonceByteCount...]), key: key,
                    nonce: UnsafeRawBufferPointer(rebasing: sealed[..<nonceByteCount]), authenticating: data)
            }
        }
        guard let plaintext else { throw .authenticationFailed }
        return plaintext
    }
}

/// Both ciphers in the caller's memory. The length of the nonce, 12 or 24 bytes, chooses the cipher.
///
/// libsodium computes short messages. From ``largeByteCount`` on libcrypto does, with the processor's widest vectors: a
/// chunk of a file takes a third of the time. Both give the same bytes.
enum AEAD {
    static let tagByteCount = 16
    /// Below this the overhead of a libcrypto call exceeds its gain.
    private static let largeByteCount = 1_024

    /// Appends ciphertext and tag to `output`.
    static func seal(
        _ plaintext: some Collection<UInt8>, appendingTo output: inout [UInt8], key: borrowing SecretBytes,
        nonce: UnsafeRawBufferPointer, authenticating data: [UInt8]
    ) {
        let start = output.count
        // Growing later would leave a copy of the plaintext behind.
        output.reserveCapacity(start + plaintext.count + tagByteCount)
        output.append(contentsOf: plaintext)
        output.append(contentsOf: repeatElement(0, count: tagByteCount))
        output.withUnsafeMutableBytes { output in
            data.withUnsafeBytes { data in
                let body = UnsafeMutableRawBufferPointer(rebasing: output[start...])
                seal(inPlace: body, key: key, nonce: nonce, authenticating: data)
            }
        }
    }

    /// - Parameter body: plaintext ‖ room for the tag.
    static func seal(
        inPlace body: UnsafeMutableRawBufferPointer, key: borrowing SecretBytes, nonce: UnsafeRawBufferPointer,
        authenticating data: UnsafeRawBufferPointer
    ) {
        precondition(body.count >= tagByteCount && key.byteCount == 32)
        Sodium.start()
        let byteCount = body.count - tagByteCount
        if byteCount >= largeByteCount, sealLarge(body, key: key, nonce: nonce, authenticating: data) { return }
        let seal =
            nonce.count == 12 ? crypto_aead_chacha20poly1305_ietf_encrypt : crypto_aead_xchacha20poly1305_ietf_encrypt
        key.withBytes { key in
            _ = seal(
                body.octets, nil, body.octets, UInt64(byteCount), data.octets, UInt64(data.count), nil, nonce.octets,
                key.octets)
        }
    }

    /// - Returns: the plaintext; `nil` when the tag does not match.
    static func open(
        _ sealed: UnsafeRawBufferPointer, key: borrowing SecretBytes, nonce: UnsafeRawBufferPointer,
        authenticating data: UnsafeRawBufferPointer
    ) -> [UInt8]? {
        guard sealed.count >= tagByteCount else { return nil }
        var isOpened = false
        // A capacity of zero would let the library write into Swift's shared empty array.
        let plaintext = [UInt8](unsafeUninitializedCapacity: max(1, sealed.count - tagByteCount)) { output, count in
            isOpened = open(sealed, into: output.baseAddress!, key: key, nonce: nonce, authenticating: data)
            count = isOpened ? sealed.count - tagByteCount : 0
        }
        return isOpened ? plaintext : nil
    }

    /// - Parameter output: room for the plaintext; may overlap the input. Zeros when the tag does not match.
    /// - Returns: whether the tag matches.
    static func open(
        _ sealed: UnsafeRawBufferPointer, into output: UnsafeMutablePointer<UInt8>, key: borrowing SecretBytes,
        nonce: UnsafeRawBufferPointer, authenticating data: UnsafeRawBufferPointer
    ) -> Bool {
        guard sealed.count >= tagByteCount else { return false }
        precondition(key.byteCount == 32)
        Sodium.start()
        if sealed.count >= largeByteCount,
            let isOpened = openLarge(sealed, into: output, key: key, nonce: nonce, authenticating: data)
        {
            return isOpened
        }
        let open =
            nonce.count == 12 ? crypto_aead_chacha20poly1305_ietf_decrypt : crypto_aead_xchacha20poly1305_ietf_decrypt
        return key.withBytes { key in
            open(
                output, nil, nil, sealed.octets, UInt64(sealed.count), data.octets, UInt64(data.count), nonce.octets,
                key.octets) == 0
        }
    }

    /// `nil` if libcrypto lacks the cipher.
    private nonisolated(unsafe) static let cipher: OpaquePointer? = {
        OpenSSL.start()
        return EVP_CIPHER_fetch(nil, "ChaCha20-Poly1305", nil)
    }()

    /// - Returns: false after a failure, with the body unchanged.
    static func sealLarge(
        _ body: UnsafeMutableRawBufferPointer, key: borrowing SecretBytes, nonce: UnsafeRawBufferPointer,
        authenticating data: UnsafeRawBufferPointer
    ) -> Bool {
        withContext(key, nonce) { context, key, nonce in
            var written: Int32 = 0
            guard let length = Int32(exactly: body.count - tagByteCount), let dataLength = Int32(exactly: data.count),
                EVP_EncryptInit_ex(context, cipher, nil, key, nonce) == 1,
                data.isEmpty || EVP_EncryptUpdate(context, nil, &written, data.octets, dataLength) == 1
            else { return false }
            // The plaintext is overwritten: from here on libsodium cannot take over.
            let tag = body.octets + Int(length)
            let isDone =
                EVP_EncryptUpdate(context, body.octets, &written, body.octets, length) == 1
                && EVP_EncryptFinal_ex(context, tag, &written) == 1
                && EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, Int32(tagByteCount), tag) == 1
            precondition(isDone, "libcrypto: ChaCha20-Poly1305")
            return true
        } ?? false
    }

    /// - Returns: whether the tag matches; `nil` when libcrypto has changed nothing.
    private static func openLarge(
        _ sealed: UnsafeRawBufferPointer, into output: UnsafeMutablePointer<UInt8>, key: borrowing SecretBytes,
        nonce: UnsafeRawBufferPointer, authenticating data: UnsafeRawBufferPointer
    ) -> Bool? {
        withContext(key, nonce) { context, key, nonce in
            let count = sealed.count - tagByteCount
            // libcrypto only reads the tag.
            let tag = UnsafeMutablePointer(mutating: sealed.octets + count)
            var written: Int32 = 0
            guard let length = Int32(exactly: count), let dataLength = Int32(exactly: data.count),
                EVP_DecryptInit_ex(context, cipher, nil, key, nonce) == 1,
                EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, Int32(tagByteCount), tag) == 1,
                data.isEmpty || EVP_DecryptUpdate(context, nil, &written, data.octets, dataLength) == 1
            else { return nil }
            if EVP_DecryptUpdate(context, output, &written, sealed.octets, length) == 1,
                EVP_DecryptFinal_ex(context, output + count, &written) == 1
            {
                return true
            }
            // The caller must not get unauthenticated plaintext.
            wipe(UnsafeMutableRawBufferPointer(start: output, count: count))
            return false
        }
    }

    /// A context for one message, with the key and the nonce of ChaCha20-Poly1305.
    private static func withContext<Result>(
        _ key: borrowing SecretBytes, _ nonce: UnsafeRawBufferPointer,
        _ body: (_ context: OpaquePointer, _ key: UnsafePointer<UInt8>, _ nonce: UnsafePointer<UInt8>) -> Result?
    ) -> Result? {
        // libcrypto overwrites a context, and its copy of the key, when it frees it.
        guard cipher != nil, let context = EVP_CIPHER_CTX_new() else { return nil }
        defer { EVP_CIPHER_CTX_free(context) }
        return key.withBytes { key in
            guard nonce.count == 24 else { return body(context, key.octets, nonce.octets) }
            // The draft's section 2.3: the key is HChaCha20 of the first 16 bytes, the nonce 4 zeros and the other 8.
            return withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 32 + 12) { derived in
                defer { wipe(UnsafeMutableRawBufferPointer(derived)) }
                let subkey = derived.baseAddress!
                crypto_core_hchacha20(subkey, nonce.octets, key.octets, nil)
                (subkey + 32).initialize(repeating: 0, count: 4)
                (subkey + 36).initialize(from: nonce.octets + 16, count: 8)
                return body(context, subkey, subkey + 32)
            }
        }
    }
}
