import Crypto

/// The keys of a link, by epoch.
///
///     current ──offer(…) by the initiator──▶ current and next ──packet of the next epoch──▶ previous and current
///     current ──install(…) by the responder──▶ previous and current
///     previous ──3 probe timeouts after the peer's first packet of the current epoch──▶ wiped
struct LinkKeys: ~Copyable {
    private struct Epoch: ~Copyable {
        let number: UInt8
        let link: LinkHandshake.PacketLink
    }

    enum Opened { case current, previous, next }

    private var current: Epoch
    private var previous: Epoch?
    private var next: Epoch?
    /// When the current keys came into use.
    private(set) var since: Microseconds
    private(set) var sentCount: UInt64 = 0
    private(set) var receivedCount: UInt64 = 0
    /// When the previous keys are wiped, set once the peer uses the current ones.
    private(set) var discardAt: Microseconds?

    init(_ link: consuming LinkHandshake.PacketLink, at now: Microseconds) {
        current = Epoch(number: 0, link: link)
        previous = nil
        next = nil
        since = now
    }

    /// The epoch of packets that we send.
    var epoch: UInt8 { current.number }
    /// The current keys' handshake hash, 32 bytes.
    var handshakeHash: [UInt8] { current.link.peer.handshakeHash }
    /// Our next keys await their first use by the peer.
    var awaitsPeer: Bool { next != nil }

    /// We are the initiator and know the new keys; the peer does not have act 3 yet.
    mutating func offer(_ link: consuming LinkHandshake.PacketLink) {
        next = Epoch(number: current.number &+ 1, link: link)
    }

    /// We are the responder and have act 3: use the new keys from now on.
    mutating func install(_ link: consuming LinkHandshake.PacketLink, at now: Microseconds) {
        promote(Epoch(number: current.number &+ 1, link: link), at: now)
        discardAt = nil
    }

    private mutating func promote(_ epoch: consuming Epoch, at now: Microseconds) {
        previous = exchange(&current, with: epoch)
        since = now
        sentCount = 0
        receivedCount = 0
    }

    mutating func seal(_ packet: inout [UInt8], number: UInt64) {
        sentCount += 1
        current.link.sending.seal(&packet, headerByteCount: DatagramPacket.sealedHeaderByteCount, number: number)
    }

    /// Opens a packet in place.
    /// - Parameter keepFor: how long the previous keys are kept once the peer uses the new ones.
    /// - Returns: `nil` if it does not open; the state is unchanged then.
    mutating func open(
        _ packet: inout [UInt8], epoch: UInt8, number: UInt64, keepFor: Microseconds, at now: Microseconds
    ) -> Opened? {
        let header = DatagramPacket.sealedHeaderByteCount
        do throws(NoiseError) {
            if epoch == current.number {
                try current.link.receiving.open(&packet, headerByteCount: header, number: number)
                receivedCount += 1
                if previous != nil, discardAt == nil { discardAt = now + keepFor }
                return .current
            }
            if let candidate = next?.number, epoch == candidate {
                try next?.link.receiving.open(&packet, headerByteCount: header, number: number)
                if let epoch = next.take() { promote(epoch, at: now) }
                receivedCount = 1
                discardAt = now + keepFor
                return .next
            }
            if let candidate = previous?.number, epoch == candidate {
                try previous?.link.receiving.open(&packet, headerByteCount: header, number: number)
                return .previous
            }
            return nil
        } catch { return nil }
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
