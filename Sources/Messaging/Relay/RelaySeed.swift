import Cryptography

/// An inbox derives its labels from this seed. The seed is an HKDF of the inbox's private key and dies with it. It
/// opens nothing; a sleeping inbox's summary and a tombstone store it.
package struct RelaySeed: FixedBytes {
    package let value: Bytes32
    package init(_ value: Bytes32) { self.value = value }

    /// - Parameter generation: rises when a member is gone: see ``RelayGenerations``.
    package init(key: IdentityKey, generation: UInt64) { self.init(key, "mayfly/1 relay inbox", generation) }

    package init(card key: IdentityKey) { self.init(key, "mayfly/1 relay card", 0) }

    private init(_ key: IdentityKey, _ purpose: String, _ generation: UInt64) {
        let number = (0..<8).map { UInt8(truncatingIfNeeded: generation >> (56 - 8 * UInt64($0))) }
        let derived = key.secret.withBytes { HKDF.derive(secret: $0, info: Array(purpose.utf8) + number) }
        self.init(unchecked: derived.withBytes { Array($0) })
    }

    /// The label differs at each rendezvous node, so two nodes cannot link one inbox's labels.
    package func label(at rendezvous: PublicKey) -> RelayLabel { label("mayfly/1 relay label", at: rendezvous) }

    func label<Label: FixedBytes>(_ purpose: String, at node: PublicKey) -> Label {
        bytes.withUnsafeBytes { seed in
            let derived = HKDF.derive(secret: seed, info: Array(purpose.utf8) + node.bytes)
            return Label(unchecked: derived.withBytes { Array($0.prefix(Label.byteCount)) })
        }
    }
}

/// One inbox of a client at one rendezvous node; known to those two only.
package struct RelayLabel: FixedBytes {
    package let value: Bytes16
    package init(_ value: Bytes16) { self.value = value }
}

/// From which a rendezvous node and its client derive reservations: static-static ECDH, and both keys in their roles.
package final class RelaySecret: Sendable {
    private let shared: SecretBytes
    private let info: [UInt8]

    /// - Parameter own: the contact inbox of one of the two.
    package init(rendezvous: PublicKey, user: PublicKey, own: IdentityKey) {
        let other = own.publicKey == rendezvous ? user : rendezvous
        shared = own.secret.sharedSecret(with: other)
        info = Array("mayfly/1 reservation".utf8) + rendezvous.bytes + user.bytes
    }

    /// Deterministic on both sides. Others cannot link two of them.
    package func reservation(_ label: RelayLabel) -> ReservationID {
        let derived = shared.withBytes { HKDF.derive(secret: $0, info: info + label.bytes) }
        return ReservationID(unchecked: derived.withBytes { Array($0.prefix(ReservationID.byteCount)) })
    }
}

/// One of our rendezvous nodes, as endpoints need it.
package struct RelayPlace: Sendable {
    /// Best first.
    package let addresses: [Endpoint]
    package let key: PublicKey
    package let routingSecret: [UInt8]
    let secret: RelaySecret
    /// Reserved already, or with the next request.
    package let reservations: [RelaySeed: ReservationID]
    package let isFull: Bool

    /// `nil` if the node has no room for the inbox.
    package func reservation(of seed: RelaySeed) -> ReservationID? {
        if let known = reservations[seed] { return known }
        // The request for a new inbox goes out before its endpoint can be read by any member.
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
    /// Round-robin over the rendezvous nodes, each one's best endpoint first.
    package func endpoints(of seed: RelaySeed) -> [Endpoint] {
        let reserved = map { $0.endpoints(of: seed) }
        let ranked = (0..<Limits.relayEndpointCount).flatMap { rank in
            reserved.compactMap { rank < $0.count ? $0[rank] : nil }
        }
        return [Endpoint](ranked.prefix(Limits.relayEndpointCount))
    }
}

/// An inbox's reservation generations: the current one and those to be released.
///
/// A member that is gone knows the endpoints of the remaining members. So each of these takes another reservation,
/// tells the others, and releases the old one when all know. After ``Limits/relayRetirement`` it releases it anyway.
/// Until then two members that both changed while not linked can still find each other.
package struct RelayGenerations: Hashable, Sendable, Codable {
    package struct Retired: Hashable, Sendable, Codable {
        package var generation: UInt64
        package var until: Timestamp
    }

    package private(set) var current: UInt64 = 0
    /// Oldest first; at most ``Limits/relayRetiredCount``.
    package private(set) var retired: [Retired] = []
    private var changedAt: Timestamp?
    package private(set) var dueAt: Timestamp?

    package init() {}

    /// Changes at most once per ``Limits/relayChangeInterval``.
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

    package mutating func advance(now: Timestamp) -> Bool {
        guard let dueAt, dueAt <= now else { return false }
        change(now: now)
        return true
    }

    /// Releases generations that are no longer needed.
    /// - Parameters:
    ///   - isTold: all members know the current one.
    ///   - named: generations in the endpoints of an open invite.
    /// - Returns: whether one was released.
    package mutating func prune(isTold: Bool, named: Set<UInt64>, now: Timestamp) -> Bool {
        let before = retired.count
        retired.removeAll { one in !named.contains(one.generation) && (isTold || one.until <= now) }
        return retired.count != before
    }

    package func nextDeadline(named: Set<UInt64>) -> Timestamp? {
        earliest(retired.filter { !named.contains($0.generation) }.map(\.until).min(), dueAt)
    }
}

/// The seeds of a conversation's reservations at rendezvous nodes, and their deadlines.
struct RelayPlaces: Sendable {
    /// The current seed first, then retired ones still in use. Never empty after a `note` with the key present.
    private(set) var seeds: [RelaySeed] = []
    private var generations: [UInt64] = []
    private(set) var deadline: Timestamp?

    /// Call after each change of ``ConversationRecord/relay``.
    mutating func note(_ relay: RelayGenerations, _ issuer: InviteBook?, key: IdentityKey, now: Timestamp) {
        let known = [relay.current] + relay.retired.map(\.generation).reversed()
        // While locked, seeds cannot be derived; the unlock calls this again.
        if generations != known, !key.isWiped {
            let old = Dictionary(zip(generations, seeds)) { first, _ in first }
            seeds = known.map { old[$0] ?? RelaySeed(key: key, generation: $0) }
            generations = known
        }
        let isHeld = !relay.retired.isEmpty
        let named = isHeld ? issuer?.relayGenerations(now: now) ?? [] : []
        let expiry = isHeld ? issuer?.nextRelayExpiry(now: now) : nil
        deadline = earliest(relay.nextDeadline(named: named), expiry)
    }
}
