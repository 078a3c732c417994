import Messaging
import Transport

/// Names a relayed stream that ends here: on the link to the rendezvous node, by its number there.
struct RelayEndName: Hashable {
    var link: LinkID
    var stream: RelayStreamID
}

/// One end of a relayed stream: a channel for a link of ours, whose bytes go over a link to a rendezvous node.
final class RelayEnd {
    let channel: StreamChannel
    var machine = RelayStreamStateMachine()

    init(channel: StreamChannel) { self.channel = channel }

    /// Takes what may be said now: bytes as far as the window goes, and the end.
    /// - Parameter maySaySmall: asked for each piece that is small, which waits otherwise and grows.
    /// - Returns: what to say, and whether more waits for leave.
    func output(maySaySmall: () -> Bool) -> (frames: [RelayStreamFrame], waits: Bool) {
        var result: [RelayStreamFrame] = []
        while true {
            let available = channel.outputByteCount
            let room = machine.room(for: available)
            if room > 0, room < Limits.smallPieceByteCount, !maySaySmall() { return (result, true) }
            let bytes = channel.take(machine.take(available))
            guard !bytes.isEmpty else { break }
            result.append(.data(bytes))
        }
        if channel.isDrained, let end = machine.end() { result.append(end) }
        return (result, false)
    }
}

/// What is said in small pieces over one link to a rendezvous node, of all of its streams: less than it takes of us, so
/// that nothing of ours queues up there, whatever those at the other ends make us answer. What waits here grows together.
struct RelaySending {
    private var tokens = TokenBucket(interval: Limits.sentPieceInterval, burst: Limits.sentPieceBurst)
    /// Streams with a small piece, the longest first.
    private var waiting: [RelayStreamID] = []

    /// - Returns: whether a small piece may go now. None does before those that wait.
    mutating func take(now: Messaging.Timestamp) -> Bool { waiting.isEmpty && tokens.take(now: now) == nil }

    /// - Returns: whether it is the first: somebody has to come back for it.
    mutating func wait(_ stream: RelayStreamID) -> Bool {
        guard !waiting.contains(stream) else { return false }
        waiting.append(stream)
        return waiting.count == 1
    }

    /// Those whose turn it is, as far as there is leave for them: the others wait again.
    mutating func next() -> [RelayStreamID] {
        defer { waiting = [] }
        return waiting
    }
}

/// The callbacks of a stream through a rendezvous node.
struct StreamPurpose {
    /// There is a stream, by this link to the rendezvous node. Its other end has yet to answer.
    let opened: (StreamChannel, LinkID) -> Void
    /// The rendezvous node is dialled once more, by a dial of this number.
    let redialled: (UInt64) -> Void
    /// There is no stream.
    let failed: () -> Void
}

/// A dial of a rendezvous node, for one stream through it.
struct RelayGuestDial {
    let reservation: ReservationID
    let purpose: StreamPurpose
    let endpoint: Messaging.Endpoint
    /// It shows a token of any day, for the rendezvous node has not known that of the day.
    let isOfAnyDay: Bool
}

/// A link to a rendezvous node that was made for one stream, under a key of that link's alone.
struct RelayGuestLink {
    let connection: PeerConnection
    /// The transport's number of the dial over its stream; `nil` for a knock.
    var dial: UInt64?
    /// Frames of the rendezvous node that are of no stream.
    var idleFrames = IdleFrames.stranger
    var smallPieces = IdleFrames.member
}
