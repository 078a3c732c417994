import Messaging
import NIOCore
import Transport

/// Answers LAN searches for open codes. Its sockets are open only while a code is open. The responder also works
/// without a LAN discovery setting, but not if the setting is `off`.
final class CodeResponder: Part {
    private var machine = LanCodeResponder()
    private var transport: LanTransport?

    /// Opens sockets on the current interfaces.
    func look() {
        guard !isStopped, let network = environment.lan, let interfaces = services.interfaces(of: network) else {
            return
        }
        var usable = interfaces
        for index in usable.indices {
            for other in usable[index].addresses.indices {
                usable[index].addresses[other].port = shell.listening.port(at: usable[index].addresses[other].address)
            }
        }
        machine.setInterfaces(usable)
        let transport =
            transport
            ?? LanTransport(
                loop: loop, network: network, port: options.lanPort,
                receive: { [weak self] source, bytes in self?.receive(bytes, from: source) },
                // The next call of `look` tries again.
                troubled: { _, _ in })
        self.transport = transport
        transport.update(usable, places: machine.places)
    }

    func stop() {
        transport?.close()
        transport = nil
    }

    private func receive(_ bytes: [UInt8], from source: LanPlace) {
        guard let answer = machine.receive(bytes, from: source, now: now.milliseconds, isOpen: shell.codes.isOpen)
        else { return }
        transport?.answer(answer.bytes, from: answer.place, to: answer.source)
    }
}

extension NodeServices {
    /// The interfaces on which this node may be discovered: all, or those that the setting names.
    /// - Returns: `nil` when the setting is `off`.
    func interfaces(of network: any LanNetwork) -> [LanInterface]? {
        switch discovery {
        case .off: nil
        case .lan(let names): (network.interfaces() ?? []).near(named: names.map(Set.init))
        case nil: (network.interfaces() ?? []).near(named: nil)
        }
    }
}
