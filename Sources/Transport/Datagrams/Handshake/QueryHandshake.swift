/// An outgoing query without a handshake: a knock (Explode.md, "Knocks") or an address query.
///
///     asking ──answer, empty or not──▶ ended
///     asking ──5 s──▶ failed
///
/// Retransmitted after 1 s, then with doubling intervals. The answer is never longer than the query.
struct QueryHandshake {
    enum Question {
        case knock(sealed: [UInt8])
        case whereAmI
    }

    let question: Question
    let address: DatagramAddress
    private let bytes: [UInt8]
    private let giveUpAt: Microseconds
    private var lastSentAt: Microseconds
    private var retransmitAfter: Microseconds
    private var owesDatagram = true

    init(
        _ question: Question, token: [UInt8], to address: DatagramAddress, id: UInt64, limits: DatagramLimits,
        at now: Microseconds
    ) {
        self.question = question
        self.address = address
        switch question {
        case .knock(let sealed): bytes = DatagramPacket.knock(token: token, asker: id, sealed: sealed).bytes
        case .whereAmI: bytes = DatagramPacket.observe(token: token, asker: id).bytes
        }
        giveUpAt = now + limits.actTimeout
        lastSentAt = now
        retransmitAfter = 3 * limits.initialRoundTrip
    }

    var deadline: Microseconds { owesDatagram ? lastSentAt : min(giveUpAt, lastSentAt + retransmitAfter) }

    /// - Returns: whether the query has failed.
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
