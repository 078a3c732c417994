/// Names a stream on one link to or from a rendezvous node.
package struct RelayStreamID: Hashable, Sendable, Comparable {
    package let number: UInt32

    package init(_ number: UInt32) { self.number = number }

    /// The one stream of a link that was made for it: a guest's.
    package static let guest = RelayStreamID(0)

    package static func < (left: RelayStreamID, right: RelayStreamID) -> Bool { left.number < right.number }
}

/// What the users of a rendezvous node say to it.
package enum RelayRequest: Hashable, Sendable {
    /// Pass on to us, over this link, the streams of those who name the reservations of these labels, and of those named
    /// before: at most ``Limits/relayLabelCount``.
    case reserve([RelayLabel])
    /// Do so no longer for these labels: at most ``Limits/relayLabelCount``.
    case withdraw([RelayLabel])
    /// Do so no longer for any.
    case release
    /// From a stranger, first on its link: open a stream to whoever has this reservation.
    case open(ReservationID)
    case stream(RelayStreamID, RelayStreamFrame)
}

/// What a rendezvous node says to its users.
package enum RelayAnswer: Hashable, Sendable {
    case reserved(RelayGrant)
    case refused(RelayRefusal)
    /// Somebody has opened a stream to this reservation of yours. It has its whole window in both directions.
    case incoming(RelayStreamID, ReservationID)
    case stream(RelayStreamID, RelayStreamFrame)
}

/// What the two ends of a stream say to each other. The rendezvous node passes it on.
package enum RelayStreamFrame: Hashable, Sendable {
    /// 1…``Limits/relayPieceByteCount`` bytes.
    case data([UInt8])
    /// So many more bytes may be sent: 1…``Limits/relayWindow``.
    case credit(Int)
    /// No more bytes come in this direction.
    case end
    /// The stream is over in both directions.
    case close(RelayCloseReason)
}

extension RelayStreamFrame {
    /// Carries less, or lets less come, than is worth a frame of its own.
    package var isSmall: Bool {
        switch self {
        case .data(let bytes): bytes.count < Limits.smallPieceByteCount
        case .credit(let count): count < Limits.smallPieceByteCount
        case .end, .close: true
        }
    }
}

extension RelayAnswer {
    /// Whether it is a small piece of a stream, or the beginning of one.
    var isSmall: Bool {
        switch self {
        case .incoming: true
        case .stream(_, let frame): frame.isSmall
        case .reserved, .refused: false
        }
    }
}

/// Why a stream is over.
package enum RelayCloseReason: UInt32, Hashable, Sendable, CaseIterable {
    /// One end has closed it.
    case closed = 1
    /// Nobody has this reservation, or nobody has it now.
    case unknownReservation = 2
    /// As many streams as there may be, or opened too often.
    case busy = 3
    /// Nothing has come for ``Limits/relayIdle``.
    case idle = 4
    /// One end has sent what it may not.
    case violation = 5
}

/// Why a rendezvous node gives no reservation.
package enum RelayRefusal: UInt32, Hashable, Sendable, Codable, CaseIterable {
    /// It is none.
    case notServing = 1
    /// The asking node is not among its peers.
    case unknownPeer = 2
    /// It serves as many as it may.
    case full = 3
    /// For a reason of a later version.
    case other = 4
}

/// What a rendezvous node grants one of its users.
package struct RelayGrant: Hashable, Sendable, Codable {
    /// Reservations at one time: the first that are named.
    package var reservationCount: Int
    /// Streams to one of them, and to all, at one time.
    package var streamsPerReservation: Int
    package var streamCount: Int
    /// Bytes a second in one direction of a stream.
    package var byteRate: Int

    package init(reservationCount: Int, streamsPerReservation: Int, streamCount: Int, byteRate: Int) {
        self.reservationCount = reservationCount
        self.streamsPerReservation = streamsPerReservation
        self.streamCount = streamCount
        self.byteRate = byteRate
    }
}
