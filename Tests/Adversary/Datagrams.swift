import Cryptography
import Foundation
import Messaging
import Transport

/// Floods over UDP with packets coded by hand from the page DatagramLinks, from 64 addresses in networks of their own.
/// A stranger must get no byte, and a sender with a token no more bytes than it sent.
struct Datagrams: Attackers {
    private static let sources = 32
    private static let batch = 64

    let target: Target
    let effort: Effort

    /// Protocol byte, version 1, kind.
    private static func header(_ kind: UInt8) -> [UInt8] { [0x0D, 0x10 | kind] }

    private static func dial(_ token: [UInt8], _ actOne: [UInt8]) -> [[UInt8]] {
        let dialer = randomBytes(8)
        return [0, 1].map { half in
            header(1) + token + dialer + [UInt8(half), 0]
                + actOne.dropFirst(half * actOne.count / 2).prefix(actOne.count / 2)
        }
    }

    private static func actOne(_ token: [UInt8], remote: PublicKey) -> [UInt8]? {
        let handshake = try? LinkHandshake.initiator(
            identity: makeIdentity().secret, remote: remote, ephemeral: SecretKey.generate(),
            prologue: Array("mayfly".utf8) + [1, 0x0D] + token)
        guard var handshake else { return nil }
        return try? handshake.write()
    }

    private func token(_ number: Int) -> [UInt8] { SharedTokens.cached(target)[number].bytes }

    /// Every kind of packet that needs no token, valid and broken.
    func garbage() -> Tally {
        flood(isSilent: true) { number in
            switch number % 4 {
            case 0: [randomBytes(1 + number % 1_472)]
            case 1: [Self.header(UInt8(number / 4 % 16)) + randomBytes(number % 90)]
            // A dial with an unknown token, and an act 1 that would cost a curve operation.
            case 2: Self.dial(randomBytes(16), [0, 2] + randomBytes(Act.one.byteCount - 2))
            default: [Self.header(5) + [0] + randomBytes(16 + 1_181)]
            }
        }
    }

    func punches() -> Tally { flood(isSilent: true) { _ in [Self.header(10) + randomBytes(16)] } }

    func knocks() -> Tally { flood(isSilent: true) { _ in [Self.header(6) + randomBytes(16 + 8 + 512)] } }

    /// Dials that do not continue after act 1.
    func dials() -> Tally {
        // An act 1 serves many dials: the node's cost is the same, the attacker's is less.
        let acts = (0..<64).compactMap { number in
            Self.actOne(token(number), remote: target.card.key).map { (token(number), $0) }
        }
        guard !acts.isEmpty else { return Tally() }
        return flood(isSilent: false) { number in
            let (token, act) = acts[number % acts.count]
            return Self.dial(token, act)
        }
    }

    /// 20,000 datagrams a second: a first half, and four second halves of an act 1 with a wrong tag. Meanwhile dials
    /// with the same token open in 2 s.
    func noise() -> Tally {
        guard var act = Self.actOne(token(3), remote: target.card.key) else { return Tally() }
        act[40] ^= 1
        let (token, noise, count) = (token(3), act, SharedTokens.cached(target).tokens.count)
        return inParallel(2) { thread, tally in
            if thread == 0 {
                tally = flood(isSilent: false, perSecond: 4_000) { _ in
                    let halves = Self.dial(token, noise)
                    return halves + [halves[1], halves[1], halves[1]]
                }
                tally.count *= 5
                return
            }
            var (slowest, number) = (0.0, 3 + 100 * count)
            repeat {
                usleep(1_000_000)
                number += count
                let start = ContinuousClock.now
                if try !HostileDialer(target, from: number).open(seconds: 2) {
                    tally.failure = "no dial opened in 2 s beside it"
                }
                slowest = max(slowest, (.now - start) / .milliseconds(1))
            } while effort.goesOn
            print("the slowest dial with the same token: \(Int(slowest)) ms")
        }
    }

    func replays() -> Tally {
        guard let act = Self.actOne(token(3), remote: target.card.key) else { return Tally() }
        let dial = Self.dial(token(3), act)
        return flood(isSilent: false) { _ in dial }
    }

    func questions() -> Tally {
        flood(isSilent: false) { number in
            [Self.header(8) + self.token(number) + randomBytes(8) + [UInt8](repeating: 0, count: 8)]
        }
    }

