extension Limits {
    // MARK: Relay, specification: peers rely on these.

    /// Most bytes of one piece of a relayed stream.
    package static let relayPieceByteCount = 16_384
    /// Bytes of one direction of a relayed stream that may be on their way, from the sender to the receiver's end.
    package static let relayWindow = 65_536
    /// Most endpoints at one rendezvous node that a node advertises, and at all of them.
    package static let relayEndpointCount = 2
    /// Most labels of one request.
    package static let relayLabelCount = 256

    // MARK: Relay, implementation: may be tuned.

    /// Nodes that a rendezvous node serves at one time, unless its configuration says otherwise.
    package static let relayUserCount = 128
    /// Reservations of one of them: one for each of its inboxes.
    package static let reservationsPerUser = 1_024
    /// Streams to one reservation, to all of one node, and to all nodes. A conversation has 31 other members.
    package static let streamsPerReservation = 32
    package static let streamsPerUser = 128
    package static let relayedStreamCount = 512
    /// Labels that one node may name: as many at once, then one each interval; and each request counts as one more. Beyond
    /// it, its link is left unread.
    package static let relayLabelBurst = 8_192
    package static let relayLabelInterval: Milliseconds = 4
    /// Bytes a second in one direction of a stream, and of all streams together.
    package static let relayedByteRate = 1 << 20
    package static let relayedByteRateTotal = 16 << 20
    /// What a stream may be ahead of its rate, and all of them.
    package static let relayBurst: Milliseconds = 50
    /// A stream over which nothing has come for this long is ended.
    package static let relayIdle: Milliseconds = 2 * .minute
    /// Streams that are opened to one reservation, and by those behind one address prefix: bursts of so many, then one each
    /// interval; and to all reservations of one node.
    package static let relayOpenBurst = 32
    package static let relayOpenInterval: Milliseconds = 2 * .second
    package static let relayUserOpenBurst = 128
    package static let relayUserOpenInterval: Milliseconds = 500
    /// Pieces and credits of fewer bytes, and what is dropped, are counted as a member's frames that change nothing are, at
    /// half their rate: of a served node's link, and of all its guests together. Of all streams eight may come in a ms.
    package static let smallPieceByteCount = 1_024
    package static let relayedFrameInterval: Milliseconds = 2
    package static let relayedFrameTotalGroup = 8
    /// Small pieces that we say over one link to a rendezvous node: half of what it takes, so that none waits there.
    package static let sentPieceBurst = 128
    package static let sentPieceInterval: Milliseconds = 1
    /// Address prefixes that are counted.
    package static let relaySourceCount = 1_024
    /// A served node that has said nothing for this long is gone. It asks after ``keepaliveInterval`` of silence.
    package static let reservationSilence: Milliseconds = 90 * .second
    /// Rendezvous nodes that a node uses at one time.
    package static let rendezvousCount = 4
    /// How long a rendezvous node may take to answer.
    package static let reservationPatience: Milliseconds = 10 * .second
    /// A rendezvous node that has refused is asked again after this long.
    package static let reservationRetry: Milliseconds = 5 * .minute
    /// A reservation whose link is lost is advertised for this long: it is the same when the link is back.
    package static let reservationGrace: Milliseconds = 10 * .minute
    /// An inbox that has lost a member changes its reservation no more often than this: other members take a new
    /// description each ``profileInterval``.
    package static let relayChangeInterval: Milliseconds = 10 * .second
    /// The reservation of before is kept for members that have not heard of the new one, for this long at most.
    package static let relayRetirement: Milliseconds = .day
    /// Earlier reservations that one inbox keeps, at most.
    package static let relayRetiredCount = 8
    /// Direct ways have this long before a relay is asked.
    package static let relayHeadStart: Milliseconds = .second
    /// While a link is relayed a direct way is looked for after this long, and at most after that.
    package static let upgradeFirst: Milliseconds = 2 * .second
    package static let upgradeLongest: Milliseconds = 15 * .minute
}
