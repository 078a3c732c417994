import Cryptography

/// A request to a PCP server (RFC 6887, sections 7.1 and 11.1) for a mapping: 60 bytes. Numbers are big-endian,
/// addresses 16 bytes, IPv4 as `::ffff:a.b.c.d`. Or a request to a NAT-PMP server at the same port (RFC 6886, sections
/// 3.2 and 3.3): 2 bytes, or 12 with a mapping.
package struct PCPRequest: Hashable, Sendable {
    package enum Operation: Hashable, Sendable {
        case map(PCPMap)
        /// NAT-PMP: a mapping without a nonce and an address; `nil` asks for the outer address.
        case natPMP(PCPMap?)
    }

    package let operation: Operation
    /// Lifetime of the mapping in seconds; 0 removes it.
    package let lifetime: UInt32
    /// Our address; it must be the packet's source.
    package let client: IPAddress

    package init(_ operation: Operation, lifetime: UInt32, client: IPAddress) {
        self.operation = operation
        self.lifetime = lifetime
        self.client = client
    }

    var isNATPMP: Bool { if case .natPMP = operation { true } else { false } }

    package var bytes: [UInt8] {
        switch operation {
        case .map(let map): [PCPMessage.version, 1, 0, 0] + bigEndian(lifetime) + client.mappedBytes + map.bytes
        case .natPMP(nil): [0, 0]
        case .natPMP(let map?):
            [0, map.carrier == .udp ? 1 : 2, 0, 0] + bigEndian(map.innerPort) + bigEndian(map.outerPort)
                + bigEndian(lifetime)
        }
    }
}

/// The 36 bytes specific to a MAP request and its answer.
package struct PCPMap: Hashable, Sendable {
    static let byteCount = 36

    /// 12 bytes that authorise renewal and removal of the mapping.
    package var nonce: [UInt8]
    package var carrier: MappingCarrier
    package var innerPort: UInt16
    /// Suggested in a request, assigned in an answer; 0 for any.
    package var outerPort: UInt16
    package var outer: IPAddress

    package init(nonce: [UInt8], carrier: MappingCarrier, innerPort: UInt16, outerPort: UInt16, outer: IPAddress) {
        self.nonce = nonce
        self.carrier = carrier
        self.innerPort = innerPort
        self.outerPort = outerPort
        self.outer = outer
    }

    fileprivate var bytes: [UInt8] {
        nonce + [carrier.rawValue, 0, 0, 0] + bigEndian(innerPort) + bigEndian(outerPort) + outer.mappedBytes
    }

    /// - Parameter bytes: `byteCount` of them.
    fileprivate init?(_ bytes: ArraySlice<UInt8>) {
        let start = bytes.startIndex
        guard bytes.count == Self.byteCount, let carrier = MappingCarrier(rawValue: bytes[start + 12]),
            let outer = IPAddress(bytes.suffix(16))
        else { return nil }
        self.init(
            nonce: Array(bytes.prefix(12)), carrier: carrier,
            innerPort: UInt16(truncatingIfNeeded: number(bytes, at: 16, 2)),
            outerPort: UInt16(truncatingIfNeeded: number(bytes, at: 18, 2)), outer: outer)
    }

    func answers(_ request: PCPMap) -> Bool {
        nonce == request.nonce && carrier == request.carrier && innerPort == request.innerPort
    }
}