    /// Complete handshakes of dialers that then stay silent.
    func handshakes() -> Tally {
        each { thread, tally in
            let dialer = try HostileDialer(target, from: 40_000 + thread * 97 + tally.count)
            if dialer.open(seconds: 2) { tally.answered += 1 } else { tally.refused += 1 }
            tally.count += 1
        }
    }

    /// Invalid packets for the dialers' own open links, from their address and from others.
    func sealed() -> Tally {
        each { thread, tally in
            let dialer = try HostileDialer(target, from: 50_000 + thread)
            guard dialer.open(seconds: 60), let id = dialer.peerID else { throw Failure("no link over UDP") }
            let others = try RawDatagrams(from: 1_000..<1_000 + Self.sources, to: target.address)
            var number: UInt64 = 1
            while effort.goesOn(tally) {
                for index in 0..<Self.batch {
                    number += 1
                    let counter = (0..<8).map { UInt8(truncatingIfNeeded: number >> (56 - 8 * $0)) }
                    let packet = Self.header(5) + [0] + id + counter + randomBytes(64)
                    if index % 2 == 0 { dialer.sockets.send(packet, by: 0) } else { others.send(packet, by: index) }
                    tally.count += 1
                }
                dialer.sockets.drain()
                others.drain()
            }
            // Garbage from another address must not move the link or be answered.
            if others.received > 0 { tally.failure = "\(others.received) answers to elsewhere" }
        }
    }

    private func flood(isSilent: Bool, perSecond rate: Int = .max, _ packets: @escaping @Sendable (Int) -> [[UInt8]])
        -> Tally
    {
        effort.flood(isSilent: isSilent, perSecond: rate) { thread -> RawDatagrams in
            let first = 20_000 + thread * Self.sources
            return try RawDatagrams(from: first..<first + Self.sources, to: target.address)
        } with: { number, index, sockets in
            for packet in packets(number) { sockets.send(packet, by: index) }
        }
    }

    private func each(_ attempt: @escaping @Sendable (Int, inout Tally) throws -> Void) -> Tally {
        inParallel(effort.threads) { thread, tally in while effort.goesOn(tally) { try attempt(thread, &tally) } }
    }
}

/// A dialer that opens a valid link over UDP, cookies included, and then deviates.
private final class HostileDialer {
    let sockets: RawDatagrams
    private let endpoint: DatagramEndpoint
    private let dial: DatagramDial
    private(set) var peerID: [UInt8]?

    init(_ target: Target, from number: Int) throws {
        sockets = try RawDatagrams(from: number..<number + 1, to: target.address)
        var limits = DatagramLimits()
        // `open` has the timeout.
        limits.actTimeout = 60_000_000
        limits.handshakeTimeout = 60_000_000
        endpoint = DatagramEndpoint(
            limits: limits, cookieKey: SecretBytes(copying: randomBytes(32)),
            source: DatagramSource(randomBytes: { randomBytes($0) }, makeEphemeral: { SecretKey.generate() }))
        dial = DatagramDial(
            address: DatagramAddress(v4: target.address.host, port: target.address.port),
            token: SharedTokens.cached(target)[number].bytes, identity: makeIdentity(), remote: target.card.key,
            route: 1)
    }

    private static let start = ContinuousClock.now
    private var now: Microseconds { Microseconds((.now - Self.start) / .microseconds(1)) }

    func open(seconds: Double) -> Bool {
        let number = endpoint.dial(dial, at: now)
        let end = ContinuousClock.now + .seconds(seconds)
        while ContinuousClock.now < end {
            while let transmit = endpoint.poll(at: now) {
                // The first sealed packet has the node's id after the epoch.
                if transmit.bytes[1] == 0x15 { peerID = Array(transmit.bytes[3..<11]) }
                sockets.send(transmit.bytes, by: 0)
            }
            while let bytes = sockets.receive(at: 0) { endpoint.receive(bytes, from: dial.address, at: now) }
            while let event = endpoint.nextEvent() { if case .dialFailed = event { return false } }
            if endpoint.link(number) != nil, peerID != nil { return true }
            if let deadline = endpoint.nextDeadline, deadline <= now { endpoint.timeout(at: now) }
            usleep(200)
        }
        return false
    }
}
