import Cryptography
import Testing
import Transport

let noon: Int64 = 2_000_000 * LanLimits.slotLength + LanLimits.slotLength / 2

func lanSecret(_ number: UInt64) -> LanSecret {
    var random = SplitMix64(state: number)
    let bytes = (0..<32).map { _ in UInt8(truncatingIfNeeded: random.next()) }
    return bytes.withUnsafeBytes { LanSecret(routingSecret: $0) }
}

/// A node on the network 10.0.0.0/24, on interface 7, listening at 7440.
struct TestMachine {
    var discovery: LanDiscovery
    let address: IPAddress
    var random: SplitMix64
    var now: Int64

    init(_ host: UInt8, at now: Int64 = noon, port: UInt16? = 7_440) {
        discovery = LanDiscovery(now: now)
        address = IPAddress(10, 0, 0, host)
        random = SplitMix64(state: UInt64(host))
        self.now = now
        setInterfaces(port: port)
    }

    mutating func setInterfaces(_ host: UInt8? = nil, port: UInt16? = 7_440) {
        let own = LanInterface.Own(
            address: host.map { IPAddress(10, 0, 0, $0) } ?? address, prefixLength: 24, port: port)
        let interface = LanInterface(index: 7, name: "eth0", addresses: [own])
        discovery.setInterfaces([interface], now: now, using: &random)
    }

    /// The other inbox has the same two numbers, swapped.
    mutating func add(_ pair: UInt64, announces: UInt64, hears: UInt64) {
        discovery.add(pair, listening: lanSecret(hears), announcing: lanSecret(announces))
    }

    mutating func advance(missing: [UInt64]) -> [LanDiscovery.Action] {
        guard let deadline = discovery.nextDeadline else { return [] }
        now = max(now, deadline)
        return discovery.advance(now: now, missing: { missing }, using: &random)
    }

    mutating func announcements(missing: [UInt64]) -> [[UInt8]] {
        advance(missing: missing).compactMap { if case .announce(let bytes, _) = $0 { bytes } else { nil } }
    }

    /// The announcement for a pair whose peer is missing.
    mutating func announcement(_ pair: UInt64) throws -> [UInt8] { try #require(announcements(missing: [pair]).first) }

    mutating func receive(_ bytes: [UInt8], from host: UInt8, port: UInt16 = 50_000) -> [LanDiscovery.Action] {
        receive(bytes, from: source(host, port: port))
    }

    mutating func receive(_ bytes: [UInt8], from source: LanPlace) -> [LanDiscovery.Action] {
        discovery.receive(bytes, from: source, now: now, using: &random)
    }
}

func source(_ host: UInt8, port: UInt16 = 50_000) -> LanPlace {
    LanPlace(interface: 7, address: IPAddress(10, 0, 0, host), port: port)
}

extension [LanDiscovery.Action] {
    var found: [UInt64] { compactMap { if case .found(let pair, _, _) = $0 { pair } else { nil } } }
    var answers: [[UInt8]] { compactMap { if case .answer(let bytes, _, _) = $0 { bytes } else { nil } } }
}

/// Two machines with pairs that have the same number at both.
func machines(_ pairs: [UInt64]) -> (ann: TestMachine, bob: TestMachine) {
    var (ann, bob) = (TestMachine(1), TestMachine(2))
    for number in pairs {
        ann.add(number, announces: number + 5_000, hears: number + 9_000)
        bob.add(number, announces: number + 9_000, hears: number + 5_000)
    }
    return (ann, bob)
}

func pair() -> (ann: TestMachine, bob: TestMachine) {
    var ann = TestMachine(1)
    var bob = TestMachine(2)
    ann.add(11, announces: 1, hears: 2)
    bob.add(22, announces: 2, hears: 1)
    return (ann, bob)
}

/// A pair, and the first machine's announcement.
func announced() throws -> (ann: TestMachine, bob: TestMachine, announcement: [UInt8]) {
    var machines = pair()
    let announcement = try machines.ann.announcement(11)
    return (machines.ann, machines.bob, announcement)
}
