import DequeModule
import NIOCore

/// A simulated TCP connection: two ordered directions with delays. It also applies network faults: held-up or changed
/// bytes, and loss at one end or both.
final class Connection: @unchecked Sendable {
    enum Side: Int {
        case dialer = 0
        case listener = 1
        var other: Side { self == .dialer ? .listener : .dialer }
    }

    private struct Piece {
        var bytes: ByteBuffer?
        var arrival: Int64
    }

    /// Time until the kernel gives up on unacknowledged bytes, in milliseconds: see ``TransportLimits/silence``.
    private static let silence: Int64 = 30_000

    let number: Int
    let machines: [Int]
    private let addresses: [SocketAddress?]
    private unowned let network: SimulatedNetwork
    private var channels: [SimulatedChannel?] = [nil, nil]
    private var onTheWay: [Deque<Piece>] = [[], []]
    private var lastArrival: [Int64] = [0, 0]
    private var delay: Int64
    /// Bytes are dropped, and neither side is told.
    private(set) var isSilent = false
    private var isOver: [Bool] = [false, false]
    private var heldUpSince: [Int64?] = [nil, nil]

    init(
        _ number: Int, from dialer: Int, to listener: Int, addresses: [SocketAddress?], delay: Int64,
        network: SimulatedNetwork
    ) {
        self.number = number
        machines = [dialer, listener]
        (self.addresses, self.delay, self.network) = (addresses, delay, network)
    }

    func address(_ side: Side) -> SocketAddress? { addresses[side.rawValue] }
    func machine(_ side: Side) -> Int { machines[side.rawValue] }

    func attach(_ channel: SimulatedChannel) {
        channels[channel.side.rawValue] = channel
        pump(to: channel.side)
    }

    var isOpen: Bool { isOver != [true, true] }

    func send(_ bytes: ByteBuffer, from side: Side) {
        guard !isOver[side.rawValue] else { return }
        network.sent(bytes, on: self, from: side)
        for piece in network.pieces(of: bytes) { put(network.spoilt(piece, on: self), from: side) }
    }

    func end(from side: Side) { put(nil, from: side) }

    private func put(_ bytes: ByteBuffer?, from side: Side) {
        let index = side.other.rawValue
        guard !isOver[index], !network.mute.contains(machine(side)) else { return }
        let arrival = max(lastArrival[index], network.time.now + delay + network.jitter())
        lastArrival[index] = arrival
        onTheWay[index].append(Piece(bytes: bytes, arrival: arrival))
        plan(side.other, at: arrival)
    }

    /// Answers bytes for a connection that is closed there.
    func reset(by side: Side) { tell(side.other, network.error(.reset), after: delay) }

    private func plan(_ side: Side, at time: Int64) {
        guard let channel = channels[side.rawValue] else { return }
        network.time.plan(at: time, on: channel.loop) { [weak self] in self?.pump(to: side) }
    }

    /// Delivers arrived bytes, unless the path is blocked.
    private func pump(to side: Side) {
        let index = side.rawValue
        guard let channel = channels[index], !isOver[index] else { return }
        if isSilent || network.isBlocked(from: machine(side.other), to: machine(side)) {
            if !onTheWay[index].isEmpty { holdUp(side) }
            return
        }
        heldUpSince[index] = nil
        while let first = onTheWay[index].first, !isOver[index] {
            guard first.arrival <= network.time.now else { return plan(side, at: first.arrival) }
            onTheWay[index].removeFirst()
            network.arrived(first.bytes, on: self, at: side)
            if let bytes = first.bytes { channel.arrive(bytes) } else { channel.end() }
        }
    }

    /// Both sides notice in half a minute: one misses acknowledgements, the other answers to its probes.
    private func holdUp(_ side: Side) {
        guard heldUpSince[side.rawValue] == nil else { return }
        let now = network.time.now
        heldUpSince[side.rawValue] = now
        network.time.plan(inMilliseconds: Self.silence) { [weak self] in
            guard let self, heldUpSince[side.rawValue] == now else { return }
            lose()
        }
    }

    func resume() {
        for side in [Side.dialer, .listener] {
            guard let channel = channels[side.rawValue] else { continue }
            network.time.plan(at: network.time.now, on: channel.loop) { [weak self] in self?.pump(to: side) }
        }
    }

    /// Drops the connection silently; each side finds out by its own timeout.
    func vanish() {
        guard !isSilent else { return }
        isSilent = true
        for side in [Side.dialer, .listener] {
            tell(side, network.error(.timedOut), after: Self.silence * 1_000_000 + network.jitter())
        }
    }

    func lose() {
        isSilent = true
        for side in [Side.dialer, .listener] { tell(side, network.error(.timedOut), after: 0) }
    }

    /// The process at one end is gone; its kernel resets the connection.
    func abandon(_ side: Side) {
        leave(side)
        reset(by: side)
    }

    func powerOff(_ side: Side) {
        leave(side)
        vanish()
    }

    private func leave(_ side: Side) {
        isOver[side.rawValue] = true
        onTheWay[side.rawValue] = []
        channels[side.rawValue]?.die()
        channels[side.rawValue] = nil
    }

    private func tell(_ side: Side, _ error: any Error, after delay: Int64) {
        guard !isOver[side.rawValue] else { return }
        guard let channel = channels[side.rawValue] else {
            isOver[side.rawValue] = true
            return
        }
        network.time.plan(at: network.time.now + delay, on: channel.loop) { [weak self] in
            guard let self, !isOver[side.rawValue] else { return }
            isOver[side.rawValue] = true
            channel.fail(error)
        }
    }

    func forget() {
        for channel in channels { channel?.die() }
        channels = [nil, nil]
        onTheWay = [[], []]
    }
}
