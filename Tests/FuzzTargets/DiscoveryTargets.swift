import Cryptography
import Transport

/// Datagrams of LAN discovery from any sender on the network.
let discoveryTargets: [FuzzTarget] = [
    FuzzTarget("lan-datagram", byteCountLimit: 1_200) {
        var random = SplitMix64(state: 1)
        return [0, 9, 64].flatMap { count in
            [LanDatagram.Kind.announcement, .answer].map { kind in
                let entries = (0..<count).map { LanDatagram.Entry(tag: UInt64($0), proof: UInt64($0)) }
                return LanDatagram(kind, port: 7_440, nonce: 5, entries: entries, using: &random).bytes
            }
        }
    } run: { bytes in
        guard let datagram = LanDatagram(bytes) else { return }
        try expect(datagram.bytes == bytes, "a datagram is not what it was read from")
    },
    FuzzTarget("lan-network", byteCountLimit: 2_048, cost: 4) {
        [
            FuzzScript().byte(0, 1, 2).bytes, FuzzScript().byte(0, 3, 1).short(40).byte(7).bytes,
            FuzzScript().byte(4).number(900_000).byte(0, 1).bytes, FuzzScript().byte(5, 3, 9, 0, 2).bytes,
            FuzzScript().byte(6).run([1, 1, 0, 1] + [UInt8](repeating: 3, count: 136), isLong: true).bytes,
        ]
    } run: { bytes in
        var network = FuzzLan(bytes)
        var left =
            switch FuzzPatience(bytes) {
            case .long: Int.max
            case .middling: 96
            case .short: 24
            }
        while !network.isAtEnd && left > 0 {
            try network.step()
            left -= 1
        }
    },
]

/// Two machines with one pair of inboxes, and an attacker that repeats, changes and forges their datagrams.
private struct FuzzLan {
    private var input: FuzzInput
    private var machines: [LanDiscovery]
    private var random: SplitMix64
    private var now: Int64 = 1_800_000_000_000
    private var sent: [(bytes: [UInt8], from: Int)] = []
    private let addresses = [IPAddress(10, 0, 0, 1), IPAddress(10, 0, 0, 2), IPAddress(10, 0, 0, 66)]

    init(_ bytes: [UInt8]) {
        input = FuzzInput(bytes)
        random = SplitMix64(state: FuzzInput.seed(of: bytes))
        let secrets = [1, 2].map { number in
            [UInt8](repeating: number, count: 32).withUnsafeBytes { LanSecret(routingSecret: $0) }
        }
        machines = [LanDiscovery(now: now), LanDiscovery(now: now)]
        for side in [0, 1] {
            machines[side].add(7, listening: secrets[1 - side], announcing: secrets[side])
            setInterface(side, prefix: 24, port: 7_440)
        }
    }

    var isAtEnd: Bool { input.isAtEnd }

    private mutating func setInterface(_ side: Int, prefix: Int, port: UInt16?) {
        let own = LanInterface.Own(address: addresses[side], prefixLength: prefix, port: port)
        let interface = LanInterface(index: 3, name: "eth0", addresses: [own])
        machines[side].setInterfaces([interface], now: now, using: &random)
    }

    mutating func step() throws {
        let side = input.index(below: 2)
        switch input.index(below: 8) {
        case 0:
            now = max(now, min(machines[side].nextDeadline ?? now, now + 120_000))
            let actions = machines[side].advance(now: now, missing: { [7, 8] }, using: &random)
            try take(actions, of: side, answering: nil)
        case 1: if let last = sent.last { try give(last.bytes, to: side, from: last.from) }
        // It is replayed from another address.
        case 2: if let last = sent.last { try give(last.bytes, to: side, from: 2) }
        // It arrives changed.
        case 3:
            guard var changed = sent.last else { return }
            let index = input.index(below: changed.bytes.count)
            changed.bytes[index] ^= max(1, input.byte())
            try give(changed.bytes, to: side, from: changed.from)
        case 4: now += Int64(clamping: min(input.number(), 1 << 36))
        case 5: setInterface(side, prefix: Int(input.byte()) - 8, port: input.index(below: 2) == 0 ? nil : 7_440)
        case 6: try give(input.run(isLong: true), to: side, from: input.index(below: 3))
        default:
            if input.index(below: 2) == 0 { machines[side].linked(7) }
            machines[side].stir(now: now, using: &random)
        }
    }

    private mutating func give(_ bytes: [UInt8], to side: Int, from: Int) throws {
        let source = LanPlace(interface: 3, address: addresses[from], port: 5_000)
        let actions = machines[side].receive(bytes, from: source, now: now, using: &random)
        for case .found(let pair, let place, _) in actions {
            try expect(pair == 7 && place == source, "something was found that was not there")
            try expect(from == 1 - side, "the other one was found where it is not")
        }
        try take(actions, of: side, answering: bytes)
    }

    private mutating func take(_ actions: [LanDiscovery.Action], of side: Int, answering question: [UInt8]?) throws {
        for action in actions {
            switch action {
            case .announce(let bytes, let place):
                try expect(bytes.count <= LanDatagram.byteCountMost && place.address == addresses[side], "announcement")
                sent.append((bytes, side))
            case .answer(let bytes, let place, _):
                try expect(bytes.count <= question?.count ?? 0, "an answer is larger than the question")
                try expect(place.address == addresses[side], "an answer leaves by another address")
                sent.append((bytes, side))
            case .found: break
            }
        }
        if sent.count > 16 { sent.removeFirst() }
    }
}

/// Datagrams of a possible gateway.
let portMappingTargets: [FuzzTarget] = [
    FuzzTarget("pcp", byteCountLimit: 1_200) {
        [PCPRequest.Operation.map(asked), .natPMP(nil), .natPMP(natPMP)].map { operation in
            // An answer has the form of its question; the time replaces our address.
            var bytes = PCPRequest(operation, lifetime: 3_600, client: IPAddress(5, 5, 5, 2)).bytes
            bytes[1] |= 0x80
            return bytes.count >= 12 ? bytes : bytes + [UInt8](repeating: 0, count: 10)
        } + [[0, 0x81, 0, 1, 0, 0, 0, 9]]
    } run: { bytes in
        for operation in [PCPRequest.Operation.map(asked), .natPMP(nil), .natPMP(natPMP)] {
            var exchange = PCPExchange(
                PCPRequest(operation, lifetime: 3_600, client: IPAddress(192, 168, 1, 2)), now: 0)
            guard case .granted(_, let map)? = exchange.receive(bytes) else { continue }
            let message: PCPMessage? =
                if case .natPMP = operation { PCPMessage(natPMP: bytes) } else { PCPMessage(bytes) }
            guard case .answer(0, _, map)? = message else { throw FuzzFailure("another message was granted") }
            try expect(exchange.receive(bytes) == nil, "an exchange ends twice")
            let asked: PCPMap
            switch operation {
            case .map(let map), .natPMP(let map?): asked = map
            case .natPMP(nil): continue
            }
            try expect(
                map.nonce == asked.nonce && map.carrier == asked.carrier && map.innerPort == asked.innerPort,
                "another mapping's answer is taken")
        }
    }
]

private let asked = PCPMap(
    nonce: Array(1...12), carrier: .udp, innerPort: 7_440, outerPort: 7_440, outer: IPAddress(0, 0, 0, 0))
private let natPMP = PCPMap(nonce: [], carrier: .udp, innerPort: 7_440, outerPort: 7_440, outer: asked.outer)
