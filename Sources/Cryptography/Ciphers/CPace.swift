import CSodium

/// CPACE-RISTR255-SHA512: a balanced password-authenticated key exchange (draft-irtf-cfrg-cpace-21) over ristretto255
/// (RFC 9496), initiator and responder.
///
///     initiator                              responder
///       share Ya = ya · g   ──────────────▶
///                           ◀──────────────   share Yb = yb · g
///       tag Ta              ──────────────▶
///                           ◀──────────────   tag Tb
///
/// g is derived from the password. An attacker without the password learns nothing from the shares, and can test one
/// password per tag. The tags are those of the draft's section 10.4.
package enum CPace {
    package static let pointByteCount = Int(crypto_core_ristretto255_BYTES)
    package static let scalarByteCount = Int(crypto_core_ristretto255_SCALARBYTES)
    package static let tagByteCount = SHA512.byteCount

    /// G.DSI of the cipher suite (draft, section 8.3).
    private static let domain = Array("CPaceRistretto255".utf8)
    fileprivate static let keyDomain = Array("CPaceRistretto255_ISK".utf8)
    fileprivate static let tagDomain = Array("CPaceMac".utf8)

    /// Public data that both sides share in addition to the password.
    package struct Context: Hashable, Sendable {
        /// CI: the channel and the program.
        package let channel: [UInt8]
        /// sid: unique for each session.
        package let session: [UInt8]
        /// ADa and ADb. They differ, so that a reflected tag is not accepted as the other side's.
        package let initiator: [UInt8]
        package let responder: [UInt8]

        package init(channel: [UInt8], session: [UInt8], initiator: [UInt8], responder: [UInt8]) {
            precondition(initiator != responder, "the parties' data differ")
            self.channel = channel
            self.session = session
            self.initiator = initiator
            self.responder = responder
        }
    }

    /// prepend_len (draft, appendix A): the length in LEB128, and the bytes.
    package static func prependLength(_ bytes: [UInt8]) -> [UInt8] {
        var length = bytes.count
        var result: [UInt8] = []
        result.reserveCapacity(bytes.count + 2)
        repeat {
            let rest = length >> 7
            result.append(UInt8(length & 0x7f) | (rest == 0 ? 0 : 0x80))
            length = rest
        } while length > 0
        result += bytes
        return result
    }

    /// lv_cat: the length-prefixed parts.
    package static func concatenation(_ parts: [UInt8]...) -> [UInt8] { parts.flatMap(prependLength) }

    /// generator_string: domain and password fill the first block of the hash, which hides the length of a short
    /// password.
    package static func generatorString(password: [UInt8], channel: [UInt8], session: [UInt8]) -> [UInt8] {
        var prefixed = prependLength(password)
        defer { wipe(&prefixed) }
        let padding = max(0, SHA512.blockByteCount - 1 - prefixed.count - prependLength(domain).count)
        return concatenation(domain, password, [UInt8](repeating: 0, count: padding), channel, session)
    }

    /// G.calculate_generator (draft, section 8.3), encoded.
    package static func generator(password: borrowing SecretBytes, _ context: Context) -> SecretBytes {
        var bytes = password.withBytes { Array($0) }
        var string = generatorString(password: bytes, channel: context.channel, session: context.session)
        defer {
            wipe(&bytes)
            wipe(&string)
        }
        let hash = SecretBytes(byteCount: SHA512.byteCount) { SHA512.hash(string, into: $0) }
        return hash.withBytes { hash in
            SecretBytes(byteCount: pointByteCount) { point in
                _ = crypto_core_ristretto255_from_hash(point.octets, hash.octets)
            }
        }
    }

    /// G.sample_scalar: 252 random bits.
    /// - Parameter random: 32 random bytes.
    package static func scalar(random: borrowing SecretBytes) -> SecretBytes {
        precondition(random.byteCount == scalarByteCount)
        return random.withBytes { random in
            SecretBytes(byteCount: scalarByteCount) { scalar in
                scalar.copyMemory(from: random)
                scalar[scalarByteCount - 1] &= 0x0f
            }
        }
    }

    /// Whether these bytes canonically encode an element of the group other than the neutral one.
    package static func isElement(_ point: [UInt8]) -> Bool {
        Sodium.start()
        return point.count == pointByteCount && sodium_is_zero(point, point.count) == 0
            && crypto_core_ristretto255_is_valid_point(point) == 1
    }

    /// G.scalar_mult_vfy: `nil` stands for G.I. It is the result for a non-canonical point, the neutral element, and a
    /// neutral product.
    package static func multiply(_ scalar: borrowing SecretBytes, _ point: UnsafeRawBufferPointer) -> SecretBytes? {
        precondition(scalar.byteCount == scalarByteCount)
        guard point.count == pointByteCount else { return nil }
        Sodium.start()
        var isElement = false
        let product = scalar.withBytes { scalar in
            SecretBytes(byteCount: pointByteCount) { product in
                isElement = crypto_scalarmult_ristretto255(product.octets, scalar.octets, point.octets) == 0
            }
        }
        // libsodium rejects a neutral product, and with it the neutral element as input.
        guard isElement else { return nil }
        return product
    }
}

