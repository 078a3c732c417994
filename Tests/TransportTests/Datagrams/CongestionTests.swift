import Cryptography
import Testing

@testable import Transport

/// Throughput and queues of transfers in the simulated network. Each figure is printed.
@Suite struct CongestionTests {
    private static let line = 2_500_000

    /// An endless transfer, by default over 20 Mbit/s and 40 ms.
    private func transfer(
        seed: UInt64 = 1, lost: Int = 0, rate: Int? = line, queue: Int = 150_000, delay: Microseconds = 20_000
    ) throws -> Pair {
        let pair = try Pair.opened(seed, Conditions(lost: lost, delay: delay, rate: rate, queue: queue))
        pair.far.keepsMessages = false
        fill(pair.near)
        return pair
    }

    private func fill(_ node: SimulatedNode) {
        node.waiting = [[UInt8]](repeating: [UInt8](repeating: 7, count: 16_384), count: 200_000)
        node.settle()
    }

    private func goodput(_ pair: Pair, after warmUp: Microseconds, for time: Microseconds) -> Double {
        pair.network.run(for: warmUp)
        let before = pair.far.receivedBytes
        pair.network.run(for: time)
        return Double(pair.far.receivedBytes - before) / (Double(time) / 1_000_000)
    }

    /// Losses per 1,000 datagrams, and the least share of the remaining capacity that a transfer must reach.
    @Test(arguments: [(0, 0.93), (10, 0.85), (50, 0.7), (100, 0.5), (300, 0.02)])
    func `a transfer under random losses keeps the expected share of its rate`(lost: Int, share: Double) throws {
        var rates: [Double] = []
        for seed in 1...3 as ClosedRange<UInt64> {
            rates.append(goodput(try transfer(seed: seed, lost: lost), after: 5_000_000, for: 8_000_000))
        }
        let middle = rates.sorted()[1]
        let most = Double(Self.line) * (1 - Double(lost) / 1_000)
        print("20 Mbit/s, 40 ms, \(lost) of 1,000 lost: \(Int(middle)) B/s, \(middle / most) of what arrives")
        #expect(middle > share * most)
    }

    @Test func `the receive window grows until a transfer fills a wide path with 1 % loss`() throws {
        let pair = try transfer(lost: 10, rate: 20_000_000, queue: 800_000)
        let rate = goodput(pair, after: 5_000_000, for: 5_000_000)
        // The formula of Mathis for loss-based control: MSS / RTT · √(3/2) / √p.
        let mathis = 1_420.0 / 0.04 * 1.2247 / 0.1
        print("160 Mbit/s, 40 ms, 1 %: \(Int(rate)) of 20000000 B/s, \(rate / mathis) times Mathis")
        #expect(rate > 0.8 * 20_000_000)
        #expect(try #require(pair.farLink).inbound.window > 1 << 20)
    }

    @Test func `a transfer backs off from an overflowing queue`() throws {
        for queue in [10_000, 25_000, 50_000, 100_000] {
            let pair = try transfer(queue: queue)
            pair.network.run(for: 5_000_000)
            let link = try #require(pair.nearLink)
            let (lostBefore, sentBefore) = (link.lostPackets, link.nextNumber)
            let rate = goodput(pair, after: 0, for: 8_000_000)
            let share = Double(link.lostPackets - lostBefore) / Double(link.nextNumber - sentBefore)
            print("20 Mbit/s, 40 ms, queue \(queue): \(Int(rate)) B/s, lost \(share)")
            #expect(share < 0.02)
            #expect(rate > (queue < 25_000 ? 0.7 : 0.8) * Double(Self.line))
        }
    }

    @Test func `a transfer keeps the queue nearly empty, however much room it has`() throws {
        let pair = try transfer(queue: 4_000_000)
        pair.network.run(for: 5_000_000)
        let link = try #require(pair.nearLink)
        var waits: [Microseconds] = []
        for _ in 0..<2_000 {
            pair.network.run(for: 10_000)
            waits.append(link.path.roundTrip.latest - 40_000)
        }
        waits.sort()
        print("queue of 1.6 s: middle \(waits[1_000]), of a hundred the largest \(waits[1_980]) µs")
        #expect(waits[1_000] < 12_000)
        // Two windows of the path, and a quarter more while it probes for bandwidth.
        #expect(waits[1_980] < 60_000)
        #expect(link.lostPackets == 0)
    }

