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

/// A dial of a rendezvous node, for one stream through it.
struct RelayGuestDial {
    let reservation: ReservationID
    let purpose: Purpose
    let endpoint: Messaging.Endpoint
    /// It shows a token of any day, for the rendezvous node has not known that of the day.
    let isOfAnyDay: Bool

    /// What goes over the stream.
    enum Purpose {
        /// A link of this dial's.
        case dial(UInt64)
        case knock(PendingKnock)
    }
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

/// One dial of the core's, by all ways that there are: directly, and, when that does not come to a link at once, through
/// rendezvous nodes.
struct DialGroup {
    var client: ClientID
    var dial: NodeAction.Dial
    /// The transport's numbers of what is under way.
    var numbers: Set<UInt64> = []
    /// The dial of a rendezvous node that is under way.
    var guestDial: UInt64?
    /// Relays that were not tried yet.
    var relays: [Messaging.Endpoint] = []
    /// Which kind of token it shows; see ``Node/goOn(_:)``.
    var round = Round.first
    /// What is known of our tokens: some node answered and did not know one, or somebody was silent, maybe because of one.
    var hearing = LinkTransport.TokenHearing.none

    enum Round {
        /// A member's counter, or the day's token of a shared secret.
        case first
        /// The day's token of a member, or one of any day of a shared secret.
        case second
    }

    init(client: ClientID, dial: NodeAction.Dial) {
        self.client = client
        self.dial = dial
    }

    mutating func hear(_ hearing: LinkTransport.TokenHearing) {
        if self.hearing != .unknown, hearing != .none { self.hearing = hearing }
    }

    /// Nothing is under way.
    var isIdle: Bool { numbers.isEmpty && guestDial == nil }
}
