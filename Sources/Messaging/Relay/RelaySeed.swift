import Crypto

/// From which an inbox derives its labels at rendezvous nodes: 32 bytes that follow from the inbox's private key, so that
/// they need not be kept where the key is at hand, and die with it. They open nothing; a sleeping inbox's summary and a
/// tombstone hold them.
package struct RelaySeed: FixedBytes {
    package let value: Bytes32
    package init(_ value: Bytes32) { self.value = value }

    /// Of a conversation's inbox, or of one that may become one.
    /// - Parameter generation: rises when a member is gone: see ``RelayGenerations``.
    package init(key: IdentityKey, generation: UInt64) { self.init(key, "mayfly/1 relay inbox", generation) }

    /// Of the contact inbox, for its card.
    package init(card key: IdentityKey) { self.init(key, "mayfly/1 relay card", 0) }

    private init(_ key: IdentityKey, _ purpose: String, _ generation: UInt64) {
        let number = (0..<8).map { UInt8(truncatingIfNeeded: generation >> (56 - 8 * UInt64($0))) }
        let derived = key.secret.withBytes { HKDF.derive(secret: $0, info: Array(purpose.utf8) + number) }
        self.init(unchecked: derived.withBytes { Array($0) })
    }

    /// What a rendezvous node is told: another for each, so that two of them cannot tell which labels are one inbox's.
    package func label(at rendezvous: PublicKey) -> RelayLabel {
        let info = Array("mayfly/1 relay label".utf8) + rendezvous.bytes
        return bytes.withUnsafeBytes { seed in
            let derived = HKDF.derive(secret: seed, info: info)
            return RelayLabel(unchecked: derived.withBytes { Array($0.prefix(RelayLabel.byteCount)) })
        }
    }
}

/// Stands for one inbox of a user at one rendezvous node; those two alone see it.
package struct RelayLabel: FixedBytes {
    package let value: Bytes16
    package init(_ value: Bytes16) { self.value = value }
}

/// What two nodes derive reservations from: their static-static ECDH, and who serves whom.
package final class RelaySecret: Sendable {
    private let shared: SecretBytes
    private let info: [UInt8]

    /// - Parameter own: the contact inbox of one of the two.
    package init(rendezvous: PublicKey, user: PublicKey, own: IdentityKey) {
        let other = own.publicKey == rendezvous ? user : rendezvous
        shared = own.secret.sharedSecret(with: other)
        info = Array("mayfly/1 reservation".utf8) + rendezvous.bytes + user.bytes
    }

    /// The same on both sides, and after a restart of either; no two of them have anything in common to anybody else.
    package func reservation(_ label: RelayLabel) -> ReservationID {
        let derived = shared.withBytes { HKDF.derive(secret: $0, info: info + label.bytes) }
        return ReservationID(unchecked: derived.withBytes { Array($0.prefix(ReservationID.byteCount)) })
    }
}

/// One rendezvous node of ours, as far as endpoints there go.
package struct RelayPlace: Sendable {
    /// Its addresses, the best first.
    package let addresses: [Endpoint]
    package let key: PublicKey
    package let routingSecret: [UInt8]
    let secret: RelaySecret
    /// What is reserved there, or will be with the next question.
    package let reservations: [RelaySeed: ReservationID]
    /// It takes no more of us.
    package let isFull: Bool

    /// `nil` for an inbox for which there is no room there.
    package func reservation(of seed: RelaySeed) -> ReservationID? {
        if let known = reservations[seed] { return known }
        // A new inbox is asked for before anybody can have read its endpoint.
        return isFull ? nil : secret.reservation(seed.label(at: key))
    }

    fileprivate func endpoints(of seed: RelaySeed) -> [Endpoint] {
        guard !addresses.isEmpty, let reservation = reservation(of: seed) else { return [] }
        let relay = RelayAddress(key: key, routingSecret: routingSecret, reservation: reservation)
        return addresses.map { Endpoint(host: $0.host, port: $0.port, relay: relay) }.filter {
            $0.description.utf8.count <= Limits.endpointByteCount
        }
    }
}

extension [RelayPlace] {
    /// Where an inbox is reached through rendezvous nodes: at one of them after the other, each one's best endpoint first.
    package func endpoints(of seed: RelaySeed) -> [Endpoint] {
        guard !isEmpty else { return [] }
        let reserved = map { $0.endpoints(of: seed) }
        var result: [Endpoint] = []
        for rank in 0..<Limits.relayEndpointCount {
            for endpoints in reserved where rank < endpoints.count && result.count < Limits.relayEndpointCount {
                result.append(endpoints[rank])
            }
        }
        return result
    }
}

/// Which generations of reservations an inbox has: the present one, and those that are given up as soon as nobody needs
/// them any more.
///
/// Whoever is gone from a conversation knows the endpoints of those who stay. So each of them takes another reservation,
/// tells the others, and gives the old one up when all have heard, or after ``Limits/relayRetirement``: two that have
/// both changed while there was no link between them must still find each other.
package struct RelayGenerations: Hashable, Sendable, Codable {
    /// One that was replaced.
    package struct Retired: Hashable, Sendable, Codable {
        package var generation: UInt64
        package var until: Timestamp
    }

    package private(set) var current: UInt64 = 0
    /// Oldest first; at most ``Limits/relayRetiredCount``.
    package private(set) var retired: [Retired] = []
    private var changedAt: Timestamp?
    /// Another change is due then.
    package private(set) var dueAt: Timestamp?

    package init() {}

    /// A member is gone. Changes come no faster than others take new descriptions: ``Limits/relayChangeInterval``.
    package mutating func memberGone(now: Timestamp) {
        guard dueAt == nil else { return }
        if let changedAt, now - changedAt < Limits.relayChangeInterval, now >= changedAt {
            dueAt = changedAt + Limits.relayChangeInterval
        } else {
            change(now: now)
        }
    }

    private mutating func change(now: Timestamp) {
        retired.append(Retired(generation: current, until: now + Limits.relayRetirement))
        if retired.count > Limits.relayRetiredCount { retired.removeFirst() }
        current += 1
        changedAt = now
        dueAt = nil
    }

    /// Makes a change that is due.
    /// - Returns: whether there was one.
    package mutating func advance(now: Timestamp) -> Bool {
        guard let dueAt, dueAt <= now else { return false }
        change(now: now)
        return true
    }

    /// Gives up what nobody needs.
    /// - Parameters:
    ///   - isTold: all members have heard of the present one.
    ///   - named: generations that an invite names by which somebody may still come.
    /// - Returns: whether something was.
    package mutating func prune(isTold: Bool, named: Set<UInt64>, now: Timestamp) -> Bool {
        let before = retired.count
        retired.removeAll { one in !named.contains(one.generation) && (isTold || one.until <= now) }
        return retired.count != before
    }

    /// When ``advance(now:)`` or ``prune(isTold:named:now:)`` has something to do by time alone; `nil` for never.
    package func nextDeadline(named: Set<UInt64>) -> Timestamp? {
        let ends = retired.filter { !named.contains($0.generation) }.map(\.until)
        return (ends + [dueAt].compactMap { $0 }).min()
    }
}
