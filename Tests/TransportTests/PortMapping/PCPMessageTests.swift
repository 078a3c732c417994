import Cryptography
import Testing
import Transport

@Suite("PCP messages") struct PCPMessageTests {
    private let map = PCPMap(nonce: Array(1...12), carrier: .udp, innerPort: 7_440, outerPort: 40_000, outer: outer)

    /// An answer in the layout of RFC 6887, sections 7.2 and 11.1.
    private func answer(result: UInt8 = 0, opcode: UInt8 = 1, body: [UInt8]? = nil) -> [UInt8] {
        let header: [UInt8] =
            [2, 0x80 | opcode, 0, result, 0, 0, 0x0e, 0x10, 0, 1, 0, 0] + [UInt8](repeating: 0, count: 12)
        let own: [UInt8] =
            Array(1...12) + [17, 0, 0, 0, 0x1d, 0x10, 0x9c, 0x40] + [UInt8](repeating: 0, count: 10) + [
                0xff, 0xff, 5, 5, 5, 2,
            ]
        return header + (body ?? (opcode == 1 ? own : []))
    }

    @Test func `A request has the 60 bytes of RFC 6887`() {
        let mapped: [UInt8] = [UInt8](repeating: 0, count: 10) + [0xff, 0xff]
        let bytes = PCPRequest(.map(map), lifetime: 3_600, client: local).bytes
        #expect(bytes.count == 60)
        #expect(Array(bytes.prefix(24)) == [2, 1, 0, 0, 0, 0, 0x0e, 0x10] + mapped + [192, 168, 1, 2])
        #expect(Array(bytes.suffix(36)) == Array(answer().suffix(36)))
        let six = PCPRequest(.map(map), lifetime: 0, client: local6).bytes
        #expect(Array(six[8..<24]) == [0x2a, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2])
    }

    @Test func `An answer is read: result, lifetime, and the assigned mapping`() {
        #expect(PCPMessage(answer()) == .answer(result: 0, lifetime: 3_600, map: map))
        #expect(PCPMessage(answer(result: 2)) == .answer(result: 2, lifetime: 3_600, map: map))
        // Unsolicited options are ignored.
        #expect(PCPMessage(answer() + [1, 0, 0, 4, 9, 9, 9, 9]) == PCPMessage(answer()))
        // The answer of an old NAT-PMP server to an unknown version.
        #expect(PCPMessage([0, 0x81, 0, 1, 0, 0, 0, 9]) == .otherVersion)
        #expect(PCPMessage([0, 0x81, 0, 0, 0, 0, 0, 9]) == nil, "it is none of ours")
    }

