import Cryptography

/// The keys of a link's packets (DatagramLinks.md, "Keys").
///
///     sending    current ──4,096 packets, the peer has one──▶ its rotation
///                current ──new secrets; the listener's wait for the dialer's first packet──▶ the next generation
///     receiving  current ──packet of its rotation or the next generation──▶ previous and current
///                previous ──3 probe timeouts──▶ wiped
struct LinkKeys: ~Copyable {
    /// Packets of a key. More than ``ReplayWindow/size``, so every acceptable packet has one of the last two keys.
    static let packetsPerKey: UInt64 = 4_096

    private struct Key: ~Copyable {
        /// The link's generation in the high four bits, the rotations since in the low four; both wrap.
        let epoch: UInt8
        let cipher: PacketCipher

        var rotated: Key { Key(epoch: rotatedEpoch, cipher: cipher.rotated()) }
        var rotatedEpoch: UInt8 { epoch & 0xf0 | (epoch &+ 1) & 0x0f }
        var nextGeneration: UInt8 { (epoch & 0xf0) &+ 0x10 }
    }

    enum Opened { case known, newGeneration }

    private var sending: Key
    /// The first packet under the current key, once it is begun.
    private var firstNumber: UInt64?
    private var receiving: Key
    private var previous: Key?
    // The next generation.
    private var nextSending: Key?
    private var nextReceiving: Key?
    /// The next rotation of ``receiving``, once a packet has named it: forged packets must not cost a derivation each.
    private var rotatedReceiving: Key?
    /// When the previous key is wiped.
    private(set) var discardAt: Microseconds?

    init(_ secrets: borrowing LinkSecrets) {
        sending = Key(epoch: 0, cipher: secrets.packetSender)
        receiving = Key(epoch: 0, cipher: secrets.packetReceiver)
    }

    var epoch: UInt8 { sending.epoch }
    var receivingEpoch: UInt8 { receiving.epoch }

    /// Call before the packet with `number` is begun. The peer knows one key beyond the last packet that it has.
    mutating func rotate(at number: UInt64, acknowledged: UInt64?) {
        guard let first = firstNumber else {
            firstNumber = number
            return
        }
        guard number - first >= Self.packetsPerKey, let acknowledged, acknowledged >= first else { return }
        sending = sending.rotated
        firstNumber = number
    }

    /// New secrets: the dialer seals with them at once, because the listener has them. Call again only after
    /// ``Opened/newGeneration``.
    mutating func replace(by secrets: borrowing LinkSecrets, _ role: Role) {
        nextReceiving = Key(epoch: receiving.nextGeneration, cipher: secrets.packetReceiver)
        nextSending = Key(epoch: sending.nextGeneration, cipher: secrets.packetSender)
        if role == .initiator { useNextSending() }
    }

    private mutating func useNextSending() {
        guard let next = nextSending.take() else { return }
        sending = next
        firstNumber = nil
    }

    borrowing func seal(_ packet: inout [UInt8], number: UInt64) {
        sending.cipher.seal(&packet, headerByteCount: DatagramPacket.sealedHeaderByteCount, number: number)
    }

    /// Opens a packet in place.
    /// - Parameter keepFor: how long the previous key is kept.
    /// - Returns: `nil` if it does not open; the state is unchanged then.
    mutating func open(
        _ packet: inout [UInt8], epoch: UInt8, number: UInt64, keepFor: Microseconds, at now: Microseconds
    ) -> Opened? {
        let header = DatagramPacket.sealedHeaderByteCount
        do throws(NoiseError) {
            if epoch == receiving.epoch {
                try receiving.cipher.open(&packet, headerByteCount: header, number: number)
                return .known
            }
            if let candidate = previous?.epoch, epoch == candidate {
                try previous?.cipher.open(&packet, headerByteCount: header, number: number)
                return .known
            }
            if let candidate = nextReceiving?.epoch, epoch == candidate {
                try nextReceiving?.cipher.open(&packet, headerByteCount: header, number: number)
                if let next = nextReceiving.take() { promote(next, discardAt: now + keepFor) }
                useNextSending()
                return .newGeneration
            }
            guard epoch == receiving.rotatedEpoch else { return nil }
            if rotatedReceiving == nil { rotatedReceiving = receiving.rotated }
            try rotatedReceiving?.cipher.open(&packet, headerByteCount: header, number: number)
            if let next = rotatedReceiving.take() { promote(next, discardAt: now + keepFor) }
            return .known
        } catch { return nil }
    }

    private mutating func promote(_ key: consuming Key, discardAt time: Microseconds) {
        swap(&receiving, &key)
        previous = consume key
        rotatedReceiving = nil
        discardAt = time
    }

    mutating func timeout(at now: Microseconds) {
        guard let discardAt, discardAt <= now else { return }
        previous = nil
        self.discardAt = nil
    }
}
