import Cryptography
import Glibc
import Messaging
import NIOCore
import Simulation
import Transport

/// All paths between the machines, and their faults: delays, one-way and two-way partitions, lost connections, and an
/// attacker that changes bytes, replays greetings and sends garbage.
final class SimulatedNetwork: Drawing, Journaling, @unchecked Sendable {
    enum Failure { case reset, timedOut, refused, unreachable }

    struct Listener {
        let machine: Int
        let loop: SimulatedEventLoop
        let accept: (any Channel) throws -> Void
    }

    private struct Way: Hashable {
        let from: Int
        let to: Int
    }

    /// First bytes of a connection, for replay.
    private struct Greeting {
        let listener: String
        let bytes: ByteBuffer
    }

    private static let greetingCount = 32

    let time: SimulatedTime
    var dice: Randomness
    let journal: Journal
    private var listeners: [String: Listener] = [:]
    private(set) var connections: [Int: Connection] = [:]
    private var nextConnection = 0
    private var blocked: [Way: Int] = [:]
    private var greetings: [Greeting] = []
    /// Machines that just lost power: they send nothing more.
    var mute: Set<Int> = []
    var spoilsPerThousand: Int64 = 0
    var refusesPerCent: Int64 = 0
    var roads = Roads.open
    /// Refusals that remain after the faults.
    var lastingRefusals: Int64 = 0 { didSet { refusesPerCent = lastingRefusals } }

    init(_ time: SimulatedTime, dice: Randomness, journal: Journal) {
        (self.time, self.dice, self.journal) = (time, dice, journal)
    }

    func listen(_ listener: Listener, at host: String, _ port: Int) { listeners["\(host):\(port)"] = listener }

    /// Stops a machine; its kernel resets connections, unless the power is cut.
    func stop(_ machine: Int, isPowerCut: Bool) {
        for name in listeners.keys.sorted() where listeners[name]?.machine == machine { listeners[name] = nil }
        for number in connections.keys.sorted() {
            guard let connection = connections[number] else { continue }
            for side in [Connection.Side.dialer, .listener] where connection.machine(side) == machine {
                if isPowerCut { connection.powerOff(side) } else { connection.abandon(side) }
            }
        }
        sweep()
    }

    func forget() {
        for connection in connections.values { connection.forget() }
        connections = [:]
        listeners = [:]
    }

    private func sweep() { connections = connections.filter { $0.value.isOpen } }

    func isBlocked(from: Int, to: Int) -> Bool { blocked[Way(from: from, to: to)] != nil }

    /// - Parameter isOneWay: Blocks only the direction from `one` to `other`.
    func block(_ one: Int, _ other: Int, isOneWay: Bool) {
        blocked[Way(from: one, to: other), default: 0] += 1
        if !isOneWay { blocked[Way(from: other, to: one), default: 0] += 1 }
    }

    func unblock(_ one: Int, _ other: Int, isOneWay: Bool) {
        for way in isOneWay ? [Way(from: one, to: other)] : [Way(from: one, to: other), Way(from: other, to: one)] {
            blocked[way] = blocked[way].flatMap { $0 > 1 ? $0 - 1 : nil }
        }
        resume()
    }

    func heal() {
        blocked = [:]
        spoilsPerThousand = 0
        refusesPerCent = lastingRefusals
        resume()
    }

    private func resume() { for number in connections.keys.sorted() { connections[number]?.resume() } }

    func pick() -> Connection? {
        sweep()
        return pick(connections.keys.sorted()).flatMap { connections[$0] }
    }

    func jitter() -> Int64 { roll(10) == 0 ? roll(400_000_000) : roll(5_000_000) }

    func pieces(of bytes: ByteBuffer) -> [ByteBuffer] {
        guard bytes.readableBytes > 1, roll(8) == 0 else { return [bytes] }
        var bytes = bytes
        let first = bytes.readSlice(length: 1 + Int(roll(Int64(bytes.readableBytes - 1))))
        return [first, bytes].compactMap { $0 }
    }

    func spoilt(_ bytes: ByteBuffer, on connection: Connection) -> ByteBuffer {
        guard spoilsPerThousand > 0, roll(1_000) < spoilsPerThousand, bytes.readableBytes > 0 else { return bytes }
        count("spoilt pieces")
        var bytes = bytes
        let index = bytes.readerIndex + Int(roll(Int64(bytes.readableBytes)))
        let bit = UInt8(1) << UInt8(roll(8))
        bytes.setInteger((bytes.getInteger(at: index, as: UInt8.self) ?? 0) ^ bit, at: index)
        return bytes
    }

    func sent(_ bytes: ByteBuffer, on connection: Connection, from side: Connection.Side) {
        journal.mix(connection.number)
        journal.mix(bytes.readableBytes)
        for byte in bytes.readableBytesView.prefix(32) { journal.mix(UInt64(byte)) }
        count("pieces")
        guard side == .dialer, bytes.readableBytes < 4_096, let address = connection.address(.listener),
            let host = address.ipAddress, let port = address.port
        else { return }
        let greeting = Greeting(listener: "\(host):\(port)", bytes: bytes)
        if greetings.count < Self.greetingCount {
            greetings.append(greeting)
        } else if roll(4) == 0 {
            greetings[Int(roll(Int64(greetings.count)))] = greeting
        }
    }

    func arrived(_ bytes: ByteBuffer?, on connection: Connection, at side: Connection.Side) {
        journal.mix(connection.number)
        journal.mix(bytes?.readableBytes ?? -1)
    }

