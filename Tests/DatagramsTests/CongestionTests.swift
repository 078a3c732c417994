import Noise
import Primitives
import Testing

@testable import Datagrams

/// Figures of transfers in the simulated network. Each is printed.
@Suite struct CongestionTests {
    /// Bytes of messages per second of virtual time, after the first seconds.
    private func goodput(_ pair: Pair, warmUp: Microseconds, time: Microseconds) -> Double {
        pair.far.keepsMessages = false
        pair.near.waiting = [[UInt8]](repeating: [UInt8](repeating: 7, count: 16_384), count: 100_000)
        pair.near.settle()
        pair.network.run(for: warmUp)
        let before = pair.far.receivedBytes
        pair.network.run(for: time)
        return Double(pair.far.receivedBytes - before) / (Double(time) / 1_000_000)
    }

    @Test func `with 1 % loss and 40 ms the rate is that of the formula of Mathis or better`() throws {
        var rates: [Double] = []
        for seed in 1...3 as ClosedRange<UInt64> {
            var conditions = Conditions()
            conditions.lost = 10
            conditions.delay = 20_000
            let pair = Pair(seed: seed, conditions)
            try #require(pair.open())
            rates.append(goodput(pair, warmUp: 5_000_000, time: 40_000_000))
        }
        let mean = rates.reduce(0, +) / Double(rates.count)
        // MSS / RTT · √(3/2) / √p with the payload of a datagram of 1,472 bytes.
        let mathis = 1_420.0 / 0.04 * 1.2247 / 0.1
        print("1 % loss, 40 ms: \(Int(mean)) B/s, Mathis \(Int(mathis)) B/s, ratio \(mean / mathis)")
        #expect(mean > 0.9 * mathis)
    }

    @Test func `a wire of 20 Mbit/s is filled`() throws {
        var conditions = Conditions()
        conditions.rate = 2_500_000
        conditions.queue = 100_000
        let pair = Pair(seed: 3, conditions)
        try #require(pair.open())
        let rate = goodput(pair, warmUp: 5_000_000, time: 20_000_000)
        let lost = pair.nearLink?.lostPackets ?? 0
        print("20 Mbit/s, 40 ms, queue 100 kB: \(Int(rate)) of 2500000 B/s, lost \(lost)")
        #expect(rate > 0.9 * 2_500_000)
    }

    @Test func `two transfers at one bottleneck share it`() throws {
        let network = SimulatedNetwork(seed: 4)
        network.isShared = true
        network.conditions.rate = 2_500_000
        network.conditions.queue = 150_000
        let nodes = (0..<4).map { _ in network.makeNode() }
        for start in [0, 2] {
            nodes[start + 1].accept(Pair.token, from: nodes[start].identity.publicKey)
            _ = nodes[start].dial(nodes[start + 1], token: Pair.token)
            nodes[start + 1].keepsMessages = false
            network.run(for: 2_000_000) { !nodes[start].opened.isEmpty }
            nodes[start].waiting = [[UInt8]](repeating: [UInt8](repeating: 7, count: 16_384), count: 100_000)
            nodes[start].settle()
            // The second comes when the first has all of it.
            network.run(for: 5_000_000)
        }
        network.run(for: 10_000_000)
        let before = [nodes[1].receivedBytes, nodes[3].receivedBytes]
        network.run(for: 25_000_000)
        let first = Double(nodes[1].receivedBytes - before[0]) / 25
        let second = Double(nodes[3].receivedBytes - before[1]) / 25
        print("one bottleneck: \(Int(first)) and \(Int(second)) B/s, ratio \(first / second)")
        #expect(first / second > 0.5 && first / second < 2)
        #expect(first + second > 0.9 * 2_500_000)
    }
}

/// A campaign that cannot fail is a defect: faults that are put in on purpose are found.
@Suite struct PlantedTests {
    private func run(_ seed: UInt64, _ plant: @escaping (DatagramLink, DatagramLink) -> Void) throws -> Bool {
        var conditions = Conditions()
        conditions.lost = 50
        conditions.reordered = 100
        conditions.jitter = 20_000
        let pair = Pair(seed: seed, conditions)
        try #require(pair.open())
        pair.near.waiting = makeMessages(200, seed: 1)
        for _ in 0..<60 {
            pair.network.run(for: 100_000)
            if let near = pair.nearLink, let far = pair.farLink { plant(near, far) }
        }
        pair.network.run(for: 60_000_000)
        return pair.far.received == pair.near.waiting
    }

    @Test func `without a fault all is well`() throws { #expect(try run(1) { _, _ in }) }

    @Test func `a sender that believes too much is found`() throws {
        let isWell = try run(1) { near, _ in
            // The oldest packet in flight counts as arrived.
            guard let packet = near.sent.oldest(1).first, let piece = packet.piece else { return }
            near.outbound.acknowledge(piece)
        }
        #expect(!isWell)
    }

    @Test func `a receiver that forgets what it has acknowledged is found`() throws {
        var hasForgotten = false
        let isWell = try run(1) { _, far in
            guard !hasForgotten, far.inbound.contiguous > 20_000 else { return }
            hasForgotten = true
            var fresh = ReceiveStream(limits: far.limits)
            _ = fresh.writeCredit()
            far.inbound = fresh
        }
        #expect(!isWell)
    }

    @Test func `a sender that says something twice is found`() throws {
        var isSaid = false
        let isWell = try run(1) { near, _ in
            guard !isSaid else { return }
            isSaid = true
            near.outbound.write([1, 2, 3])
        }
        #expect(!isWell)
    }

    @Test func `a window that takes packets twice is found by the counters`() throws {
        let pair = Pair(seed: 1)
        try #require(pair.open())
        let (near, far) = (try #require(pair.nearLink), try #require(pair.farLink))
        let packet = near.forge([1])
        for _ in 0..<2 {
            far.replay = ReplayWindow()
            pair.far.endpoint.receive(packet, from: pair.near.address, at: pair.network.now)
        }
        // With its window as it should be, the second is refused.
        #expect(far.refusedPackets == 0)
        pair.far.endpoint.receive(packet, from: pair.near.address, at: pair.network.now)
        #expect(far.refusedPackets == 1)
    }
}
