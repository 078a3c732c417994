import Cryptography
import Foundation
import Glibc
import Transport

/// Floods of the LAN discovery group by a neighbour with 512 addresses, each with its own port. A sender without a
/// pair's tag must get no byte, and a replayer no more bytes than it sends.
struct Neighbours: Attackers {
    private static let sources: UInt32 = 256

    let target: Target
    let effort: Effort

    /// Garbage of any length, with and without a valid beginning.
    func garbage() -> Tally {
        flood(isSilent: true) { number, _ in
            switch number % 4 {
            case 0: randomBytes(number % 1_473)
            case 1: [1, 1] + randomBytes(number % 1_400)
            // A later version and an unknown kind, otherwise valid.
            case 2: [2, 1] + randomBytes(138)
            default: [1, 3] + randomBytes(1_034)
            }
        }
    }

    /// Announcements and answers in every valid form, with unknown tags.
    func strangers() -> Tally {
        flood(isSilent: true) { number, _ in
            let count = 8 << (number / 2 % 4)
            return [1, UInt8(1 + number % 2), 0x1D, 0x10] + randomBytes(8 + 16 * count)
        }
    }

    /// A member's valid announcement, replayed from its own and all other addresses. It names a port that the attacker
    /// reads.
    func replays() -> Tally {
        let secret: LanSecret
        // The secret that the node shares with a member that is offline.
        do { secret = try target.member(from: nil).secret.lan } catch { return inParallel(1) { _, _ in throw error } }
        let now = Int64(Date().timeIntervalSince1970 * 1_000)
        let slot = now / LanLimits.slotLength
        return flood(isSilent: false) { _, sockets in
            if let known = sockets.replayed { return known }
            guard let address = IPAddress(bigEndianBytes(sockets.addresses[0])) else { return [] }
            let nonce = UInt64.random(in: 0...(.max))
            let port = sockets.ports[0]
            let proof = secret.proof(slot: slot, nonce: nonce, port: port, address: address)
            let entry = LanDatagram.Entry(tag: secret.tag(slot: slot), proof: proof)
            var random = SystemRandomNumberGenerator()
            let datagram = LanDatagram(.announcement, port: port, nonce: nonce, entries: [entry], using: &random)
            sockets.replayed = datagram.bytes
            return datagram.bytes
        }
    }

    private func bigEndianBytes(_ value: UInt32) -> [UInt8] {
        (0..<4).map { UInt8(truncatingIfNeeded: value >> (24 - 8 * $0)) }
    }

    private func flood(isSilent: Bool, _ packet: @escaping @Sendable (Int, LanSockets) -> [UInt8]) -> Tally {
        effort.flood(isSilent: isSilent) { thread -> LanSockets in
            guard let place = target.neighbourhood else { throw Failure("no neighbourhood") }
            try Neighbourhood.enter(place.neighbour)
            let first = place.first + UInt32(thread) * Self.sources
            return try LanSockets(first..<first + Self.sources, device: place.device)
        } with: { number, index, sockets in
            sockets.announce(packet(number, sockets), by: index)
        }
    }
}
