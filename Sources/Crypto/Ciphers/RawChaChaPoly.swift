import COpenSSL
import CSodium

/// ChaCha20-Poly1305 (RFC 8439) and XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha) in the caller's memory.
///
/// libsodium computes short messages. From ``largeByteCount`` on libcrypto does, with the processor's widest vectors: a
/// chunk of a file takes a third of the time. Both give the same bytes.
enum RawChaChaPoly {
    /// Below this the overhead of a libcrypto call exceeds its gain.
    static let largeByteCount = 1_024
    static let tagByteCount = 16

    /// - Parameters:
    ///   - plaintext: may overlap the output.
    ///   - output: room for the plaintext and the tag of 16 bytes.
    ///   - key: 32 bytes.
    ///   - nonce: 12 bytes, or 24 for XChaCha20-Poly1305.
    static func seal(
        _ plaintext: UnsafeRawBufferPointer, into output: UnsafeMutableRawPointer, key: UnsafeRawPointer,
        nonce: UnsafeRawBufferPointer, authenticating data: UnsafeRawBufferPointer
    ) {
        Sodium.start()
        if plaintext.count >= largeByteCount,
            LargeChaChaPoly.run(nonce, key, { $0.seal(plaintext, into: output.bytes, data) })
        {
            return
        }
        let seal =
            nonce.count == 12 ? crypto_aead_chacha20poly1305_ietf_encrypt : crypto_aead_xchacha20poly1305_ietf_encrypt
        _ = seal(
            output.bytes, nil, plaintext.baseAddress?.bytes, UInt64(plaintext.count), data.baseAddress?.bytes,
            UInt64(data.count), nil, nonce.baseAddress!.bytes, key.bytes)
    }

    /// - Parameters:
    ///   - ciphertext: with its tag.
    ///   - output: room for the plaintext; may overlap the ciphertext. Zeros when the tag does not match.
    /// - Returns: whether the tag matches.
    static func open(
        _ ciphertext: UnsafeRawBufferPointer, into output: UnsafeMutableRawPointer, key: UnsafeRawPointer,
        nonce: UnsafeRawBufferPointer, authenticating data: UnsafeRawBufferPointer
    ) -> Bool {
        Sodium.start()
        guard ciphertext.count >= tagByteCount else { return false }
        if ciphertext.count >= largeByteCount {
            var isOpened: Bool?
            _ = LargeChaChaPoly.run(nonce, key) { cipher in
                isOpened = cipher.open(ciphertext, into: output.bytes, data)
                return isOpened != nil
            }
            if let isOpened { return isOpened }
        }
        let open =
            nonce.count == 12 ? crypto_aead_chacha20poly1305_ietf_decrypt : crypto_aead_xchacha20poly1305_ietf_decrypt
        return open(
            output.bytes, nil, nil, ciphertext.baseAddress!.bytes, UInt64(ciphertext.count), data.baseAddress?.bytes,
            UInt64(data.count), nonce.baseAddress!.bytes, key.bytes) == 0
    }
}

extension RawChaChaPoly {
    /// - Returns: the plaintext; `nil` when the tag does not match.
    static func opened(
        _ ciphertext: UnsafeRawBufferPointer, _ key: UnsafeRawPointer, _ nonce: UnsafeRawBufferPointer,
        _ data: UnsafeRawBufferPointer
    ) -> [UInt8]? {
        guard ciphertext.count >= tagByteCount else { return nil }
        var isOpened = false
        // A capacity of zero would let the library write into Swift's shared empty array.
        let plaintext = [UInt8](unsafeUninitializedCapacity: max(1, ciphertext.count - tagByteCount)) { output, count in
            isOpened = open(ciphertext, into: output.baseAddress!, key: key, nonce: nonce, authenticating: data)
            count = isOpened ? ciphertext.count - tagByteCount : 0
        }
        return isOpened ? plaintext : nil
    }
}

/// A libcrypto context with a key and a nonce, for one message.
struct LargeChaChaPoly {
    /// `nil` if libcrypto lacks the cipher.
    private nonisolated(unsafe) static let cipher: OpaquePointer? = {
        OpenSSL.start()
        return EVP_CIPHER_fetch(nil, "ChaCha20-Poly1305", nil)
    }()

