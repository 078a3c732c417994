import Cryptography
import Messaging
import NIOCore
import Transport

/// Our links to contact inboxes of mailboxes, and to rendezvous nodes for one stream. Each uses a one-time key: the
/// other node learns no inbox of ours, and cannot connect two links. The core does not see these links.
final class AnonymousLinks: Part {
    /// Callbacks. `opened` and `ended` are called at most once, and only after ``open(_:for:)`` has returned.
    struct Purpose {
        /// Closes a link without an answer for this long; `nil`: the owner checks.
        var patience: Milliseconds? = AnonymousLinks.patience
        let opened: (LinkID) -> Void
        /// `nil` on a link to a rendezvous node.
        var answered: ((MailboxAnswer, LinkID) -> Void)?
        var heard: (LinkID) -> Void = { _ in }
        /// `nil` on a link to a mailbox.
        var streamed: ((RelayStreamFrame, LinkID) -> Void)?
        /// The dial has failed, or the link has closed.
        let ended: () -> Void
    }

    struct Remote {
        let endpoints: [Messaging.Endpoint]
        let key: PublicKey
        let routingSecret: [UInt8]
    }

    /// Covers a commit of the mailbox, and a full slot on a slow link.
    private static let patience: Milliseconds = 30 * .second

    /// A dial. If the daily token was unknown, a second one shows the any-day token.
    final class Dial: DialOwner {
        private weak var links: AnonymousLinks?
        let remote: Remote
        let purpose: Purpose
        private let secret: RoutingSecret
        /// The transport's; `nil` once the dial has ended.
        var number: UInt64?
        var key: PublicKey?
        var isOfAnyDay = false

        init(_ links: AnonymousLinks, _ remote: Remote, _ purpose: Purpose) {
            (self.links, self.remote, self.purpose) = (links, remote, purpose)
            secret = .derive(card: remote.routingSecret)
        }

        /// Without a callback; an open link is not affected.
        func cancel() {
            guard let number else { return }
            self.number = nil
            links?.shell.listening.transport?.cancelDial(number)
        }

        func token() -> RoutingToken? { links?.shell.routes.sharedToken(secret, isOfAnyDay: isOfAnyDay) }
        func opened(_ connection: PeerConnection) { links?.opened(self, connection) ?? connection.abort() }
        func failed(_: DialFailure, _ hearing: LinkTransport.TokenHearing) { links?.failed(self, hearing) }
    }

    private struct Link {
        let connection: PeerConnection
        let key: PublicKey
        let purpose: Purpose
        var idleFrames = IdleFrames.stranger
        var heardAt: Messaging.Timestamp
    }

    private var linked: [LinkID: Link] = [:]

    /// - Returns: `nil` if no dial was started, and no callback follows.
    @discardableResult func open(_ remote: Remote, for purpose: Purpose) -> Dial? {
        let dial = Dial(self, remote, purpose)
        return start(dial) ? dial : nil
    }

    private func start(_ dial: Dial) -> Bool {
        let remote = dial.remote
        guard let transport = shell.listening.transport, !remote.endpoints.isEmpty else { return false }
        let identity = IdentityKey(SecretKey.generate())
        dial.key = identity.publicKey
        dial.number = transport.dial(
            LinkTransport.Dial(
                endpoints: remote.endpoints.map { Transport.Endpoint($0) }, identity: identity, remote: remote.key,
                owner: dial))
        return true
    }

    private func failed(_ dial: Dial, _ hearing: LinkTransport.TokenHearing) {
        guard !isStopped, dial.number != nil else { return }
        dial.number = nil
        if hearing != .none, !dial.isOfAnyDay {
            dial.isOfAnyDay = true
            if start(dial) { return }
        }
        dial.purpose.ended()
    }

    private func opened(_ dial: Dial, _ connection: PeerConnection) {
        guard dial.number != nil, let key = dial.key else { return connection.abort() }
        dial.number = nil
        let id = LinkID(connection.id)
        linked[id] = Link(connection: connection, key: key, purpose: dial.purpose, heardAt: now)
        connection.welcome()
        watch(id)
        dial.purpose.opened(id)
        connection.flush()
    }

    /// Aborts a link without an answer.
    private func watch(_ id: LinkID) {
        guard let patience = linked[id]?.purpose.patience else { return }
        loop.assumeIsolated().scheduleTask(in: .milliseconds(patience)) { [weak self] in
            guard let self, let link = linked[id] else { return }
            if now - link.heardAt >= patience { link.connection.abort() } else { watch(id) }
        }
    }

    func connection(_ link: LinkID) -> PeerConnection? { linked[link]?.connection }

    func key(of link: LinkID) -> PublicKey? { linked[link]?.key }

    func say(_ request: MailboxRequest, on link: LinkID) { send(.mailboxRequest(request), on: link) }

    func send(_ frame: Frame, on link: LinkID) {
        guard let connection = linked[link]?.connection else { return }
        do { try connection.send(FrameCodec.encode(frame)) } catch { return connection.abort() }
        connection.flush()
    }

    func receive(_ bytes: [UInt8], on connection: PeerConnection) {
        let id = LinkID(connection.id)
        guard let purpose = linked[id]?.purpose else { return }
        switch (try? FrameCodec.decode(bytes), purpose.answered, purpose.streamed) {
        case (.mailboxAnswer(let answer), let answered?, _):
            // Pings do not count: a mailbox that only pings would block an order forever.
            linked[id]?.heardAt = now
            answered(answer, id)
        case (.pong, .some, _):
            noteIdleFrame(on: id)
            purpose.heard(id)
        case (.relayAnswer(.stream(.guest, let frame)), _, let streamed?): streamed(frame, id)
        case (.ping(let nonce), _, _):
            noteIdleFrame(on: id)
            send(.pong(nonce), on: id)
        case (.closing, _, _): connection.close()
        case (.unknown, _, _): noteIdleFrame(on: id)
        default: connection.abort(.protocolViolation)
        }
    }

    /// The core's limits apply here too.
    private func noteIdleFrame(on id: LinkID) {
        if let wait = linked[id]?.idleFrames.note(now: now) { pause(id, wait) }
    }

    func pause(_ id: LinkID, _ time: Milliseconds) {
        linked[id]?.connection.pauseReading()
        after(time) { self.linked[id]?.connection.resumeReading() }
    }

    func close(_ link: LinkID) { linked[link]?.connection.close() }

    func abort(_ link: LinkID) { linked[link]?.connection.abort(.protocolViolation) }

    func abortLinks(where isMeant: (PeerConnection) -> Bool) {
        for id in linked.keys.sorted() {
            if let connection = linked[id]?.connection, isMeant(connection) { connection.abort() }
        }
    }

    func linkClosed(_ link: LinkID) { linked.removeValue(forKey: link)?.purpose.ended() }
}
