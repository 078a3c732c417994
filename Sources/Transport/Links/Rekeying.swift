import Cryptography

/// The exchange that gives an open link new secrets (Links.md, "New secrets"): the same over TCP and UDP, without I/O.
///
///     dialer    idle ──due: rekey──▶ asked ──answer──▶ switching ──peer's first use──▶ idle
///     listener  idle ──rekey: answer─────────────────▶ switching ──peer's first use──▶ idle
struct Rekeying: ~Copyable {
    /// The first byte of the link's own frames: no tag of protobuf, so no frame of the owner begins with it.
    enum Kind: UInt8 {
        case rekey = 0xfe
        case answer = 0xff

        /// The kind, the curve's key, and ML-KEM's key or ciphertext.
        var byteCount: Int {
            1 + PublicKey.byteCount
                + (self == .rekey ? KeyEncapsulationSecret.keyByteCount : KeyEncapsulationSecret.ciphertextByteCount)
        }
    }

    /// Why a frame of the peer ends the link.
    enum Violation: Error, Hashable {
        case outOfTurn
        /// Before half the time and half the frames: an answer costs two curve operations and an encapsulation.
        case tooEarly
        case badLength
        case badKey
    }

    struct Renewal: ~Copyable {
        /// The listener's, to be sealed by the old keys.
        let answer: [UInt8]?
        let secrets: LinkSecrets
    }

    /// The dialer's keys until the answer; of ML-KEM the seed, which locked memory holds.
    private struct Asked: ~Copyable {
        let ephemeral: SecretKey
        let seed: SecretBytes
    }

    let role: Role
    private let limits: RekeyLimits
    /// Both sides have the same one. New secrets are derived from it.
    private(set) var rootKey: SecretBytes
    private var asked: Asked?
    /// When the present exchange began.
    private var startedAt: Microseconds?
    /// When the present secrets were derived, and the frames of both directions since.
    private var since: Microseconds
    private var frameCount = 0

    init(_ role: Role, rootKey: consuming SecretBytes, limits: RekeyLimits, at now: Microseconds) {
        self.role = role
        self.rootKey = rootKey
        self.limits = limits
        since = now
    }

    static func kind(of frame: [UInt8]) -> Kind? { frame.first.flatMap { Kind(rawValue: $0) } }

    /// Any past time means at once.
    private var dueAt: Microseconds? {
        guard role == .initiator, startedAt == nil else { return nil }
        return frameCount >= limits.frameCount ? since : since + limits.after
    }

    private var overdueAt: Microseconds { min(since + limits.after, startedAt ?? .max) + limits.patience }

    /// When the dialer asks, unless the exchange is overdue.
    var deadline: Microseconds { min(dueAt ?? .max, overdueAt) }

    func isOverdue(at now: Microseconds) -> Bool { overdueAt <= now }

    mutating func countFrame() { frameCount += 1 }

    /// The dialer's frame at the ``deadline``.
    mutating func ask(
        at now: Microseconds, ephemeral: consuming SecretKey,
        seed: consuming SecretBytes = SecretBytes(randomByteCount: KeyEncapsulationSecret.seedByteCount)
    ) -> [UInt8] {
        startedAt = now
        let frame =
            [Kind.rekey.rawValue] + ephemeral.publicKey.bytes + KeyEncapsulationSecret(seed: seed).encapsulationKey
        asked = Asked(ephemeral: ephemeral, seed: seed)
        return frame
    }

    /// Takes a frame that has a ``kind(of:)``.
    mutating func receive(
        _ frame: [UInt8], at now: Microseconds, makeEphemeral: () -> SecretKey,
        encapsulate: (ArraySlice<UInt8>) throws(KeyEncapsulationError) -> KeyEncapsulation = {
            bytes throws(KeyEncapsulationError) in try KeyEncapsulation(to: bytes)
        }
    ) throws(Violation) -> Renewal {
        guard let kind = Self.kind(of: frame), (kind == .rekey) == (role == .responder) else { throw .outOfTurn }
        guard kind == .rekey ? startedAt == nil : asked != nil else { throw .outOfTurn }
        guard frame.count == kind.byteCount else { throw .badLength }
        let isEarly = now < since + limits.after / 2 && frameCount < limits.frameCount / 2
        guard kind == .answer || !isEarly else { throw .tooEarly }
        guard let remote = try? PublicKey(frame[1..<1 + PublicKey.byteCount]) else { throw .badKey }
        let rest = frame[(1 + PublicKey.byteCount)...]
        if let asked = asked.take() {
            guard let secret = try? KeyEncapsulationSecret(seed: asked.seed).decapsulate(rest) else { throw .badKey }
            return renewal(nil, now, asked.ephemeral.sharedSecret(with: remote), secret)
        }
        let made: KeyEncapsulation
        do { made = try encapsulate(rest) } catch { throw .badKey }
        let ephemeral = makeEphemeral()
        startedAt = now
        return renewal(
            [Kind.answer.rawValue] + ephemeral.publicKey.bytes + made.ciphertext, now,
            ephemeral.sharedSecret(with: remote), made.secret)
    }

    private mutating func renewal(
        _ answer: [UInt8]?, _ now: Microseconds, _ curve: borrowing SecretBytes, _ encapsulated: borrowing SecretBytes
    ) -> Renewal {
        let secrets = LinkSecrets(rootKey: rootKey, curve: curve, encapsulated: encapsulated, role: role)
        rootKey = secrets.rootKey.clone()
        since = now
        frameCount = 0
        return Renewal(answer: answer, secrets: secrets)
    }

    /// The peer uses the newest keys.
    mutating func completed() { if asked == nil { startedAt = nil } }
}
