import Cryptography
import Simulation
import Transport

/// Datagrams of strangers, and packets of an authenticated hostile peer.
let datagramTargets: [FuzzTarget] = [
    FuzzTarget("datagram-stranger", byteCountLimit: 4_096, cost: 10) {
        let peer = FuzzDatagrams()
        let acts = try peer.open()
        return [
            FuzzScript().run(acts[0]).run(acts[1]).bytes, FuzzScript().run(acts[1]).run(acts[1]).bytes,
            FuzzScript().run(acts[1]).run(acts[0]).run(acts[0]).run(acts[2]).bytes,
            FuzzScript().run([0x0d, 0x15, 0] + [UInt8](repeating: 0, count: 40)).bytes,
            FuzzScript().run([0x0d, 0x12] + [UInt8](repeating: 0, count: 16 + Act.two.byteCount)).bytes,
            FuzzScript().run([0x0d, 0x14] + [UInt8](repeating: 0, count: 24)).bytes,
        ]
    } run: { bytes in
        let peer = FuzzDatagrams()
        var input = FuzzInput(bytes)
        while !input.isAtEnd { try peer.give(input.run()) }
        try peer.finish()
    },
    FuzzTarget("datagram-peer", byteCountLimit: 2_048, cost: 20) {
        [
            FuzzScript().run([1]).byte(0).run([3, 0, 5, 0, 0, 0, 1, 7]).bytes,
            FuzzScript().run([2, 0, 0, 0, 0]).byte(9).run([4, 0, 0]).bytes,
            FuzzScript().run([5, 0x80, 0x20, 0, 0]).byte(3).run([6] + [UInt8](repeating: 1, count: 8)).bytes,
            FuzzScript().run([8, 0]).bytes,
            FuzzScript().run([3, 2, 1, 9]).byte(1).run([3, 0, 2, 0, 0]).byte(200).run([1]).bytes,
            FuzzScript().run([2, 5, 0, 1, 0, 1, 1, 0, 0, 0]).byte(0x81).run([1, 0, 0, 0]).bytes,
        ]
    } run: { bytes in
        let peer = FuzzDatagrams()
        try peer.open()
        FuzzTarget.preludeEnded()
        var input = FuzzInput(bytes)
        while !input.isAtEnd {
            // Frames, after an event: time, our messages, another address.
            let frames = input.run()
            try peer.happen(input.byte())
            try peer.give(peer.seal(frames))
        }
        // A timeout of a silent peer takes a hundred steps, so most inputs close the link.
        if FuzzPatience(bytes) == .short { try peer.happen(0b1100_0001) }
        try peer.finish()
    },
]

/// An endpoint and a peer with only the handshake and fixed keys.
final class FuzzDatagrams {
    private static let token = [UInt8](repeating: 0x5a, count: 16)
    private let own = IdentityKey(FuzzDatagrams.key(0x21))
    private let endpoint: DatagramEndpoint
    private var address = DatagramAddress(v4: 0x0a00_0001, port: 4_000)
    private var now: Microseconds = 1_000_000
    private var sealing: Opening?
    private var number: UInt64 = 0
    private var id: UInt64 = 0
    private var epoch: UInt8 = 0
    private var link: UInt64?
    private var answers: [[UInt8]] = []
    private var bytesIn = 0
    private var bytesOut = 0
    private var hasOpened = false
    private var ends = 0

    init() {
        let own = own
        let counter = Counter()
        endpoint = DatagramEndpoint(
            cookieKey: SecretBytes(copying: [UInt8](repeating: 9, count: 32)),
            source: DatagramSource(
                randomBytes: { count in
                    counter.value += 1
                    return (0..<count).map { UInt8(truncatingIfNeeded: counter.value >> (8 * ($0 % 4))) }
                }, makeEphemeral: { FuzzDatagrams.key(0x31) }, encapsulation: .repeating,
                route: { $0 == Self.token ? RouteMatch(identity: own, route: 1, remote: nil) : nil },
                isKnown: { $0 == Self.token }))
    }

    private final class Counter { var value = 0 }

    private static func key(_ byte: UInt8) -> SecretKey {
        guard let key = try? SecretKey(SecretBytes(copying: [UInt8](repeating: byte, count: 32))) else {
            preconditionFailure("a fixed key is good")
        }
        return key
    }

    /// The peer's opening datagrams, made once for all inputs.
    private final class Opening: Sendable {
        let dials: [[UInt8]]
        let answer: [UInt8]
        let finish: [UInt8]
        let sending: PacketCipher