    private let context: OpaquePointer
    private let key: UnsafePointer<UInt8>
    private let nonce: UnsafePointer<UInt8>

    /// - Parameter body: returns whether libcrypto succeeded.
    /// - Returns: false after a failure, with the output unchanged.
    static func run(_ nonce: UnsafeRawBufferPointer, _ key: UnsafeRawPointer, _ body: (LargeChaChaPoly) -> Bool) -> Bool
    {
        // libcrypto overwrites a context, and its copy of the key, when it frees it.
        guard cipher != nil, let context = EVP_CIPHER_CTX_new() else { return false }
        defer { EVP_CIPHER_CTX_free(context) }
        let start = nonce.baseAddress!.bytes
        if nonce.count == 12 { return body(LargeChaChaPoly(context: context, key: key.bytes, nonce: start)) }
        // The key of the draft's section 2.3: HChaCha20 of the first 16 bytes; 4 zeros and the other 8 are the nonce.
        return withUnsafeTemporaryAllocation(byteCount: 32 + 12, alignment: 16) { derived in
            defer { wipe(derived) }
            let subkey = derived.baseAddress!.assumingMemoryBound(to: UInt8.self)
            crypto_core_hchacha20(subkey, start, key.bytes, nil)
            let short = subkey + 32
            short.update(repeating: 0, count: 4)
            (short + 4).update(from: start + 16, count: 8)
            return body(LargeChaChaPoly(context: context, key: subkey, nonce: short))
        }
    }

    func seal(
        _ plaintext: UnsafeRawBufferPointer, into output: UnsafeMutablePointer<UInt8>, _ data: UnsafeRawBufferPointer
    ) -> Bool {
        var written: Int32 = 0
        guard let length = Int32(exactly: plaintext.count), let dataLength = Int32(exactly: data.count),
            EVP_EncryptInit_ex(context, Self.cipher, nil, key, nonce) == 1,
            data.isEmpty || EVP_EncryptUpdate(context, nil, &written, data.baseAddress?.bytes, dataLength) == 1
        else { return false }
        // The output may overwrite the plaintext: from here on libsodium cannot take over.
        let tag = output + plaintext.count
        let isDone =
            EVP_EncryptUpdate(context, output, &written, plaintext.baseAddress?.bytes, length) == 1
            && EVP_EncryptFinal_ex(context, tag, &written) == 1
            && EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, Int32(RawChaChaPoly.tagByteCount), tag) == 1
        precondition(isDone, "libcrypto: ChaCha20-Poly1305")
        return true
    }

    /// - Returns: whether the tag matches; `nil` when libcrypto has changed nothing.
    func open(
        _ ciphertext: UnsafeRawBufferPointer, into output: UnsafeMutablePointer<UInt8>, _ data: UnsafeRawBufferPointer
    ) -> Bool? {
        let count = ciphertext.count - RawChaChaPoly.tagByteCount
        var written: Int32 = 0
        return withUnsafeTemporaryAllocation(byteCount: RawChaChaPoly.tagByteCount, alignment: 16) { tag -> Bool? in
            tag.copyMemory(from: UnsafeRawBufferPointer(rebasing: ciphertext[count...]))
            guard let length = Int32(exactly: count), let dataLength = Int32(exactly: data.count),
                EVP_DecryptInit_ex(context, Self.cipher, nil, key, nonce) == 1,
                EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, Int32(tag.count), tag.baseAddress) == 1,
                data.isEmpty || EVP_DecryptUpdate(context, nil, &written, data.baseAddress?.bytes, dataLength) == 1
            else { return nil }
            if EVP_DecryptUpdate(context, output, &written, ciphertext.baseAddress?.bytes, length) == 1,
                EVP_DecryptFinal_ex(context, output + count, &written) == 1
            {
                return true
            }
            // The caller must not get unauthenticated plaintext.
            wipe(UnsafeMutableRawBufferPointer(start: output, count: count))
            return false
        }
    }
}

extension UnsafeRawPointer { fileprivate var bytes: UnsafePointer<UInt8> { assumingMemoryBound(to: UInt8.self) } }

extension UnsafeMutableRawPointer {
    fileprivate var bytes: UnsafeMutablePointer<UInt8> { assumingMemoryBound(to: UInt8.self) }
}
