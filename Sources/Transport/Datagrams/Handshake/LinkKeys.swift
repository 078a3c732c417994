import Cryptography

/// The keys of a link's packets (DatagramLinks.md, "Keys").
///
///     sending    current ──4,096 packets, the peer has one──▶ its rotation
///     receiving  current ──packet of its rotation──▶ previous and current
///                previous ──3 probe timeouts──▶ wiped
struct LinkKeys: ~Copyable {
    /// Packets of a key. More than ``ReplayWindow/size``, so every acceptable packet has one of the last two keys.
    static let packetsPerKey: UInt64 = 4_096

    private struct Key: ~Copyable {
        /// The link's generation in the high four bits, the rotations since in the low four; both wrap.
        let epoch: UInt8
        let cipher: PacketCipher

        var rotated: Key { Key(epoch: epoch & 0xf0 | (epoch &+ 1) & 0x0f, cipher: cipher.rotated()) }
    }

    private var sending: Key
    private var firstNumber: UInt64 = 0
    private var receiving: Key
    private var previous: Key?
    /// When the previous key is wiped.
    private(set) var discardAt: Microseconds?

    init(_ secrets: borrowing LinkSecrets) {
        sending = Key(epoch: 0, cipher: secrets.packetSender)
        receiving = Key(epoch: 0, cipher: secrets.packetReceiver)
    }

    /// The epoch of packets that we send.
    var epoch: UInt8 { sending.epoch }
    var receivingEpoch: UInt8 { receiving.epoch }

    /// Call before the packet with `number` is begun. The peer knows one key beyond the last packet that it has.
    mutating func rotate(at number: UInt64, acknowledged: UInt64?) {
        guard number - firstNumber >= Self.packetsPerKey, let acknowledged, acknowledged >= firstNumber else { return }
        sending = sending.rotated
        firstNumber = number
    }

    borrowing func seal(_ packet: inout [UInt8], number: UInt64) {
        sending.cipher.seal(&packet, headerByteCount: DatagramPacket.sealedHeaderByteCount, number: number)
    }

    /// Opens a packet in place.
    /// - Parameter keepFor: how long the previous key is kept.
    /// - Returns: false if it does not open; the state is unchanged then.
    mutating func open(
        _ packet: inout [UInt8], epoch: UInt8, number: UInt64, keepFor: Microseconds, at now: Microseconds
    ) -> Bool {
        let header = DatagramPacket.sealedHeaderByteCount
        do throws(NoiseError) {
            if epoch == receiving.epoch {
                try receiving.cipher.open(&packet, headerByteCount: header, number: number)
                return true
            }
            if let candidate = previous?.epoch, epoch == candidate {
                try previous?.cipher.open(&packet, headerByteCount: header, number: number)
                return true
            }
            let next = receiving.rotated
            guard epoch == next.epoch else { return false }
            try next.cipher.open(&packet, headerByteCount: header, number: number)
            previous = exchange(&receiving, with: next)
            discardAt = now + keepFor
            return true
        } catch { return false }
    }

    mutating func timeout(at now: Microseconds) {
        guard let discardAt, discardAt <= now else { return }
        previous = nil
        self.discardAt = nil
    }
}

private func exchange<Value: ~Copyable>(_ place: inout Value, with value: consuming Value) -> Value {
    let old = consume place
    place = value
    return old
}