        init(dials: [[UInt8]], answer: [UInt8], finish: [UInt8], sending: consuming PacketCipher) {
            (self.dials, self.answer, self.finish) = (dials, answer, finish)
            self.sending = sending
        }
    }

    private static let opening: Result<Opening, any Error> = Result {
        let peer = FuzzDatagrams()
        var handshake = try LinkHandshake.initiator(
            identity: key(0x11), remote: peer.own.publicKey, ephemeral: key(0x12),
            prologue: Array("mayfly".utf8) + [1, 0x0d] + token, encapsulation: .repeating)
        let act = try handshake.write()
        let dials = [0, 1].map { half in
            [0x0d, 0x11] + token + [1, 2, 3, 4, 5, 6, 7, 8] + [UInt8(half), 0]
                + act.dropFirst(half * act.count / 2).prefix(act.count / 2)
        }
        for dial in dials { try peer.give(dial) }
        guard let answer = peer.answers.first, answer.count == 18 + Act.two.byteCount else {
            throw FuzzFailure("no answer to a good act 1")
        }
        try handshake.read(Array(answer[18...]))
        let finish = [0x0d, 0x13] + answer[10..<18] + (try handshake.write())
        return Opening(dials: dials, answer: answer, finish: finish, sending: handshake.finish().secrets.packetSender)
    }

    @discardableResult func open() throws -> [[UInt8]] {
        let opening = try Self.opening.get()
        for dial in opening.dials { try give(dial) }
        try expect(answers == [opening.answer], "another answer to the same act 1")
        try give(opening.finish)
        guard link != nil else { throw FuzzFailure("no link after a good act 3") }
        id = opening.answer[10..<18].reduce(0) { $0 << 8 | UInt64($1) }
        sealing = opening
        return opening.dials + [opening.finish]
    }

    func seal(_ frames: [UInt8]) -> [UInt8] {
        var packet: [UInt8] = [0x0d, 0x15, epoch]
        for value in [id, number] { packet += (0..<8).map { UInt8(truncatingIfNeeded: value >> UInt64(56 - 8 * $0)) } }
        packet += frames
        sealing?.sending.seal(&packet, headerByteCount: 19, number: number)
        number += 1
        return packet
    }

    func happen(_ what: UInt8) throws {
        switch what >> 6 {
        case 0: try pass(Microseconds(what & 63) * 20_000)
        case 1:
            guard let link else { return }
            try? endpoint.send([UInt8](repeating: what, count: Int(what & 63) * 100), on: link, at: now)
            try settle()
        case 2: address = DatagramAddress(v4: 0x0a00_0001 + UInt32(what & 3), port: 4_000)
        default:
            guard let link else { return }
            if what & 1 == 0 { endpoint.networkChanged(at: now) } else { endpoint.close(link, at: now) }
            try settle()
        }
    }

    func give(_ datagram: [UInt8]) throws {
        bytesIn += datagram.count
        endpoint.receive(datagram, from: address, at: now)
        try settle()
    }

    private func pass(_ time: Microseconds) throws {
        let end = now + time
        var steps = 0
        while let deadline = endpoint.nextDeadline, deadline <= end {
            steps += 1
            try expect(steps < 20_000, "an endpoint wants to be told the time again and again")
            now = max(now, deadline)
            endpoint.timeout(at: now)
            try settle()
        }
        now = end
    }

    private func settle() throws {
        var datagrams = 0
        repeat {
            while let event = endpoint.nextEvent() {
                switch event {
                case .opened(let opening):
                    link = opening.number
                    hasOpened = true
                case .readable(let number): while endpoint.read(number, at: now) != nil {}
                case .closed: ends += 1
                case .knocked(let knock): endpoint.answer(knock, with: [1])
                case .answered, .writable, .pathChanged, .dialFailed, .knockEnded, .observed, .punched, .rejected: break
                }
            }
            while let transmit = endpoint.poll(at: now) {
                datagrams += 1
                try expect(datagrams < 20_000, "an endpoint sends without end")
                bytesOut += transmit.bytes.count
                if !hasOpened { answers.append(transmit.bytes) }
            }
        } while endpoint.hasEvents
        if !hasOpened { try expect(bytesOut <= bytesIn, "more goes out than has come in") }
    }

    func finish() throws {
        try pass(400_000_000)
        try expect(endpoint.connectionCount == 0 && endpoint.nextDeadline == nil, "a connection has no end")
        try expect(ends <= 1 || !hasOpened || ends < 64, "a link ends more than once")
    }
}
