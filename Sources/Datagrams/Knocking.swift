/// A knock of ours: sealed bytes without a handshake, and the answer (protocol, section 7).
///
///     asking ──answer, empty or not──▶ ended
///     asking ──5 s──▶ failed
///
/// It is sent again after 1 s, and then after twice as long each time. Whoever answers sends no more than it has got.
struct Knocking {
    let address: DatagramAddress
    private let bytes: [UInt8]
    private let giveUpAt: Microseconds
    private var lastSentAt: Microseconds
    private var retransmitAfter: Microseconds
    private var owesDatagram = true

    init(
        _ sealed: [UInt8],
        token: [UInt8],
        to address: DatagramAddress,
        id: UInt64,
        limits: DatagramLimits,
        at now: Microseconds
    ) {
        self.address = address
        bytes = DatagramPacket.knock(token: token, asker: id, sealed: sealed).bytes
        giveUpAt = now + limits.actTimeout
        lastSentAt = now
        retransmitAfter = 3 * limits.initialRoundTrip
    }

    var deadline: Microseconds { owesDatagram ? lastSentAt : min(giveUpAt, lastSentAt + retransmitAfter) }

    /// - Returns: whether the knock has failed.
    mutating func timeout(at now: Microseconds) -> Bool {
        if giveUpAt <= now { return true }
        if !owesDatagram, lastSentAt + retransmitAfter <= now {
            owesDatagram = true
            retransmitAfter *= 2
        }
        return false
    }

    mutating func poll(at now: Microseconds) -> DatagramTransmit? {
        guard owesDatagram else { return nil }
        owesDatagram = false
        lastSentAt = now
        return DatagramTransmit(address: address, bytes: bytes)
    }
}
