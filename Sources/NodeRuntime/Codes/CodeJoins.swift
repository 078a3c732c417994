import Crypto
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
    /// - Returns: the invite and its creator's endpoint; fails with ``NodeError/code(_:)``.
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
        var random = Randomness.system
        guard !isStopped, let transport = shell.listening.transport,
            let machine = CodeJoinerStateMachine(code, &random), let token = RoutingToken(machine.greeting.bytes)
        else { return loop.makeFailedFuture(NodeError.stopping) }
        let exchange = Exchange(machine, code, endpoint, loop.makePromise(of: CodeInvite.self))
        let dial = ExchangeDial(
            token: token, message: machine.share, expecting: machine.expectedByteCount,
            answered: { exchange.answered($0) }, ended: { exchange.ended($0) })
        transport.exchange(dial, at: Transport.Endpoint(host: endpoint.host, port: Int(endpoint.port)))
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
            } catch { result = .failure(.code(.exchange(error, slot: code.slot))) }
            return .end
        }

        func ended(_ failure: DialFailure?) {
            promise.completeWith((result ?? .failure(reason(failure))).mapError { $0 as any Error })
        }

        private func reason(_ failure: DialFailure?) -> NodeError {
            let closed = machine.closed()
            guard closed == .notOpen, let failure else { return .code(.exchange(closed, slot: code.slot)) }
            switch failure {
            case .cancelled: return .stopping
            // The peer accepted the connection but did not answer.
            case .closedBeforeActTwo, .badAnswer, .authenticationFailed:
                return .code(.exchange(.notOpen, slot: code.slot))
            case .refused, .timedOut, .unreachable, .unresolvable, .system:
                return .code(.notReached(host: endpoint.host, failure))
            }
        }
    }
}
