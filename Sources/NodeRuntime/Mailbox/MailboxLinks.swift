import Crypto
import Messaging
import NIOCore
import Transport
import Wire

/// Links of ours to mailboxes: each to a mailbox's contact inbox, under a key of that link alone, so that the mailbox learns
/// no inbox of ours from it.
final class MailboxLinks: CorePart {
    /// What a link is for. Each is called at most once but for `answered`.
    struct Purpose {
        /// A link over which nothing has come for this long is cut; `nil`: its user asks by itself.
        var patience: Milliseconds? = MailboxLinks.patience
        let opened: (LinkID) -> Void
        let answered: (MailboxAnswer, LinkID) -> Void
        /// An answer to a ping.
        let heard: (LinkID) -> Void
        /// It is closed, or was never opened.
        let ended: () -> Void
    }

    /// Where a mailbox is.
    struct Remote {
        let endpoints: [Messaging.Endpoint]
        let key: PublicKey
        let routingSecret: [UInt8]
    }

    /// An answer takes a commit of the mailbox, and a full slot its time on a slow link.
    private static let patience: Milliseconds = 30 * .second

    private struct Dial {
        let remote: Remote
        let purpose: Purpose
        let key: PublicKey
        /// It shows a token of any day: the mailbox has not known that of the day.
        let isOfAnyDay: Bool
    }

    private struct Link {
        let connection: PeerConnection
        let key: PublicKey
        let purpose: Purpose
        var idleFrames = IdleFrames.stranger
        var heardAt: Messaging.Timestamp
    }

    let core: ProtocolCore
    private let routes: Routes
    private let listening: Listening
    private var dials: [UInt64: Dial] = [:]
    private var links: [LinkID: Link] = [:]

    init(_ core: ProtocolCore, _ routes: Routes, _ listening: Listening) {
        self.core = core
        self.routes = routes
        self.listening = listening
    }

    // MARK: Dials

    /// - Returns: whether it is dialled; otherwise nothing is called.
    @discardableResult func open(_ remote: Remote, for purpose: Purpose, isOfAnyDay: Bool = false) -> Bool {
        guard let transport = listening.transport, !remote.endpoints.isEmpty else { return false }
        let secret = RoutingSecret.derive(shared: SecretBytes(copying: remote.routingSecret), purpose: "card")
        let identity = IdentityKey(SecretKey.generate())
        let number = transport.dial(
            LinkTransport.Dial(
                endpoints: remote.endpoints.map { Transport.Endpoint(host: $0.host, port: Int($0.port)) },
                token: { [routes] in routes.sharedToken(secret, isOfAnyDay: isOfAnyDay) }, identity: identity,
                remote: remote.key))
        dials[number] = Dial(remote: remote, purpose: purpose, key: identity.publicKey, isOfAnyDay: isOfAnyDay)
        return true
    }

    /// - Returns: whether it was a dial of a mailbox.
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
        links[id] = Link(connection: connection, key: dial.key, purpose: dial.purpose, heardAt: now)
        connection.welcome()
        watch(id)
        dial.purpose.opened(id)
        connection.flush()
        return true
    }

    /// A mailbox that does not answer holds nothing up.
    private func watch(_ id: LinkID) {
        guard let patience = links[id]?.purpose.patience else { return }
        loop.assumeIsolated().scheduleTask(in: .milliseconds(patience)) { [weak self] in
            guard let self, let link = links[id] else { return }
            if now - link.heardAt >= patience { link.connection.abort() } else { watch(id) }
        }
    }

    // MARK: Frames

    /// Our key of this link.
    func key(of link: LinkID) -> PublicKey? { links[link]?.key }

    func say(_ request: MailboxRequest, on link: LinkID) { send(.mailboxRequest(request), on: link) }

    func ping(_ link: LinkID) { send(.ping(0), on: link) }

    private func send(_ frame: Frame, on link: LinkID) {
        guard let connection = links[link]?.connection else { return }
        do { try connection.send(FrameCodec.encode(frame)) } catch { return connection.abort() }
        connection.flush()
    }

    /// - Returns: whether the link is one to a mailbox.
    func receive(_ bytes: [UInt8], on connection: PeerConnection) -> Bool {
        let id = LinkID(connection.id)
        guard let link = links[id] else { return false }
        switch try? FrameCodec.decode(bytes) {
        case .mailboxAnswer(let answer):
            // Only an answer keeps the link open: a mailbox that only pings would hold an order for ever.
            links[id]?.heardAt = now
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
        guard let wait = links[id]?.idleFrames.note(now: now) else { return }
        links[id]?.connection.pauseReading()
        loop.assumeIsolated().scheduleTask(in: .milliseconds(wait)) { self.links[id]?.connection.resumeReading() }
    }

    // MARK: Ends

    func close(_ link: LinkID) { links[link]?.connection.close() }

    /// A peer sends what it may not.
    func abort(_ link: LinkID) { links[link]?.connection.abort(.protocolViolation) }

    /// - Returns: whether the link was one to a mailbox.
    func linkClosed(_ link: LinkID) -> Bool {
        guard let closed = links.removeValue(forKey: link) else { return false }
        closed.purpose.ended()
        return true
    }
}
