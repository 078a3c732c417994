import Cryptography
import Messaging
import NIOCore
import Transport

struct LinkName: Hashable {
    var client: ClientID
    var remote: PublicKey
}

final class ActiveLink {
    let id: LinkID
    let inbox: Inbox
    let connection: PeerConnection
    var pauses = ReadingPauses()
    /// No frame has arrived yet.
    var isSilent = true
    /// Acknowledgements since the last flush; sent in one frame after the contents and before other frames.
    var said = Acknowledgement()
    /// Contents to send at the next flush, before all other frames.
    var leaving: [AgedContent] = []
    /// Counts pieces of unknown relayed streams.
    var lostPieces = IdleFrames.relayed
    /// After a suspension: received contents may have been in the kernel's buffer since then, until this ping is
    /// answered.
    private(set) var held: (since: Timestamp, ping: UInt64)?

    var client: ClientID { inbox.client }
    var remote: PublicKey { connection.peer.publicKey }

    init(_ connection: PeerConnection, inbox: Inbox) {
        id = LinkID(connection.id)
        self.inbox = inbox
        self.connection = connection
    }

    /// - Returns: a ping whose answer follows all bytes that are in the kernel's buffer now.
    func stoodStill(since: Timestamp) -> UInt64 {
        let ping = UInt64.random(in: 0...UInt64.max)
        held = (min(held?.since ?? since, since), ping)
        return ping
    }

    /// The frame with the possible time in the kernel's buffer added to its contents' ages.
    func aged(_ frame: Frame, now: Timestamp) -> Frame {
        guard let held else { return frame }
        switch frame {
        case .pong(held.ping):
            self.held = nil
            return frame
        case .contents(let contents):
            return .contents(
                contents.map { content in
                    let age = max(0, content.age).addingReportingOverflow(now - held.since)
                    return AgedContent(content.content, age: age.overflow ? .max : age.partialValue)
                })
        default: return frame
        }
    }
}

/// The open links, by id; each inbox also lists its own. On the node's loop alone.
final class LinkTable {
    private var links: [LinkID: ActiveLink] = [:]

    subscript(id: LinkID) -> ActiveLink? { links[id] }

    var count: Int { links.count }
    var isEmpty: Bool { links.isEmpty }

    var all: [ActiveLink] { links.values.sorted { $0.id < $1.id } }

    func add(_ link: ActiveLink) {
        links[link.id] = link
        link.inbox.add(link)
    }

    func remove(_ link: ActiveLink) {
        links[link.id] = nil
        link.inbox.remove(link)
    }
}

/// Why reading from a link is paused. Reading resumes when no reason is left: disk and rate limit do not end each
/// other's pauses.
struct ReadingPauses {
    enum Reason {
        /// Received messages wait for the disk.
        case disk
        /// The peer exceeded its rate limit.
        case haste
    }

    private var reasons: Set<Reason> = []

    mutating func add(_ reason: Reason) { reasons.insert(reason) }

    /// - Returns: whether this was the last reason, so that reading resumes.
    mutating func remove(_ reason: Reason) -> Bool { reasons.remove(reason) != nil && reasons.isEmpty }
}

package struct LinkPath: Sendable {
    package enum Kind: String, Sendable {
        /// On a network shared with this machine.
        case lan
        case direct
        /// Through a rendezvous node, whose address is given.
        case relayed
        /// By NAT hole punching.
        case punched
    }

    package var kind: Kind
    package var carrier: LinkCarrier
    package var address: SocketAddress
    package var openedAt: Messaging.Timestamp
    /// Measured by the transport; `nil` before the first measurement.
    package var rttMilliseconds: Double?
    /// Sealed bytes since then.
    package var bytesIn: UInt64
    package var bytesOut: UInt64
    /// The handshake was hybrid.
    package var isPostQuantum: Bool

    package var transport: String { "\(carrier)" }
}

extension LinkPath {
    /// - Parameter now: the time of the node's clock.
    /// - Returns: `nil` for a link without a known address.
    init?(of connection: PeerConnection, addresses: OwnAddresses, now: Messaging.Timestamp, loop: any EventLoop) {
        guard let address = connection.remoteAddress else { return nil }
        let kind: Kind =
            connection.isRelayed
            ? .relayed : addresses.isNeighbour(address) ? .lan : connection.isPunched ? .punched : .direct
        self.init(
            kind: kind, carrier: connection.carrier, address: address,
            openedAt: now - (loop.now - connection.openedAt).nanoseconds / 1_000_000,
            rttMilliseconds: connection.roundTrip.map { Double($0.nanoseconds) / 1_000_000 },
            bytesIn: connection.bytesIn, bytesOut: connection.bytesOut, isPostQuantum: connection.peer.isPostQuantum)
    }
}
