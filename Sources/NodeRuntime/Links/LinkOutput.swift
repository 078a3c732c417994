import Crypto
import Logging
import Messaging
import NIOCore
import Transport
import Wire

/// Frames out, link closes, and backpressure on the links of the node's inboxes.
final class LinkOutput: CorePart {
    let core: ProtocolCore
    private let pings: PendingPings
    /// Links with frames that the transport has not been told to write.
    private var touched: Set<LinkID> = []
    private var closingGuests = ClosingGuests()
    /// Inboxes whose acknowledgements are not in the log yet.
    private var acknowledged: [Inbox] = []

    init(_ core: ProtocolCore, _ pings: PendingPings) {
        self.core = core
        self.pings = pings
    }

    // MARK: Frames

    func transmit(_ frame: Frame, on id: LinkID) {
        guard let link = links[id] else { return }
        switch frame {
        case .acknowledgement(let said):
            touched.insert(id)
            if link.said.merge(said) { return }
            acknowledge(on: link)
            link.said = said
            return
        case .contents: sendContents(on: link)
        // What a receipt says of a file counts behind the file's acknowledgement only, and nothing follows a `closing`.
        default:
            sendContents(on: link)
            acknowledge(on: link)
        }
        send(frame, on: link)
    }

    /// The contents leave with the next flush, or before the next frame: in as few frames as they fit into, whatever
    /// requests they came with.
    func transmit(_ contents: [AgedContent], on id: LinkID) {
        guard let link = links[id] else { return }
        touched.insert(id)
        link.leaving += contents
    }

    private func sendContents(on link: ActiveLink) {
        guard !link.leaving.isEmpty else { return }
        let contents = link.leaving
        link.leaving = []
        for frame in ContentsCodec.frames(of: contents) { try? link.connection.send(frame) }
    }

    /// Sends what was said of contents since the last flush.
    private func acknowledge(on link: ActiveLink) {
        guard !link.said.isEmpty else { return }
        let said = link.said
        link.said = Acknowledgement()
        send(.acknowledgement(said), on: link)
    }

    private func send(_ frame: Frame, on link: ActiveLink) {
        count(frame, of: link.inbox, isSent: true)
        if case .ping(let nonce) = frame { pings.sent(nonce, at: loop.now) }
        // A link that cannot take more is closed by the transport; the outbox sends again on the next.
        try? link.connection.send(FrameCodec.encode(frame))
        touched.insert(link.id)
    }

    /// Whether the transport has all frames.
    var isFlushed: Bool { touched.isEmpty }

    func flush() {
        for id in touched.sorted() {
            guard let link = links[id] else { continue }
            sendContents(on: link)
            acknowledge(on: link)
            link.connection.flush()
        }
        touched = []
        noteAcknowledgements()
    }

    // MARK: Ends

    func close(_ link: LinkID) {
        guard let open = links[link] else { return }
        sendContents(on: open)
        acknowledge(on: open)
        let isGuest = core.machine.isGuest(link)
        open.connection.close()
        // A peer that does not close its side keeps a descriptor of ours for seconds: a member may, a flood of guests may not.
        guard isGuest, let victim = closingGuests.add(link) else { return }
        links[victim]?.connection.abort()
    }

    /// Cuts the links of one of our inboxes to another one.
    func abort(_ name: LinkName) {
        for link in inboxes[name.client]?.links ?? [] where link.remote == name.remote { link.connection.abort() }
    }

    // MARK: Backpressure

    /// The sender is too fast: its link is not read for a while, so that the backlog stays at the sender.
    func pauseForHaste(_ id: LinkID, _ time: Milliseconds) {
        pauseReading(id, .haste)
        loop.assumeIsolated().scheduleTask(in: .milliseconds(time)) { self.resumeReading(id, .haste) }
    }

    /// The disk is slower than the peer: read on when it has caught up.
    func pause(_ inbox: Inbox) { for link in inbox.links { pauseReading(link.id, .disk) } }

    func resume(_ inbox: Inbox) { for link in inbox.links { resumeReading(link.id, .disk) } }

    private func pauseReading(_ id: LinkID, _ reason: ReadingPauses.Reason) {
        links[id]?.pauses.add(reason)
        links[id]?.connection.pauseReading()
    }

    private func resumeReading(_ id: LinkID, _ reason: ReadingPauses.Reason) {
        guard links[id]?.pauses.remove(reason) ?? false else { return }
        links[id]?.connection.resumeReading()
    }

    // MARK: The log

    /// Acknowledgements that have come or gone, for the line about the batch.
    func count(_ frame: Frame, of inbox: Inbox, isSent: Bool) {
        guard case .acknowledgement(let said) = frame, log.logLevel <= .debug else { return }
        if inbox.acknowledgements == AcknowledgementCounts() { acknowledged.append(inbox) }
        if isSent { inbox.acknowledgements.sent += said.count } else { inbox.acknowledgements.received += said.count }
    }

    /// The frames of a batch have been handled.
    private func noteAcknowledgements() {
        guard !acknowledged.isEmpty else { return }
        let counted = acknowledged
        acknowledged = []
        for inbox in counted.sorted(by: { $0.client < $1.client }) {
            let counts = inbox.acknowledgements
            inbox.acknowledgements = AcknowledgementCounts()
            note(.acknowledged(inbox.client, counts))
        }
    }
}
