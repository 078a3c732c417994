import Cryptography
import DequeModule
import Logging
import Messaging
import NIOCore
import Transport

/// Outgoing frames, link closes and backpressure of the inboxes' links.
final class LinkOutput: Part {
    private var touched: Set<LinkID> = []
    private var closingGuests = ClosingGuests()
    private var acknowledged: [Inbox] = []

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
        // A file's receipt counts only after its acknowledgement, and `closing` is the last frame.
        default:
            sendContents(on: link)
            acknowledge(on: link)
        }
        send(frame, on: link)
    }

    /// Queues contents until the next flush or frame. They are sent in as few frames as possible, across requests.
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

    /// Sends the acknowledgements queued since the last flush.
    private func acknowledge(on link: ActiveLink) {
        guard !link.said.isEmpty else { return }
        let said = link.said
        link.said = Acknowledgement()
        send(.acknowledgement(said), on: link)
    }

    private func send(_ frame: Frame, on link: ActiveLink) {
        count(frame, of: link.inbox, isSent: true)
        if case .ping(let nonce) = frame { shell.book.pings.sent(nonce, at: loop.now) }
        // The transport closes a link that cannot take more; the outbox resends on the next link.
        try? link.connection.send(FrameCodec.encode(frame))
        touched.insert(link.id)
    }

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

    func close(_ link: LinkID) {
        guard let open = links[link] else { return }
        sendContents(on: open)
        acknowledge(on: open)
        let isGuest = core.machine.isGuest(link)
        open.connection.close()
        // A peer that does not close its side holds a file descriptor of ours for seconds. Members may do so; a flood
        // of guests may not.
        guard isGuest, let victim = closingGuests.add(link) else { return }
        links[victim]?.connection.abort()
    }

    func abort(_ name: LinkName) {
        for link in inboxes[name.client]?.links ?? [] where link.remote == name.remote { link.connection.abort() }
    }

    /// Rate limit: pauses reading from a peer that sends too fast, so that the backlog stays with the peer.
    func pauseForHaste(_ id: LinkID, _ time: Milliseconds) {
        pauseReading(id, .haste)
        after(time) { self.resumeReading(id, .haste) }
    }

    /// The disk is slower than the peer: pauses reading until pending commits are done.
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

    /// Counts acknowledgements for the log line of the batch.
    func count(_ frame: Frame, of inbox: Inbox, isSent: Bool) {
        guard case .acknowledgement(let said) = frame, log.logLevel <= .debug else { return }
        if inbox.acknowledgements == AcknowledgementCounts() { acknowledged.append(inbox) }
        if isSent { inbox.acknowledgements.sent += said.count } else { inbox.acknowledgements.received += said.count }
    }

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

/// Guest links that we closed and the peer may keep open: the last ``Limits/closingGuestCount``.
struct ClosingGuests {
    private var links: Deque<LinkID> = []

    /// - Returns: the oldest link, to abort at once, when the limit is exceeded.
    mutating func add(_ link: LinkID) -> LinkID? {
        links.append(link)
        return links.count > Limits.closingGuestCount ? links.removeFirst() : nil
    }
}
