import Transport

/// Datagrams of a possible gateway.
let portMappingTargets: [FuzzTarget] = [
    FuzzTarget(
        "pcp", byteCountLimit: 1_200,
        seeds: {
            [PCPRequest.Operation.map(asked), .natPMP(nil), .natPMP(natPMP)].map { operation in
                // An answer has the form of its question; the time replaces our address.
                var bytes = PCPRequest(operation, lifetime: 3_600, client: IPAddress(5, 5, 5, 2)).bytes
                bytes[1] |= 0x80
                return bytes.count >= 12 ? bytes : bytes + [UInt8](repeating: 0, count: 10)
            } + [[0, 0x81, 0, 1, 0, 0, 0, 9]]
        },
        run: { bytes in
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
        })
]

private let asked = PCPMap(
    nonce: Array(1...12), carrier: .udp, innerPort: 7_440, outerPort: 7_440, outer: IPAddress(0, 0, 0, 0))
private let natPMP = PCPMap(nonce: [], carrier: .udp, innerPort: 7_440, outerPort: 7_440, outer: asked.outer)