    @Test(arguments: [1_000, 40_000, 500_000] as [Microseconds])
    func `a transfer fills its path at every round trip from 1 to 500 ms`(roundTrip: Microseconds) throws {
        let queue = max(30_000, Self.line / 1_000 * Int(roundTrip) / 1_000)
        let pair = try transfer(queue: queue, delay: roundTrip / 2)
        let rate = goodput(pair, after: 15_000_000, for: 8_000_000)
        print("20 Mbit/s, \(roundTrip / 1_000) ms: \(Int(rate)) B/s, lost \(pair.nearLink?.lostPackets ?? 0)")
        #expect(rate > 0.85 * Double(Self.line))
    }

    /// Rate, queue before and after, delay, time to settle, least share of the rate.
    @Test(
        arguments: [
            (10 * line, 150_000, 1_500_000, 20_000, 10_000_000, 0.8),
            (line / 10, 150_000, 150_000, 20_000, 15_000_000, 0.85), (line, 600_000, 600_000, 60_000, 25_000_000, 0.85),
        ] as [(Int, Int, Int, Microseconds, Microseconds, Double)])
    func `a transfer follows a path that becomes faster, slower or longer (A.15, A.16)`(
        rate: Int, before: Int, after: Int, delay: Microseconds, warmUp: Microseconds, share: Double
    ) throws {
        let pair = try transfer(queue: before)
        pair.network.run(for: 10_000_000)
        let conditions = Conditions(delay: delay, rate: rate, queue: after)
        pair.network.conditions = conditions
        let reached = goodput(pair, after: warmUp, for: 8_000_000)
        let link = try #require(pair.nearLink)
        let shortest = link.path.congestion.roundTrip.value ?? 0
        print("\(conditions): \(Int(reached)) B/s, round trip \(link.path.roundTrip.smoothed), shortest \(shortest)")
        #expect(reached > share * Double(rate))
        // The queue of the slow path holds 600 ms and must not stay full.
        #expect(link.path.roundTrip.smoothed < 400_000 && shortest >= 2 * delay)
    }

    @Test func `an owner with little to send does not lower the known rate`() throws {
        let pair = try transfer()
        pair.network.run(for: 5_000_000)
        pair.near.waiting = Array(pair.near.waiting.prefix(pair.near.writes))
        pair.network.run(for: 5_000_000)
        let known = try #require(pair.nearLink?.path.congestion.greatestRate)
        for _ in 0..<200 {
            pair.near.waiting.append([UInt8](repeating: 1, count: 300))
            pair.network.run(for: 300_000)
        }
        let after = try #require(pair.nearLink?.path.congestion.greatestRate)
        #expect(after >= 0.95 * known)
        let before = pair.far.receivedBytes
        pair.near.waiting += [[UInt8]](repeating: [UInt8](repeating: 7, count: 16_384), count: 200)
        pair.network.run(for: 1_000_000)
        let rate = pair.far.receivedBytes - before
        print("after a minute of little: \(rate) bytes in the first second")
        #expect(Double(rate) > 0.8 * Double(Self.line))
    }

    @Test func `a link reaches full rate fast after a long time with little to send`() throws {
        let pair = try Pair.opened(5, Conditions(rate: Self.line, queue: 150_000))
        for _ in 0..<200 {
            pair.near.waiting.append([UInt8](repeating: 1, count: 300))
            pair.network.run(for: 300_000)
        }
        #expect(try #require(pair.nearLink).path.congestion.state == .startup)
        let before = pair.far.receivedBytes
        fill(pair.near)
        pair.network.run(for: 2_000_000)
        #expect(Double(pair.far.receivedBytes - before) > 0.75 * 2 * Double(Self.line))
    }

    @Test(arguments: [50_000, 150_000, 400_000]) func `two transfers at one bottleneck share it`(queue: Int) throws {
        let network = SimulatedNetwork(seed: 4)
        network.isShared = true
        network.conditions.rate = Self.line
        network.conditions.queue = queue
        let nodes = (0..<4).map { _ in network.makeNode() }
        for start in [0, 2] {
            nodes[start + 1].accept(Pair.token, from: nodes[start].identity.publicKey)
            _ = nodes[start].dial(nodes[start + 1], token: Pair.token)
            nodes[start + 1].keepsMessages = false
            network.run(for: 2_000_000) { !nodes[start].opened.isEmpty }
            fill(nodes[start])
            // The second transfer begins when the first has the whole rate.
            network.run(for: 5_000_000)
        }
        network.run(for: 15_000_000)
        let before = [nodes[1].receivedBytes, nodes[3].receivedBytes]
        network.run(for: 30_000_000)
        let first = Double(nodes[1].receivedBytes - before[0]) / 30
        let second = Double(nodes[3].receivedBytes - before[1]) / 30
        print("one bottleneck, queue \(queue): \(Int(first)) and \(Int(second)) B/s, ratio \(first / second)")
        #expect(first / second > 0.5 && first / second < 2)
        #expect(first + second > 0.85 * Double(Self.line))
    }
}
