import Messaging
import NIOCore
import Simulation
import Transport

/// The network's datagrams: lost, delayed, reordered, duplicated and changed; NATs give their senders new ports.
final class SimulatedDatagrams: Drawing, Journaling, @unchecked Sendable {
    fileprivate final class Socket: DatagramSocket {
        let localAddress: SocketAddress
        let name: DatagramAddress
        let machine: Int
        let loop: SimulatedEventLoop
        let number: UInt32
        let receive: @Sendable ((DatagramAddress, [UInt8])?) -> Void
        unowned let datagrams: SimulatedDatagrams
        var port: UInt16
        var isOpen = true
        /// When it last sent to each address: the holes in its NAT.
        var holes: [DatagramAddress: Int64] = [:]

        init(
            _ address: SocketAddress, _ name: DatagramAddress, machine: Int, loop: SimulatedEventLoop, number: UInt32,
            receive: @escaping @Sendable ((DatagramAddress, [UInt8])?) -> Void, datagrams: SimulatedDatagrams
        ) {
            localAddress = address
            (self.name, self.machine, self.loop, self.number, self.receive) = (name, machine, loop, number, receive)
            self.datagrams = datagrams
            port = name.port
        }

        func send(_ bytes: [UInt8], to address: DatagramAddress) {
            if isOpen { datagrams.send(bytes, from: self, to: address) }
        }

        func flush() {}

        func close() {
            isOpen = false
            datagrams.sockets.removeAll { $0 === self }
        }
    }

    private static let firstPort: UInt16 = 20_000
    /// How long a NAT keeps a mapping (RFC 4787, REQ-5: at least two minutes; many are shorter).
    private static let memory: Int64 = 60_000_000_000

    private let network: SimulatedNetwork
    private let time: SimulatedTime
    var dice: Randomness
    let journal: Journal
    fileprivate var sockets: [Socket] = []
    private var nextPort = firstPort
    var lossPerCent: Int64 = 0

    init(_ network: SimulatedNetwork, dice: Randomness, journal: Journal) {
        self.network = network
        time = network.time
        self.dice = dice
        self.journal = journal
    }

    func stop(_ machine: Int) {
        for socket in sockets where socket.machine == machine { socket.isOpen = false }
        sockets.removeAll { $0.machine == machine }
    }

    func forget() { sockets = [] }
    func heal() { lossPerCent = 0 }

    /// A NAT gives one socket a new port, and nothing reaches the old one.
    func rebind() {
        guard let socket = pick(sockets) else { return }
        count("rebindings")
        nextPort = nextPort < .max ? nextPort + 1 : Self.firstPort
        // Its own port is still forwarded, so that others can dial it; peers it talks to see the new one.
        socket.port = nextPort
    }

    fileprivate func bind(
        _ machine: Int, to endpoint: Transport.Endpoint, number: UInt32, on loop: SimulatedEventLoop,
        _ receive: @escaping @Sendable ((DatagramAddress, [UInt8])?) -> Void
    ) -> EventLoopFuture<NIOLoopBound<any DatagramSocket>> {
        guard let address = try? SocketAddress(ipAddress: endpoint.host, port: endpoint.port),
            let name = DatagramAddress(address, socket: 0)
        else { return loop.makeFailedFuture(ListenFailure.unresolvable(endpoint)) }
        let socket = Socket(
            address, name, machine: machine, loop: loop, number: number, receive: receive, datagrams: self)
        sockets.append(socket)
        return loop.makeSucceededFuture(NIOLoopBound(socket, eventLoop: loop))
    }

    private func hole(_ address: DatagramAddress) -> DatagramAddress {
        DatagramAddress(address.ip, port: network.roads.letsPortsIn ? 0 : address.port)
    }

    /// Whether the target's NAT, if any, admits the source.
    private func isLetIn(from socket: Socket, to target: Socket) -> Bool {
        guard network.roads.hidden.contains(target.machine) else { return true }
        let source = DatagramAddress(socket.name.ip, port: socket.port)
        guard let sentAt = target.holes[hole(source)], time.now - sentAt < Self.memory else {
            count("datagrams to nobody behind a NAT")
            return false
        }
        return true
    }

    private func send(_ bytes: [UInt8], from socket: Socket, to address: DatagramAddress) {
        guard !network.mute.contains(socket.machine) else { return }
        if network.roads.hidden.contains(socket.machine) { socket.holes[hole(address)] = time.now }
        count("datagrams")
        journal.mix(bytes.count)
        guard
            let target = sockets.first(where: { other in
                other.name.ip == address.ip && (other.name.port == address.port || other.port == address.port)
            }), isLetIn(from: socket, to: target), roll(100) >= lossPerCent,
            !network.isBlocked(from: socket.machine, to: target.machine)
        else { return count("datagrams lost") }
        var bytes = bytes
        if network.spoilsPerThousand > 0, roll(1_000) < network.spoilsPerThousand {
            count("datagrams changed")
            bytes[Int(roll(Int64(bytes.count)))] ^= UInt8(1) << UInt8(roll(8))
        }
        let copies = roll(100) == 0 ? 2 : 1
        let source = DatagramAddress(socket.name.ip, port: socket.port, socket: target.number)
        for _ in 0..<copies {
            let arrival = time.now + 1_000_000 + roll(60_000_000) + network.jitter()
            time.plan(at: arrival, on: target.loop) { [weak target] in
                guard let target, target.isOpen else { return }
                target.receive((source, bytes))
                target.receive(nil)
            }
        }
    }
}

struct MachineDatagrams: DatagramNetwork, @unchecked Sendable {
    let datagrams: SimulatedDatagrams
    let machine: Int

    func bind(
        at endpoint: Transport.Endpoint, number: UInt32, on loop: any EventLoop,
        receive: @escaping @Sendable ((DatagramAddress, [UInt8])?) -> Void
    ) -> EventLoopFuture<NIOLoopBound<any DatagramSocket>> {
        guard let loop = loop as? SimulatedEventLoop else { preconditionFailure("a loop of the simulation") }
        return datagrams.bind(machine, to: endpoint, number: number, on: loop, receive)
    }
}