/// One side's secret scalar and public share, for one session: ``key(with:)`` may be called for one answer only. Wiped
/// with the last reference.
package final class CPaceShare: Sendable {
    private let scalar: SecretBytes
    private let context: CPace.Context
    private let role: Role
    /// The encoded point that is sent, 32 bytes.
    package let bytes: [UInt8]

    /// `nil` for a multiple of the group's order, which random generators never draw in practice.
    /// - Parameter scalar: 32 bytes, of ``CPace/scalar(random:)``.
    package init?(
        _ role: Role, password: borrowing SecretBytes, _ context: CPace.Context, scalar: consuming SecretBytes
    ) {
        let generator = CPace.generator(password: password, context)
        let point = generator.withBytes { CPace.multiply(scalar, $0) }
        guard let point else { return nil }
        self.bytes = point.withBytes { Array($0) }
        self.scalar = scalar
        self.context = context
        self.role = role
    }

    /// The session's key, from the other side's share.
    /// - Returns: `nil` for the neutral element or no element of the group: the session has to end.
    package func key(with share: [UInt8]) -> CPaceKey? {
        guard share.count == CPace.pointByteCount else { return nil }
        let point = SecretBytes(copying: share)
        let result = point.withBytes { CPace.multiply(scalar, $0) }
        guard let product = result else { return nil }
        let (initiator, responder) = role == .initiator ? (bytes, share) : (share, bytes)
        return product.withBytes { CPaceKey(product: $0, context, initiator: initiator, responder: responder) }
    }
}

/// ISK: both sides have the same key if and only if they have the same password and saw the same shares. Wiped with the
/// last reference.
package final class CPaceKey: Sendable {
    private let key: SecretBytes
    private let macKey: SecretBytes
    private let initiatorMessage: [UInt8]
    private let responderMessage: [UInt8]

    fileprivate init(product: UnsafeRawBufferPointer, _ context: CPace.Context, initiator: [UInt8], responder: [UInt8])
    {
        initiatorMessage = CPace.concatenation(initiator, context.initiator)
        responderMessage = CPace.concatenation(responder, context.responder)
        var secret = Array(product)
        var head = CPace.concatenation(CPace.keyDomain, context.session, secret)
        defer {
            wipe(&secret)
            wipe(&head)
        }
        let messages = (initiatorMessage, responderMessage)
        key = SecretBytes(byteCount: SHA512.byteCount) { SHA512.hash(head, messages.0, messages.1, into: $0) }
        var copy = key.withBytes { Array($0) }
        defer { wipe(&copy) }
        macKey = SecretBytes(byteCount: SHA512.byteCount) {
            SHA512.hash(CPace.tagDomain, context.session, copy, into: $0)
        }
    }

    /// Key confirmation, 64 bytes.
    package func tag(of role: Role) -> [UInt8] {
        SHA512.authenticate(key: macKey, role == .initiator ? initiatorMessage : responderMessage)
    }

    /// In constant time.
    package func isAuthentic(_ tag: [UInt8], of role: Role) -> Bool { equalInConstantTime(tag, self.tag(of: role)) }

    /// HKDF-SHA-256 of ISK.
    package func derive(_ info: String) -> SecretBytes { HKDF.derive(secret: key, info: info) }

    /// ISK itself; for the published vectors.
    package func withBytes<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result { key.withBytes(body) }
}

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
