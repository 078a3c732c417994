import Cryptography
import Messaging
import NIOCore
import Transport

/// The invite that a code exchange returned.
package struct CodeInvite: Hashable, Sendable {
    package let slug: String
    /// Where the creator was reached. The invite may lack this endpoint: a creator does not know its forwarded ports.
    package let endpoint: Messaging.Endpoint
}

/// The joining side of spoken codes: exchanges a code for an invite.
final class CodeJoins: Part {
    private var searches: [CodeSearch] = []

    /// Runs the exchange with the node that opened the code.
    /// - Parameter endpoint: that node's address; `nil` searches this machine's networks.
    /// - Returns: the invite and its creator's endpoint; fails with ``NodeError/command(_:)``.
    func invite(for code: SpokenCode, at endpoint: Messaging.Endpoint?) -> EventLoopFuture<CodeInvite> {
        if let endpoint { return exchange(code, at: endpoint) }
        let search: CodeSearch
        do throws(NodeError) { search = try CodeSearch(code.slot, shell) } catch { return loop.makeFailedFuture(error) }
        searches.append(search)
        search.result.assumeIsolated().whenComplete { _ in self.searches.removeAll { $0 === search } }
        return search.result.assumeIsolated().flatMap { [shell] in shell.codeJoins.exchange(code, at: $0) }
            .nonisolated()
    }

    func stop() { for search in searches { search.stop() } }

    private func exchange(_ code: SpokenCode, at endpoint: Messaging.Endpoint) -> EventLoopFuture<CodeInvite> {
        guard !isStopped, let transport = shell.listening.transport,
            let machine = CodeJoinerStateMachine(code, &random), let token = RoutingToken(machine.greeting.bytes)
        else { return loop.makeFailedFuture(NodeError.stopping) }
        let exchange = Exchange(machine, code, endpoint, loop.makePromise(of: CodeInvite.self))
        let dial = ExchangeDial(
            token: token, message: machine.share, expecting: machine.expectedByteCount,
            answered: { exchange.answered($0) }, ended: { exchange.ended($0) })
        transport.exchange(dial, at: Transport.Endpoint(endpoint))
        return exchange.promise.futureResult
    }

    private final class Exchange {
        private var machine: CodeJoinerStateMachine
        private let code: SpokenCode
        private let endpoint: Messaging.Endpoint
        let promise: EventLoopPromise<CodeInvite>
        private var result: Result<CodeInvite, NodeError>?

        init(
            _ machine: CodeJoinerStateMachine, _ code: SpokenCode, _ endpoint: Messaging.Endpoint,
            _ promise: EventLoopPromise<CodeInvite>
        ) {
            self.machine = machine
            self.code = code
            self.endpoint = endpoint
            self.promise = promise
        }

        func answered(_ message: [UInt8]) -> ExchangeDial.Step {
            do throws(CodeFailure) {
                switch try machine.receive(message) {
                case .send(let proof): return .send(proof, expecting: machine.expectedByteCount)
                case .invite(let text):
                    result = .success(CodeInvite(slug: String(decoding: text, as: UTF8.self), endpoint: endpoint))
                }
            } catch { result = .failure(.command(error.explained(code.slot))) }
            return .end
        }

        func ended(_ failure: DialFailure?) {
            promise.completeWith((result ?? .failure(reason(failure))).mapError { $0 as any Error })
        }

        private func reason(_ failure: DialFailure?) -> NodeError {
            let closed = machine.closed()
            guard closed == .notOpen, let failure else { return .command(closed.explained(code.slot)) }
            switch failure {
            case .cancelled: return .stopping
            // The peer accepted the connection but did not answer.
            case .closedBeforeActTwo, .badAnswer, .authenticationFailed: return .command(closed.explained(code.slot))
            case .refused, .timedOut, .unreachable, .unresolvable, .system:
                return .unreachable(
                    "\(endpoint.host) cannot be reached: \(failure.reason)",
                    "the code was not tried and is still valid; check the host and its port")
            }
        }
    }
}

/// One LAN search for the node that opened a code: sockets that are open for some seconds, and a timer.
final class CodeSearch: Part {
    private var machine: LanCodeSeeker
    private let slot: UInt16
    private var transport: LanTransport?
    private let promise: EventLoopPromise<Messaging.Endpoint>
    /// The node's address; fails with ``NodeError``.
    var result: EventLoopFuture<Messaging.Endpoint> { promise.futureResult }

    init(_ slot: UInt16, _ shell: Shell) throws(NodeError) {
        let services = shell.services
        guard let network = services.environment.lan, let interfaces = services.interfaces(of: network) else {
            throw .unreachable("this node cannot search for the code: LAN discovery is off", NodeError.nameMachine)
        }
        self.slot = slot
        machine = LanCodeSeeker(slot: slot, interfaces: interfaces, now: services.monotonic)
        promise = services.loop.makePromise(of: Messaging.Endpoint.self)
        super.init(shell)
        transport = LanTransport(
            loop: loop, network: network, port: options.lanPort,
            receive: { [weak self] source, bytes in self?.receive(bytes, from: source) },
            // Other interfaces may work; otherwise the search times out.
            troubled: { _, _ in })
        transport?.update([], places: machine.places)
        schedule()
    }

    func stop() { end(.failure(.stopping)) }

    private func schedule() {
        guard let deadline = machine.nextDeadline else { return }
        let wait = max(1, deadline - services.monotonic)
        loop.assumeIsolated().scheduleTask(in: .milliseconds(wait)) { [weak self] in self?.advance() }
    }

    private func advance() {
        guard transport != nil else { return }
        perform(machine.advance(now: services.monotonic, using: &random))
        schedule()
    }

    private func receive(_ bytes: [UInt8], from source: LanPlace) {
        guard transport != nil else { return }
        let before = machine.nextDeadline
        perform(machine.receive(bytes, from: source, now: services.monotonic))
        if machine.nextDeadline != before { schedule() }
    }

    private func perform(_ actions: [LanCodeSeeker.Action]) {
        for action in actions {
            switch action {
            case .ask(let bytes, let place): transport?.announce(bytes, from: place)
            case .found(let place):
                guard let host = place.address.host(interface: place.interface) else {
                    end(.failure(.noNode(withCode: slot)))
                    continue
                }
                end(.success(Messaging.Endpoint(host: host, port: place.port)))
            case .ambiguous:
                let words =
                    "several nodes on this network have a code with number \(slot) open, and none of them was tried"
                end(.failure(.failed(words, NodeError.nameMachine)))
            case .nobody: end(.failure(.noNode(withCode: slot)))
            }
        }
    }

    private func end(_ result: Result<Messaging.Endpoint, NodeError>) {
        guard transport != nil else { return }
        transport?.close()
        transport = nil
        promise.completeWith(result.mapError { $0 as any Error })
    }
}

extension NodeServices {
    /// Milliseconds of the loop's clock.
    fileprivate var monotonic: Int64 { Int64(loop.now.uptimeNanoseconds / 1_000_000) }
}
