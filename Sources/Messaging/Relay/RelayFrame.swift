/// A stream on one link to or from a rendezvous node.
package struct RelayStreamID: Hashable, Sendable, Comparable {
    package let number: UInt32

    package init(_ number: UInt32) { self.number = number }

    /// The only stream of a guest's link.
    package static let guest = RelayStreamID(0)

    package static func < (left: RelayStreamID, right: RelayStreamID) -> Bool { left.number < right.number }
}

/// From a client to a rendezvous node.
package enum RelayRequest: Hashable, Sendable {
    /// Forward streams to the reservations of these labels over this link, in addition to earlier labels. At most
    /// ``Limits/relayLabelCount``.
    case reserve([RelayLabel])
    /// At most ``Limits/relayLabelCount``.
    case withdraw([RelayLabel])
    case release
    /// From a stranger, first on its link: open a stream to the holder of this reservation.
    case open(ReservationID)
    case stream(RelayStreamID, RelayStreamFrame)
}

/// From a rendezvous node to a client.
package enum RelayAnswer: Hashable, Sendable {
    case reserved(RelayGrant)
    case refused(RelayRefusal)
    /// A guest has opened a stream to your reservation, with a whole window in both directions.
    case incoming(RelayStreamID, ReservationID)
    case stream(RelayStreamID, RelayStreamFrame)
}

/// Between the two ends of a stream. The rendezvous node forwards it.
package enum RelayStreamFrame: Hashable, Sendable {
    /// 1…``Limits/relayPieceByteCount`` bytes.
    case data([UInt8])
    /// So many more bytes may be sent: 1…``Limits/relayWindow``.
    case credit(Int)
    /// No more bytes follow in this direction.
    case end
    /// The stream is over in both directions.
    case close(RelayCloseReason)
}

extension RelayStreamFrame {
    /// Too small to be worth a frame, so it counts against a rate limit.
    package var isSmall: Bool {
        switch self {
        case .data(let bytes): bytes.count < Limits.smallPieceByteCount
        case .credit(let count): count < Limits.smallPieceByteCount
        case .end, .close: true
        }
    }
}

extension RelayAnswer {
    /// Whether it is a small piece of a stream, or opens one.
    var isSmall: Bool {
        switch self {
        case .incoming: true
        case .stream(_, let frame): frame.isSmall
        case .reserved, .refused: false
        }
    }
}

package enum RelayCloseReason: UInt32, Hashable, Sendable, CaseIterable {
    case closed = 1
    /// No link holds this reservation.
    case unknownReservation = 2
    /// The limit of streams, or of their rate, is reached.
    case busy = 3
    /// No traffic for ``Limits/relayIdle``.
    case idle = 4
    case violation = 5
}

package enum RelayRefusal: UInt32, Hashable, Sendable, Codable, CaseIterable {
    case notServing = 1
    /// The client is not among its peers.
    case unknownPeer = 2
    case full = 3
    /// A reason of a later version.
    case other = 4
}

/// The quota of one client of a rendezvous node.
package struct RelayGrant: Hashable, Sendable, Codable {
    /// Most reservations at one time: the first that are named.
    package var reservationCount: Int
    /// Most streams at one time, to one reservation and to all.
    package var streamsPerReservation: Int
    package var streamCount: Int
    /// Bytes a second in one direction of a stream.
    package var byteRate: Int

    package init(reservationCount: Int, streamsPerReservation: Int, streamCount: Int, byteRate: Int) {
        (self.reservationCount, self.streamsPerReservation) = (reservationCount, streamsPerReservation)
        (self.streamCount, self.byteRate) = (streamCount, byteRate)
    }
}
