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
    fileprivate enum State: ~Copyable {
        /// An incoming connection. Goes to `deciding`.
        case greeting
        /// Waits for the owner's decision about a token: ``accept(_:ephemeral:)`` or ``acceptKnock()``.
        case deciding(Preamble)
        /// A knock with a good token. Goes to `knockBody`.
        case knockLength(RoutingToken)
        /// Goes to `ended`: a connection carries one knock.
        case knockBody(RoutingToken, byteCount: Int)
        /// Waits for a message of a code's exchange. Goes to `codeAnswer`.
        case code(byteCount: Int)
        /// The owner has a message. Goes to `code` when it has answered.
        case codeAnswer
        /// A link with a good token. Goes to `actThree`.
        case actOne(LinkHandshake, remote: PublicKey?)
        /// Act 2 is sent. Goes to `open`.
        case actThree(LinkHandshake, remote: PublicKey?)
        /// We dialled and act 1 is sent. Goes to `open`.
        case actTwo(LinkHandshake)
        /// Both sides are authenticated. Stays until an error.
        case open(TransportState)
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

    private var state: State

    /// A responder's session, or an initiator's before ``initiate(_:remote:token:ephemeral:)``.
    init() { state = .greeting }

    /// Starts a dial.
    /// - Returns: preamble and act 1.
    /// - Throws: ``HandshakeError/reflection`` if `remote` is our own key.
    mutating func initiate(
        _ identity: IdentityKey, remote: PublicKey, token: RoutingToken, ephemeral: consuming SecretKey
    ) throws(HandshakeError) -> [UInt8] {
        var handshake = try LinkHandshake.initiator(
            identity: identity.secret, remote: remote, ephemeral: ephemeral, prologue: Preamble.prologue(token))
        let actOne = try handshake.write()
        state = .actTwo(handshake)
        return Preamble(kind: .link, token: token).bytes + actOne
    }

    var expectedByteCount: Int {
        switch state {
        case .greeting: Preamble.byteCount
        case .deciding: 0
        case .ended: 0
        case .knockLength: 2
        case .knockBody(_, let byteCount): byteCount
        case .code(let byteCount): byteCount
        case .codeAnswer: 0
        case .actOne: Act.one.byteCount
        case .actTwo: Act.two.byteCount
        case .actThree: Act.three.byteCount
        case .open(let transport): transport.expectedByteCount
        }
    }

    /// Takes the next ``expectedByteCount`` bytes. `knockLimit`: most bytes of a knock.
    mutating func receive(_ bytes: ByteBufferView, knockLimit: Int) -> Action {
        state.receive(bytes, knockLimit: knockLimit)
    }

    /// The owner knows the token: starts the handshake.
    mutating func accept(_ match: RouteMatch, ephemeral: consuming SecretKey) { state.accept(match, ephemeral) }

    /// The owner accepts the knock's token.
    mutating func acceptKnock() { state.acceptKnock() }

    /// The owner accepts a code's greeting, or has answered: the next message has `byteCount` bytes.
    mutating func expectCode(byteCount: Int) { state.expectCode(byteCount: byteCount) }

    /// A frame for the wire; `nil` unless the link is open.
    mutating func seal(_ frame: [UInt8]) throws(NoiseError) -> [UInt8]? { try state.seal(frame) }

    mutating func end() { state = .ended }
}

