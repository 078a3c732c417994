import Messaging
import Transport

/// Identifies a relayed stream that ends here: by the link to the rendezvous node, and its number there.
struct RelayEndName: Hashable {
    var link: LinkID
    var stream: RelayStreamID
}

/// One end of a relayed stream: a channel for a link, carried over a link to a rendezvous node.
final class RelayEnd {
    let channel: StreamChannel
    var machine = RelayStreamStateMachine()

    init(channel: StreamChannel) { self.channel = channel }

    /// Takes the frames that may be sent: bytes within the window, and the end.
    /// - Parameter maySaySmall: asked before each small piece; a refused piece waits and grows.
    /// - Returns: the frames, and whether a piece waits.
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

/// Rate limit for small pieces on one link to a rendezvous node, over all its streams. Stricter than the node's own
/// limit, so that we never queue there, whatever remote peers make us answer. Waiting pieces grow together.
struct RelaySending {
    private var tokens = TokenBucket(Limits.sentPieceRate)
    /// Streams with a small piece, longest waiting first.
    private var waiting: [RelayStreamID] = []

    /// - Returns: whether a small piece may be sent now; waiting streams go first.
    mutating func take(now: Messaging.Timestamp) -> Bool { waiting.isEmpty && tokens.take(now: now) == nil }

    /// - Returns: whether the queue was empty, so that a timer must be set.
    mutating func wait(_ stream: RelayStreamID) -> Bool {
        guard !waiting.contains(stream) else { return false }
        waiting.append(stream)
        return waiting.count == 1
    }

    /// Takes all waiting streams; the caller queues again those beyond the limit.
    mutating func next() -> [RelayStreamID] {
        defer { waiting = [] }
        return waiting
    }
}

/// A link to a rendezvous node for one stream, under a one-time key.
struct RelayGuestLink {
    let connection: PeerConnection
    /// The transport's number of the dial over its stream; `nil` for a knock.
    var dial: UInt64?
    var smallPieces = IdleFrames.member
}