/// A datagram from the server: of PCP (RFC 6887, section 7.2, and section 9 for other versions), or of NAT-PMP.
package enum PCPMessage: Hashable, Sendable {
    static let version: UInt8 = 2
    static let headerByteCount = 24
    static let byteCountMost = 1_100
    package static let port: UInt16 = 5_351

    /// The lifetime is in seconds.
    case answer(result: UInt8, lifetime: UInt32, map: PCPMap)
    /// The server speaks another version, such as NAT-PMP, which is version 0; or it has no mappings.
    case otherVersion
    /// NAT-PMP: the request with this opcode failed. The answer's other fields may be missing.
    case refusal(opcode: UInt8, result: UInt8)

    package init?(_ bytes: [UInt8]) {
        guard bytes.count >= 4, bytes.count <= Self.byteCountMost, bytes[1] & 0x80 != 0 else { return nil }
        guard bytes[0] == Self.version else {
            // UNSUPP_VERSION, at the same offset in NAT-PMP (RFC 6886, section 3.5).
            guard bytes[3] == 1 else { return nil }
            self = .otherVersion
            return
        }
        // Options may follow; we request none.
        let byteCount = Self.headerByteCount + PCPMap.byteCount
        guard bytes[1] == 0x81, bytes.count >= byteCount, bytes.count % 4 == 0,
            let map = PCPMap(bytes[Self.headerByteCount..<byteCount])
        else { return nil }
        self = .answer(result: bytes[3], lifetime: number(bytes[...], at: 4, 4), map: map)
    }

    /// An answer of NAT-PMP (RFC 6886, sections 3.2, 3.3 and 3.5). The answer with the outer address has port 0.
    package init?(natPMP bytes: [UInt8]) {
        guard bytes.count >= 4, bytes.count <= Self.byteCountMost, bytes[1] & 0x80 != 0 else { return nil }
        let result = number(bytes[...], at: 2, 2)
        // Unsupported version, also of a server that speaks PCP alone, and unsupported opcode.
        if result == 1 || (bytes[0] == 0 && result == 5) || (bytes[0] == Self.version && bytes[3] == 1) {
            self = .otherVersion
            return
        }
        guard bytes[0] == 0, bytes[1] <= 0x82, bytes.count >= 8 else { return nil }
        guard result == 0 else {
            self = .refusal(opcode: bytes[1] & 0x7f, result: UInt8(clamping: result))
            return
        }
        let isMap = bytes[1] != 0x80
        guard bytes.count >= (isMap ? 16 : 12), let outer = isMap ? IPAddress(0, 0, 0, 0) : IPAddress(bytes[8..<12])
        else { return nil }
        let map = PCPMap(
            nonce: [], carrier: bytes[1] == 0x81 ? .udp : .tcp,
            innerPort: isMap ? UInt16(number(bytes[...], at: 8, 2)) : 0,
            outerPort: isMap ? UInt16(number(bytes[...], at: 10, 2)) : 0, outer: outer)
        self = .answer(result: 0, lifetime: isMap ? number(bytes[...], at: 12, 4) : 0, map: map)
    }
}

/// Nonces of our mappings (RFC 6887, section 11.2). Deterministic per mapping, so that a restarted node can renew and
/// remove its earlier mappings. Secret except from observers of the packets.
package enum PCPNonce {
    /// - Parameter key: 32 bytes of the home's.
    /// - Returns: 12 bytes.
    package static func derive(key: [UInt8], _ place: MappingPlace, _ carrier: MappingCarrier) -> [UInt8] {
        let name = place.gateway.mappedBytes + place.local.mappedBytes + bigEndian(place.port) + [carrier.rawValue]
        return Array(HMACSHA256.authenticate(key: key, name).prefix(12))
    }
}

private func number(_ bytes: ArraySlice<UInt8>, at offset: Int, _ count: Int) -> UInt32 {
    bytes.dropFirst(offset).prefix(count).reduce(0) { $0 << 8 | UInt32($1) }
}

/// One request to a server of PCP or NAT-PMP and its answer, without a socket.
/// The request is retransmitted after 250 ms with doubling intervals, four times in all: 3.75 s. RFC 6887, 8.1.1, waits
/// 3 s first and without end; the gateway is one hop away, and there are other methods to try.
package struct PCPExchange {
    package enum Step: Hashable, Sendable {
        case send([UInt8])
        case granted(lifetime: UInt32, map: PCPMap)
        case failed(MappingFailure)
    }

    static let firstWait: Int64 = 250
    static let sendCount = 4

    private let request: PCPRequest
    private var sends = 0
    private var isOver = false
    package private(set) var deadline: Int64

    package init(_ request: PCPRequest, now: Int64) {
        self.request = request
        deadline = now
    }

    package mutating func advance(now: Int64) -> Step? {
        guard !isOver, now >= deadline else { return nil }
        guard sends < Self.sendCount else { return end(.failed(.silent)) }
        deadline = now + Self.firstWait << Int64(sends)
        sends += 1
        return .send(request.bytes)
    }

    /// - Parameter bytes: of a datagram from the server's address and port.
    /// - Returns: `nil` for a datagram that does not answer this request.
    package mutating func receive(_ bytes: [UInt8]) -> Step? {
        guard !isOver, let message = request.isNATPMP ? PCPMessage(natPMP: bytes) : PCPMessage(bytes) else {
            return nil
        }
        switch message {
        case .otherVersion: return end(.failed(.unsupported))
        case .refusal(let opcode, let result):
            return opcode == request.bytes[1] ? end(.failed(.refused(Int(result)))) : nil
        case .answer(let result, let lifetime, let map):
            let isOurs =
                switch request.operation {
                case .natPMP(nil): map.innerPort == 0
                case .map(let asked), .natPMP(let asked?): map.answers(asked)
                }
            guard isOurs else { return nil }
            switch result {
            // 1 and 4: UNSUPP_VERSION, UNSUPP_OPCODE.
            case 0: return end(.granted(lifetime: lifetime, map: map))
            case 1, 4: return end(.failed(.unsupported))
            default: return end(.failed(.refused(Int(result))))
            }
        }
    }

    /// The server's port is unreachable.
    package mutating func unreachable() -> Step? { isOver ? nil : end(.failed(.unsupported)) }

    private mutating func end(_ step: Step) -> Step {
        isOver = true
        return step
    }
}
