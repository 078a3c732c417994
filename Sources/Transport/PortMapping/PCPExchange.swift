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
