import Messaging
import NIOCore
import Transport

/// Answers questions for open codes on this machine's networks. Its sockets are open only while a code is, whether or not
/// members are looked for, unless LAN discovery was turned off by name.
final class CodeResponder: NodePart {
    let services: NodeServices
    private let listening: Listening
    private let isOpen: (UInt16) -> Bool
    private var machine = LanCodeResponder()
    private var transport: LanTransport?

    /// - Parameter isOpen: whether a code of this number is.
    init(_ services: NodeServices, _ listening: Listening, isOpen: @escaping (UInt16) -> Bool) {
        self.services = services
        self.listening = listening
        self.isOpen = isOpen
    }

    /// Opens the sockets for the interfaces as they are now.
    func look() {
        guard !isStopped, let network = environment.lan, let interfaces = services.interfaces(of: network) else {
            return
        }
        var usable = interfaces
        for index in usable.indices {
            for other in usable[index].addresses.indices {
                usable[index].addresses[other].port = listening.port(at: usable[index].addresses[other].address)
            }
        }
        machine.setInterfaces(usable)
        let transport =
            transport
            ?? LanTransport(
                loop: loop, network: network, port: options.lanPort,
                receive: { [weak self] source, bytes in self?.receive(bytes, from: source) },
                // Tried again with the next look.
                troubled: { _, _ in })
        self.transport = transport
        transport.update(usable, places: machine.places)
    }

    func stop() {
        transport?.close()
        transport = nil
    }

    private func receive(_ bytes: [UInt8], from source: LanPlace) {
        guard let answer = machine.receive(bytes, from: source, now: now.milliseconds, isOpen: isOpen) else { return }
        transport?.answer(answer.bytes, from: answer.place, to: answer.source)
    }
}

extension NodeServices {
    /// The interfaces on which this node may be found: all, or those that LAN discovery is for.
    /// - Returns: `nil` when LAN discovery was turned off by name.
    func interfaces(of network: any LanNetwork) -> [LanInterface]? {
        switch discovery {
        case .off: nil
        case .lan(let names): (network.interfaces() ?? []).near(named: names.map(Set.init))
        case nil: (network.interfaces() ?? []).near(named: nil)
        }
    }
}
