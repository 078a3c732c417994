import Crypto
import Messaging
import Transport
import Wire

/// One of our inboxes and another one.
struct LinkName: Hashable {
    var client: ClientID
    var remote: PublicKey
}

final class ActiveLink {
    let id: LinkID
    let inbox: Inbox
    let connection: PeerConnection
    var pauses = ReadingPauses()
    /// Nothing has come over it yet.
    var isSilent = true
    /// What has been said of contents since the last flush: it leaves in one frame, ahead of every other but contents.
    var said = Acknowledgement()
    /// Contents that leave with the next flush, ahead of every other frame.
    var leaving: [AgedContent] = []
    /// Pieces of relayed streams that are not there.
    var lostPieces = IdleFrames.relayed
    /// The node stood still: what comes over the link may have lain in the kernel since then, until this ping is answered.
    private(set) var held: (since: Timestamp, ping: UInt64)?

    var client: ClientID { inbox.client }
    var remote: PublicKey { connection.peer.publicKey }

    init(_ connection: PeerConnection, inbox: Inbox) {
        id = LinkID(connection.id)
        self.inbox = inbox
        self.connection = connection
    }

    /// - Returns: the ping whose answer comes after all that lies in the kernel now.
    func stoodStill(since: Timestamp) -> UInt64 {
        let ping = UInt64.random(in: 0...UInt64.max)
        held = (min(held?.since ?? since, since), ping)
        return ping
    }

    /// The frame with the time that its contents may have lain in the kernel as a part of their age.
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

/// The open links of a node's inboxes, by their ids; each inbox has its own, too. On the node's loop alone.
final class LinkTable {
    private var links: [LinkID: ActiveLink] = [:]

    subscript(id: LinkID) -> ActiveLink? { links[id] }

    var count: Int { links.count }
    var isEmpty: Bool { links.isEmpty }

    /// In the order of their ids.
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
