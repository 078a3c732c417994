import Crypto
import Messaging
import NIOCore
import Transport

/// One LAN search for the node that opened a code: sockets that are open for some seconds, and a timer.
final class CodeSearch: Part {
    private var machine: LanCodeSeeker
    private let slot: UInt16
    private var transport: LanTransport?
    private let promise: EventLoopPromise<Messaging.Endpoint>
    /// The node's address; fails with ``NodeError``.
    var result: EventLoopFuture<Messaging.Endpoint> { promise.futureResult }

    /// - Throws: ``NodeError/code(_:)`` when the setting turns LAN discovery `off`.
    init(_ slot: UInt16, _ shell: Shell) throws(NodeError) {
        let services = shell.services
        guard let network = services.environment.lan, let interfaces = services.interfaces(of: network) else {
            throw .code(.discoveryOff)
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
        var random = Randomness.system
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
                    end(.failure(.code(.nobody(slot: slot))))
                    continue
                }
                end(.success(Messaging.Endpoint(host: host, port: place.port)))
            case .ambiguous: end(.failure(.code(.ambiguous(slot: slot))))
            case .nobody: end(.failure(.code(.nobody(slot: slot))))
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