    func error(_ failure: Failure) -> any Error {
        let code: CInt =
            switch failure {
            case .reset: ECONNRESET
            case .timedOut: ETIMEDOUT
            case .refused: ECONNREFUSED
            case .unreachable: EHOSTUNREACH
            }
        return IOError(errnoCode: code, reason: "simulated")
    }

    /// A random delay in nanoseconds.
    private func delay() -> Int64 { 1_000_000 + roll(60_000_000) }

    fileprivate func connect(
        _ machine: Int, _ address: SocketAddress?, to endpoint: Transport.Endpoint, patience: TimeAmount,
        on loop: SimulatedEventLoop
    ) -> EventLoopFuture<any Channel> {
        let promise = loop.makePromise(of: (any Channel).self)
        let name = "\(endpoint.host):\(endpoint.port)"
        let delay = delay()
        func fail(_ error: any Error, after delay: Int64) {
            if loop.isDead { return promise.fail(error) }
            time.plan(at: time.now + delay, on: loop) { promise.fail(error) }
        }
        guard let target = try? SocketAddress(ipAddress: endpoint.host, port: endpoint.port) else {
            fail(self.error(.unreachable), after: delay)
            return promise.futureResult
        }
        time.plan(at: time.now + delay) { [self] in
            // A refusal is said or, like everything on the way to nobody, not said.
            func refuse(_ failure: Failure) {
                if roll(2) == 0 { return fail(self.error(failure), after: delay) }
                fail(ChannelError.connectTimeout(patience), after: patience.nanoseconds)
            }
            guard let listener = listeners[name] else { return refuse(.refused) }
            if refusesPerCent > 0, roll(100) < refusesPerCent {
                count("connections refused by a firewall")
                return refuse(.refused)
            }
            if roads.hidden.contains(listener.machine) {
                count("connections to nobody behind a NAT")
                return fail(ChannelError.connectTimeout(patience), after: patience.nanoseconds)
            }
            if isBlocked(from: machine, to: listener.machine) || isBlocked(from: listener.machine, to: machine) {
                return refuse(.unreachable)
            }
            guard !loop.isDead else { return promise.fail(ChannelError.alreadyClosed) }
            let connection = make(from: machine, to: listener.machine, [address, target], delay)
            count("connections")
            accept(connection, listener)
            time.plan(at: time.now + delay, on: loop) {
                guard connection.isOpen else { return promise.fail(self.error(.reset)) }
                let channel = SimulatedChannel(loop, connection, .dialer)
                channel.activateQuietly()
                promise.succeed(channel)
                channel.pipeline.read()
                connection.attach(channel)
            }
        }
        return promise.futureResult
    }

    private func make(from: Int, to: Int, _ addresses: [SocketAddress?], _ delay: Int64) -> Connection {
        nextConnection += 1
        let connection = Connection(
            nextConnection, from: from, to: to, addresses: addresses, delay: delay, network: self)
        connections[nextConnection] = connection
        if nextConnection % 64 == 0 { sweep() }
        return connection
    }

    private func accept(_ connection: Connection, _ listener: Listener) {
        time.plan(at: time.now, on: listener.loop) {
            let channel = SimulatedChannel(listener.loop, connection, .listener)
            guard (try? listener.accept(channel)) != nil else { return connection.reset(by: .listener) }
            connection.attach(channel)
            channel.activate()
        }
    }

    /// A stranger connects with garbage, the beginning of a valid message, or a replayed greeting.
    func intrude() {
        guard var name = pick(listeners.keys.sorted()) else { return }
        var bytes = ByteBuffer()
        switch roll(3) {
        case 0:
            count("repeated greetings")
            guard let greeting = pick(greetings) else { return }
            bytes = greeting.bytes
            if roll(2) == 0 { name = greeting.listener }
        case 1:
            count("cut greetings")
            guard let greeting = pick(greetings) else { return }
            bytes = greeting.bytes
            bytes = bytes.getSlice(at: bytes.readerIndex, length: Int(roll(Int64(bytes.readableBytes)))) ?? bytes
        default:
            count("rubbish")
            for _ in 0..<1 + roll(200) { bytes.writeInteger(UInt8(truncatingIfNeeded: roll(256))) }
        }
        guard let listener = listeners[name] else { return }
        let connection = make(from: -1, to: listener.machine, [nil, nil], delay())
        accept(connection, listener)
        connection.send(bytes, from: .dialer)
        if roll(2) == 0 { connection.end(from: .dialer) }
    }
}

struct MachineNetwork: Network, @unchecked Sendable {
    let network: SimulatedNetwork
    let machine: Int
    let host: String

    func connect(to endpoint: Transport.Endpoint, limits: TransportLimits, on loop: any EventLoop) -> EventLoopFuture<
        any Channel
    > {
        guard let loop = loop as? SimulatedEventLoop else { preconditionFailure("a loop of the simulation") }
        return network.connect(
            machine, try? SocketAddress(ipAddress: host, port: 40_000), to: endpoint, patience: limits.connectTimeout,
            on: loop)
    }

    func listen(at endpoint: Transport.Endpoint, limits: TransportLimits, on loop: any EventLoop, reception: Reception)
        -> EventLoopFuture<TCPListener>
    {
        guard let loop = loop as? SimulatedEventLoop else { preconditionFailure("a loop of the simulation") }
        network.listen(
            SimulatedNetwork.Listener(machine: machine, loop: loop, accept: { try reception.accept($0, nil) }),
            at: endpoint.host, endpoint.port)
        do {
            let address = try SocketAddress(ipAddress: endpoint.host, port: endpoint.port)
            return loop.makeSucceededFuture(TCPListener(address: address, close: { loop.makeSucceededVoidFuture() }))
        } catch { return loop.makeFailedFuture(ListenFailure.unresolvable(endpoint)) }
    }
}
