import Cryptography
import Messaging

/// A body in a mailbox, with everything an attacker may know besides the owner's disk, from the sender's disk or the
/// owner's live inbox.
package struct KeptBody {
    package let bytes: [UInt8]
    let number: UInt64
    let secret: SlotSecret
    let box: BoxID
    /// Slice width of the agreement.
    let width: Milliseconds
    let key: PublicKey
}

/// Attacks on a mailbox's bodies, written from the pages "Keys" of the store and "Slices" of the mailbox.
extension Thief {
    private static let widths: [Milliseconds] = [15 * .minute, .hour, 3 * .hour, 12 * .hour]

    /// Tries every key on the disk: those derived from an inbox and a bucket, and every stored value that may be a key.
    /// Call it after ``search(image:written:slotCount:)``.
    /// - Parameter isThorough: Tries slices of every width, and each key on each body regardless of its public key.
    /// - Returns: The first frame of each opened body, by its index in `bodies`.
    package func open(_ bodies: [KeptBody], isThorough: Bool) -> (opened: [Int: [UInt8]], keyCount: Int) {
        let pairs = pairs
        let stored = storedKeys()
        var keyCount = stored.count
        var derived: [String: [(PublicKey, Secret)]] = [:]
        var opened: [Int: [UInt8]] = [:]
        for (index, body) in bodies.enumerated() {
            guard let hint = SlotSealing.hint(of: body.bytes, number: body.number, body.secret) else { continue }
            var candidates = stored
            for width in isThorough ? Self.widths : [body.width] {
                for attempt in 0..<(isThorough ? 2 : 1) {
                    let label = "mailbox slice \(hint.slice) \(width) \(attempt)"
                    let keys = derived[label] ?? pairs.compactMap { Self.key($0, label) }
                    if derived[label] == nil { keyCount += keys.count }
                    derived[label] = keys
                    candidates += keys
                }
            }
            for (publicKey, secret) in candidates where isThorough || publicKey == body.key {
                guard let key = try? SecretKey(secret.bytes.clone()),
                    let frames = SlotSealing.open(
                        body.bytes, with: key, number: body.number, body.secret, box: body.box)
                else { continue }
                opened[index] = frames.first ?? []
                break
            }
        }
        return (opened, keyCount)
    }

    /// S ‖ E of every inbox and bucket.
    private var pairs: [Secret] {
        let rows = Set(rows.map { $0.bytes.withBytes { Array($0) } })
        let columns = Set(columns.map { $0.bytes.withBytes { Array($0) } })
        return rows.flatMap { row in columns.map { Secret(SecretBytes(copying: row + $0)) } }
    }

    private static func key(_ pair: Secret, _ label: String) -> (PublicKey, Secret)? {
        let secret = Secret(BLAKE2b.derive(key: pair.bytes, Array("mayfly row and column use: \(label)".utf8)))
        guard let key = try? SecretKey(secret.bytes.clone()) else { return nil }
        return (key.publicKey, secret)
    }

    /// All 32-byte windows of decrypted payloads that are as random as a key; texts are not.
    private func storedKeys() -> [(PublicKey, Secret)] {
        var windows: Set<[UInt8]> = []
        for payload in payloads where payload.count >= 32 {
            for start in 0...(payload.count - 32) {
                let window = payload[start..<(start + 32)]
                if Set(window).count > 16 { windows.insert(Array(window)) }
            }
        }
        return windows.compactMap { window in
            let secret = Secret(SecretBytes(copying: window))
            guard let key = try? SecretKey(secret.bytes.clone()) else { return nil }
            return (key.publicKey, secret)
        }
    }
}
