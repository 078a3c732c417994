import Crypto
import Messaging
import NIOCore
import Transport

/// Our links to mailboxes' contact inboxes. Each uses a one-time key, so that the mailbox learns no inbox of ours.
final class MailboxLinks: Part {
    /// Callbacks; each except `answered` and `heard` is called at most once.
    struct Purpose {
        /// Closes a link without an answer for this long; `nil`: the owner checks.
        var patience: Milliseconds? = MailboxLinks.patience
        let opened: (LinkID) -> Void
        let answered: (MailboxAnswer, LinkID) -> Void
        /// A pong has arrived.
        let heard: (LinkID) -> Void
        let ended: () -> Void
    }

    struct Remote {
        let endpoints: [Messaging.Endpoint]
        let key: PublicKey
        let routingSecret: [UInt8]
    }

    /// Covers a commit of the mailbox, and a full slot on a slow link.
    private static let patience: Milliseconds = 30 * .second

    private struct Dial {
        let remote: Remote
        let purpose: Purpose
        let key: PublicKey
        /// Shows the any-day token, after the daily token was unknown.
        let isOfAnyDay: Bool
    }

    private struct Link {
        let connection: PeerConnection
        let key: PublicKey
        let purpose: Purpose
        var idleFrames = IdleFrames.stranger
        var heardAt: Messaging.Timestamp
    }

    private var dials: [UInt64: Dial] = [:]
    private var linked: [LinkID: Link] = [:]

    // MARK: Dials

    /// - Returns: whether the dial was started; if not, no callback follows.
    @discardableResult func open(_ remote: Remote, for purpose: Purpose, isOfAnyDay: Bool = false) -> Bool {
        guard let transport = shell.listening.transport, !remote.endpoints.isEmpty else { return false }
        let secret = RoutingSecret.derive(shared: SecretBytes(copying: remote.routingSecret), purpose: "card")
        let identity = IdentityKey(SecretKey.generate())
        let number = transport.dial(
            LinkTransport.Dial(
                endpoints: remote.endpoints.map { Transport.Endpoint(host: $0.host, port: Int($0.port)) },
                token: { [routes = shell.routes] in routes.sharedToken(secret, isOfAnyDay: isOfAnyDay) },
                identity: identity, remote: remote.key))
        dials[number] = Dial(remote: remote, purpose: purpose, key: identity.publicKey, isOfAnyDay: isOfAnyDay)
        return true
    }

    /// - Returns: whether this was a dial to a mailbox.
    func dialEnded(_ number: UInt64, _ hearing: LinkTransport.TokenHearing) -> Bool {
        guard let dial = dials.removeValue(forKey: number) else { return false }
        if hearing != .none, !dial.isOfAnyDay, open(dial.remote, for: dial.purpose, isOfAnyDay: true) { return true }
        dial.purpose.ended()
        return true
    }

    /// - Returns: whether the link is one to a mailbox.
    func linkOpened(_ connection: PeerConnection) -> Bool {
        guard let dial = dials.removeValue(forKey: connection.route) else { return false }
        let id = LinkID(connection.id)
        linked[id] = Link(connection: connection, key: dial.key, purpose: dial.purpose, heardAt: now)
        connection.welcome()
        watch(id)
        dial.purpose.opened(id)
        connection.flush()
        return true
    }

    /// Aborts the link of a mailbox that does not answer.
    private func watch(_ id: LinkID) {
        guard let patience = linked[id]?.purpose.patience else { return }
        loop.assumeIsolated().scheduleTask(in: .milliseconds(patience)) { [weak self] in
            guard let self, let link = linked[id] else { return }
            if now - link.heardAt >= patience { link.connection.abort() } else { watch(id) }
        }
    }

    // MARK: Frames

    func key(of link: LinkID) -> PublicKey? { linked[link]?.key }

    func say(_ request: MailboxRequest, on link: LinkID) { send(.mailboxRequest(request), on: link) }

    func ping(_ link: LinkID) { send(.ping(0), on: link) }

    private func send(_ frame: Frame, on link: LinkID) {
        guard let connection = linked[link]?.connection else { return }
        do { try connection.send(FrameCodec.encode(frame)) } catch { return connection.abort() }
        connection.flush()
    }

    func receive(_ bytes: [UInt8], on connection: PeerConnection) -> Bool {
        let id = LinkID(connection.id)
        guard let link = linked[id] else { return false }
        switch try? FrameCodec.decode(bytes) {
        case .mailboxAnswer(let answer):
            // Pings do not count: a mailbox that only pings would block an order forever.
            linked[id]?.heardAt = now
            link.purpose.answered(answer, id)
        case .pong:
            noteIdleFrame(on: id)
            link.purpose.heard(id)
        case .ping(let nonce):
            noteIdleFrame(on: id)
            send(.pong(nonce), on: id)
        case .closing: connection.close()
        case .unknown: noteIdleFrame(on: id)
        default: connection.abort(.protocolViolation)
        }
        return true
    }

    private func noteIdleFrame(on id: LinkID) {
        guard let wait = linked[id]?.idleFrames.note(now: now) else { return }
        linked[id]?.connection.pauseReading()
        after(wait) { self.linked[id]?.connection.resumeReading() }
    }

    // MARK: Ends

    func close(_ link: LinkID) { linked[link]?.connection.close() }

    /// Closes the link after a protocol violation.
    func abort(_ link: LinkID) { linked[link]?.connection.abort(.protocolViolation) }

    func linkClosed(_ link: LinkID) -> Bool {
        guard let closed = linked.removeValue(forKey: link) else { return false }
        closed.purpose.ended()
        return true
    }
}