// Functions of the state itself: `consume self` makes the compiler demand a next state in each branch.
extension Session.State {
    fileprivate mutating func receive(_ bytes: ByteBufferView, knockLimit: Int) -> Session.Action {
        switch consume self {
        case .greeting:
            guard let preamble = Preamble(Array(bytes)) else {
                self = .ended
                return .reject(.unknownProtocol)
            }
            self = .deciding(preamble)
            switch preamble.kind {
            case .link: return .route(preamble.token)
            case .knock: return .askForKnock(preamble.token)
            case .code: return .askForCode(preamble.token)
            }
        case .deciding(let preamble):
            self = .deciding(preamble)
            return .proceed
        case .knockLength(let token):
            let byteCount = bytes.reduce(0) { $0 << 8 | Int($1) }
            guard (1...knockLimit).contains(byteCount) else {
                self = .ended
                return .reject(.knockTooLong)
            }
            self = .knockBody(token, byteCount: byteCount)
            return .proceed
        case .knockBody(let token, _):
            self = .ended
            return .knock(token, Array(bytes))
        case .code:
            self = .codeAnswer
            return .codeMessage(Array(bytes))
        case .codeAnswer:
            self = .codeAnswer
            return .proceed
        case .actOne(var handshake, let remote):
            self = .ended
            let actTwo: [UInt8]
            do throws(HandshakeError) {
                try handshake.read(Array(bytes))
                actTwo = try handshake.write()
            } catch { return .reject(.handshake(error)) }
            self = .actThree(handshake, remote: remote)
            return .send(actTwo)
        case .actThree(var handshake, let remote):
            self = .ended
            do throws(HandshakeError) { try handshake.read(Array(bytes)) } catch { return .reject(.handshake(error)) }
            let link = handshake.finish()
            let peer = link.peer
            guard remote == nil || remote == peer.publicKey else { return .reject(.wrongPeer) }
            self = .open(link.takeTransport())
            return .opened(peer, sending: [])
        case .actTwo(var handshake):
            self = .ended
            let actThree: [UInt8]
            do throws(HandshakeError) {
                try handshake.read(Array(bytes))
                actThree = try handshake.write()
            } catch { return .reject(.handshake(error)) }
            let link = handshake.finish()
            let peer = link.peer
            self = .open(link.takeTransport())
            return .opened(peer, sending: actThree)
        case .open(var transport):
            self = .ended
            do throws(NoiseError) {
                let frame = try transport.open(bytes)
                self = .open(transport)
                return frame.map { .frame($0) } ?? .proceed
            } catch { return .notAuthentic }
        case .ended:
            self = .ended
            return .proceed
        }
    }

    fileprivate mutating func accept(_ match: RouteMatch, _ ephemeral: consuming SecretKey) {
        guard case .deciding(let preamble) = consume self, preamble.kind == .link else {
            preconditionFailure("a route is accepted once, after a link's preamble")
        }
        self = .actOne(
            .responder(
                identity: match.identity.secret, ephemeral: ephemeral, prologue: Preamble.prologue(preamble.token)),
            remote: match.remote)
    }

    fileprivate mutating func acceptKnock() {
        guard case .deciding(let preamble) = consume self, preamble.kind == .knock else {
            preconditionFailure("a knock is accepted once, after its preamble")
        }
        self = .knockLength(preamble.token)
    }

    fileprivate mutating func expectCode(byteCount: Int) {
        var isAwaited = false
        switch consume self {
        case .deciding(let preamble): isAwaited = preamble.kind == .code
        case .codeAnswer: isAwaited = true
        case .greeting: break
        case .knockLength: break
        case .knockBody: break
        case .code: break
        case .actOne: break
        case .actThree: break
        case .actTwo: break
        case .open: break
        case .ended: break
        }
        precondition(isAwaited, "a message of a code follows the greeting, or an answer")
        self = .code(byteCount: byteCount)
    }

    fileprivate mutating func seal(_ frame: [UInt8]) throws(NoiseError) -> [UInt8]? {
        switch consume self {
        case .open(var transport):
            do throws(NoiseError) {
                let sealed = try transport.seal(frame)
                self = .open(transport)
                return sealed
            } catch {
                self = .open(transport)
                throw error
            }
        case .greeting: self = .greeting
        case .deciding(let preamble): self = .deciding(preamble)
        case .knockLength(let token): self = .knockLength(token)
        case .knockBody(let token, let byteCount): self = .knockBody(token, byteCount: byteCount)
        case .code(let byteCount): self = .code(byteCount: byteCount)
        case .codeAnswer: self = .codeAnswer
        case .actOne(let handshake, let remote): self = .actOne(handshake, remote: remote)
        case .actThree(let handshake, let remote): self = .actThree(handshake, remote: remote)
        case .actTwo(let handshake): self = .actTwo(handshake)
        case .ended: self = .ended
        }
        return nil
    }
}
