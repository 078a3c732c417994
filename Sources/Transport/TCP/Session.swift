import Crypto
import NIOCore

/// The protocol of one connection, without a socket or a clock (Links.md). It takes exactly ``expectedByteCount`` bytes
/// at a time and returns an action.
///
///     responder   greeting ─▶ deciding ─▶ actOne ─▶ actThree ─▶ open
///                                ├─▶ knockLength ─▶ knockBody ─▶ ended
///                                └─▶ code ─▶ codeAnswer ─▶ code …
///     initiator   actTwo ─▶ open
///
/// Every refusal ends in `ended`, which expects no more bytes.
struct Session: ~Copyable {
    private enum State {
        case greeting
        /// Waits for the owner's decision about a token: ``accept(_:ephemeral:)`` or ``acceptKnock()``.
        case deciding(Preamble)
        case knockLength(RoutingToken)
        case knockBody(RoutingToken, byteCount: Int)
        /// Waits for a message of a code's exchange.
        case code(byteCount: Int)
        /// The owner has a message.
        case codeAnswer
        case actOne, actTwo, actThree
        /// Both sides are authenticated. Stays until an error.
        case open
        case ended
    }

    enum Action {
        case proceed
        case route(RoutingToken)
        case askForKnock(RoutingToken)
        case knock(RoutingToken, [UInt8])
        case askForCode(RoutingToken)
        case codeMessage([UInt8])
        case send([UInt8])
        /// The link is open. `sending` may be empty.
        case opened(AuthenticatedPeer, sending: [UInt8])
        case frame([UInt8])
        case reject(Rejection)
        case notAuthentic
    }

    private var state = State.greeting
    /// Before the link is open.
    private var handshake: LinkHandshake?
    /// The only peer of a responder's route, if there is one.
    private var remote: PublicKey?
    /// Of the open link.
    private var transport: TransportState?

    /// A responder's session, or an initiator's before ``initiate(_:remote:token:ephemeral:)``.
    init() {}

    /// Starts a dial.
    /// - Returns: preamble and act 1.
    /// - Throws: ``HandshakeError/reflection`` if `remote` is our own key.
    mutating func initiate(
        _ identity: IdentityKey, remote: PublicKey, token: RoutingToken, ephemeral: consuming SecretKey
    ) throws(HandshakeError) -> [UInt8] {
        var handshake = try LinkHandshake.initiator(
            identity: identity.secret, remote: remote, ephemeral: ephemeral, prologue: Preamble.prologue(token))
        let actOne = try handshake.write()
        self.handshake = consume handshake
        state = .actTwo
        return Preamble(kind: .link, token: token).bytes + actOne
    }

    var expectedByteCount: Int {
        mutating get {
            switch state {
            case .greeting: Preamble.byteCount
            case .knockLength: 2
            case .knockBody(_, let byteCount), .code(let byteCount): byteCount
            case .actOne: Act.one.byteCount
            case .actTwo: Act.two.byteCount
            case .actThree: Act.three.byteCount
            case .open: transport?.expectedByteCount ?? 0
            case .deciding, .codeAnswer, .ended: 0
            }
        }
    }

    /// Takes the next ``expectedByteCount`` bytes. `knockLimit`: most bytes of a knock.
    mutating func receive(_ bytes: ByteBufferView, knockLimit: Int) -> Action {
        switch state {
        case .open:
            do throws(NoiseError) {
                guard let frame = try transport?.open(bytes) else { return .proceed }
                return .frame(frame)
            } catch {
                end()
                return .notAuthentic
            }
        case .greeting:
            guard let preamble = Preamble(Array(bytes)) else { return reject(.unknownProtocol) }
            state = .deciding(preamble)
            switch preamble.kind {
            case .link: return .route(preamble.token)
            case .knock: return .askForKnock(preamble.token)
            case .code: return .askForCode(preamble.token)
            }
        case .knockLength(let token):
            let byteCount = bytes.reduce(0) { $0 << 8 | Int($1) }
            guard (1...knockLimit).contains(byteCount) else { return reject(.knockTooLong) }
            state = .knockBody(token, byteCount: byteCount)
            return .proceed
        case .knockBody(let token, _):
            end()
            return .knock(token, Array(bytes))
        case .code:
            state = .codeAnswer
            return .codeMessage(Array(bytes))
        case .actOne, .actTwo, .actThree:
            do throws(HandshakeError) { return try act(Array(bytes)) } catch { return reject(.handshake(error)) }
        case .deciding, .codeAnswer, .ended: return .proceed
        }
    }

    private mutating func act(_ bytes: [UInt8]) throws(HandshakeError) -> Action {
        try handshake?.read(bytes)
        var answer: [UInt8] = []
        switch state {
        case .actOne:
            answer = try handshake?.write() ?? []
            state = .actThree
            return .send(answer)
        case .actTwo: answer = try handshake?.write() ?? []
        default: break
        }
        guard let finished = handshake.take() else { throw .outOfTurn }
        let link = finished.finish()
        let peer = link.peer
        guard remote == nil || remote == peer.publicKey else { return reject(.wrongPeer) }
        transport = link.takeTransport()
        state = .open
        return .opened(peer, sending: answer)
    }

    private mutating func reject(_ rejection: Rejection) -> Action {
        end()
        return .reject(rejection)
    }

    /// The owner knows the token: starts the handshake.
    mutating func accept(_ match: RouteMatch, ephemeral: consuming SecretKey) {
        guard case .deciding(let preamble) = state, preamble.kind == .link else {
            preconditionFailure("a route is accepted once, after a link's preamble")
        }
        handshake = .responder(
            identity: match.identity.secret, ephemeral: ephemeral, prologue: Preamble.prologue(preamble.token))
        remote = match.remote
        state = .actOne
    }

    /// The owner accepts the knock's token.
    mutating func acceptKnock() {
        guard case .deciding(let preamble) = state, preamble.kind == .knock else {
            preconditionFailure("a knock is accepted once, after its preamble")
        }
        state = .knockLength(preamble.token)
    }

    /// The owner accepts a code's greeting, or has answered: the next message has `byteCount` bytes.
    mutating func expectCode(byteCount: Int) {
        switch state {
        case .deciding(let preamble) where preamble.kind == .code: break
        case .codeAnswer: break
        default: preconditionFailure("a message of a code follows the greeting, or an answer")
        }
        state = .code(byteCount: byteCount)
    }

    /// A frame for the wire; `nil` unless the link is open.
    mutating func seal(_ frame: [UInt8]) throws(NoiseError) -> [UInt8]? { try transport?.seal(frame) }

    /// Wipes the keys.
    mutating func end() {
        state = .ended
        handshake = nil
        transport = nil
    }
}