    @Test func `An answer that is cut at any byte, too long, or not in whole words is refused`() {
        let whole = answer()
        for whole in [whole, answer(result: 8)] {
            for count in 0..<whole.count { #expect(PCPMessage(Array(whole.prefix(count))) == nil, "\(count)") }
        }
        for extra in 1...3 { #expect(PCPMessage(whole + [UInt8](repeating: 0, count: extra)) == nil) }
        #expect(PCPMessage(whole + [UInt8](repeating: 0, count: 1_100 - whole.count)) != nil)
        #expect(PCPMessage(whole + [UInt8](repeating: 0, count: 1_104 - whole.count)) == nil)
    }

    @Test func `Requests, other operations and other protocols are refused as answers`() {
        #expect(PCPMessage(PCPRequest(.map(map), lifetime: 1, client: local).bytes) == nil)
        for opcode: UInt8 in [0, 2, 3, 127] { #expect(PCPMessage(answer(opcode: opcode, body: [])) == nil) }
        for carrier: UInt8 in [0, 1, 7, 255] {
            var bytes = answer()
            bytes[36] = carrier
            #expect(PCPMessage(bytes) == nil)
        }
    }

    @Test func `A nonce is the same for the same mapping of the same home, and different for every other`() {
        let key = [UInt8](repeating: 7, count: 32)
        var seen: Set<[UInt8]> = []
        for place in [here, elsewhere, here6] {
            for carrier in MappingCarrier.allCases {
                let nonce = PCPNonce.derive(key: key, place, carrier)
                #expect(nonce.count == 12 && nonce == PCPNonce.derive(key: key, place, carrier))
                seen.insert(nonce)
                seen.insert(PCPNonce.derive(key: [UInt8](repeating: 8, count: 32), place, carrier))
            }
        }
        #expect(seen.count == 12)
    }

    @Test func `NAT-PMP's requests and answers have the bytes of RFC 6886, and only the matching answer is taken`() {
        let asked = PCPMap(nonce: [], carrier: .udp, innerPort: 7_440, outerPort: 40_000, outer: IPAddress(0, 0, 0, 0))
        let request = PCPRequest(.natPMP(asked), lifetime: 3_600, client: local)
        let ports: [UInt8] = [0x1d, 0x10, 0x9c, 0x40]
        #expect(PCPRequest(.natPMP(nil), lifetime: 0, client: local).bytes == [0, 0])
        #expect(request.bytes == [0, 1, 0, 0] + ports + [0, 0, 0x0e, 0x10])
        let address: [UInt8] = [0, 128, 0, 0, 0, 1, 0, 0, 5, 5, 5, 2]
        let mapped: [UInt8] = [0, 129, 0, 0, 0, 1, 0, 0] + ports + [0, 0, 0x0e, 0x10]
        for (whole, operation) in [(address, PCPRequest.Operation.natPMP(nil)), (mapped, .natPMP(asked))] {
            for count in 0..<whole.count { #expect(PCPMessage(natPMP: Array(whole.prefix(count))) == nil, "\(count)") }
            var machine = exchange(operation)
            for strange in [mapped, address, [0, 130] + mapped.dropFirst(2), answer()] where strange != whole {
                #expect(machine.receive(strange) == nil)
            }
            var map = asked
            if operation == .natPMP(nil) {
                map = PCPMap(nonce: [], carrier: .tcp, innerPort: 0, outerPort: 0, outer: outer)
            }
            let lifetime: UInt32 = operation == .natPMP(nil) ? 0 : 3_600
            #expect(machine.receive(whole) == .granted(lifetime: lifetime, map: map))
        }
        for code: UInt8 in 1...5 {
            let expected: MappingFailure = code == 1 || code == 5 ? .unsupported : .refused(Int(code))
            // RFC 6886, section 3.5: with an error the mapping may be missing, or zero.
            for rest in [[0, 0, 0, 9], Array(mapped.dropFirst(4)), [UInt8](repeating: 0, count: 12)] {
                var machine = exchange(.natPMP(asked))
                #expect(machine.receive([0, 129, 0, code] + rest) == .failed(expected))
            }
        }
        for opcode: UInt8 in [128, 130] {
            var machine = exchange(.natPMP(asked))
            #expect(machine.receive([0, opcode, 0, 2, 0, 0, 0, 9]) == nil, "another request's")
        }
        var addressless = exchange(.natPMP(nil))
        #expect(addressless.receive([0, 128, 0, 3, 0, 0, 0, 9]) == .failed(.refused(3)))
        var modern = exchange(.natPMP(nil))
        #expect(modern.receive([2, 128, 0, 1] + [UInt8](repeating: 0, count: 20)) == .failed(.unsupported))
    }

    private func exchange(_ operation: PCPRequest.Operation? = nil) -> PCPExchange {
        PCPExchange(PCPRequest(operation ?? .map(map), lifetime: 3_600, client: local), now: 1_000)
    }

    @Test func `A question is sent four times in 3.75 s, and then fails`() {
        var machine = exchange()
        let bytes = PCPRequest(.map(map), lifetime: 3_600, client: local).bytes
        var now: Int64 = 1_000
        for wait: Int64 in [250, 500, 1_000, 2_000] {
            #expect(machine.advance(now: now) == .send(bytes))
            #expect(machine.advance(now: now) == nil && machine.deadline == now + wait)
            #expect(machine.advance(now: now + wait - 1) == nil)
            now += wait
        }
        #expect(machine.advance(now: now) == .failed(.silent))
        #expect(machine.advance(now: now + 9_000) == nil && machine.receive(answer()) == nil, "over")
    }

    @Test func `Only the matching answer ends a question: nonce, protocol, inner port and operation`() {
        for (index, value) in [(24, 9), (35, 9), (36, 6), (41, 9), (1, 0x80)] as [(Int, UInt8)] {
            var machine = exchange()
            _ = machine.advance(now: 1_000)
            var strange = answer()
            strange[index] = value
            #expect(machine.receive(strange) == nil, "byte \(index)")
            #expect(machine.receive(answer(opcode: 0)) == nil)
            #expect(machine.receive(answer()) == .granted(lifetime: 3_600, map: map))
        }
    }

    @Test func `Each refusal of RFC 6887, another version, and a closed port fail the question`() {
        for code: UInt8 in 1...13 {
            var machine = exchange()
            let expected: MappingFailure = code == 1 || code == 4 ? .unsupported : .refused(Int(code))
            #expect(machine.receive(answer(result: code)) == .failed(expected))
        }
        var old = exchange()
        #expect(old.receive([0, 0x81, 0, 1]) == .failed(.unsupported))
        #expect(old.unreachable() == nil, "over")
        var nobody = exchange()
        #expect(nobody.unreachable() == .failed(.unsupported))
    }
}
