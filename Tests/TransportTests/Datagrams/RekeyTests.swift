import Cryptography
import Testing

@testable import Transport

@Suite struct RekeyTests {
    private func pair(_ seed: UInt64, _ change: (inout DatagramLimits) -> Void = { _ in }) throws -> Pair {
        var limits = DatagramLimits()
        change(&limits)
        let pair = Pair(seed: seed, Conditions(), limits: limits)
        try #require(pair.open())
        return pair
    }

    @Test func `a link replaces its keys every 120 seconds and refuses packets under old keys`() throws {
        let pair = try pair(1)
        let (near, far) = (try #require(pair.nearLink), try #require(pair.farLink))
        let hash = near.keyHash
        pair.network.run(for: 119_000_000)
        #expect(near.keyEpoch == 0)
        let old = near.forge([1])
        pair.network.run(for: 2_000_000)
        #expect(near.keyEpoch == 1 && far.keyEpoch == 1)
        #expect(near.keyHash == far.keyHash && near.keyHash != hash)
        #expect(near.rekeyCount == 1 && far.rekeyCount == 1)
        #expect(!near.keysAwaitPeer && near.keysDiscardAt == nil && far.keysDiscardAt == nil)
        // A packet sealed with the old keys is refused.
        let before = far.fingerprint
        pair.far.endpoint.receive(old, from: pair.near.address, at: pair.network.now)
        #expect(far.fingerprint == before)
        pair.network.run(for: 600_000_000)
        #expect(near.keyEpoch == 6 && far.keyEpoch == 6 && pair.near.closed.isEmpty && pair.far.closed.isEmpty)
    }

    @Test(arguments: 1...20 as ClosedRange<UInt64>)
    func `a transfer over a lossy network goes on through many rekeys from either side`(seed: UInt64) throws {
        var limits = DatagramLimits()
        limits.rekeyPacketCount = 30
        limits.rekeyPacketDeadline = 10_000
        limits.rekeyAfter = 2_000_000
        limits.rekeyStagger = 0
        var conditions = Conditions()
        conditions.lost = 100
        conditions.reordered = 300
        conditions.jitter = 60_000
        conditions.duplicated = 100
        let pair = Pair(seed: seed, conditions, limits: limits)
        try #require(pair.open())
        pair.near.waiting = makeMessages(300, seed: 1)
        pair.far.waiting = makeMessages(300, seed: 2)
        var earliest = Microseconds.max
        let isDone = pair.network.run(for: 300_000_000) {
            for side in [pair.near, pair.far] { earliest = min(earliest, side.endpoint.nextDeadline ?? earliest) }
            return pair.far.received.count == 300 && pair.near.received.count == 300
        }
        #expect(isDone)
        // The deadline covers keys that are due.
        #expect(earliest >= 0)
        #expect(pair.far.received == pair.near.waiting && pair.near.received == pair.far.waiting)
        let (near, far) = (try #require(pair.nearLink), try #require(pair.farLink))
        #expect(near.rekeyCount > 5 && near.rekeyCount.distance(to: far.rekeyCount).magnitude <= 1)
    }

    @Test func `two simultaneous rekeys make one set of keys`() throws {
        let pair = try pair(3) { $0.rekeyStagger = 0 }
        pair.network.run(for: 61_000_000)
        let (near, far) = (try #require(pair.nearLink), try #require(pair.farLink))
        try begin(near)
        try begin(far)
        pair.near.endpoint.touch(near.localID)
        pair.far.endpoint.touch(far.localID)
        pair.network.run(for: 2_000_000)
        #expect(near.keyEpoch == 1 && far.keyEpoch == 1)
        #expect(near.keyHash == far.keyHash)
        #expect(near.isRekeyIdle && far.isRekeyIdle)
    }

    @Test func `a link closes after 180 seconds if its peer takes no part in rekeying`() throws {
        let pair = try pair(4) { $0.rekeyAfter = 120_000_000 }
        // A side whose new keys wait for the peer's first packet takes part in no other handshake.
        let far = try #require(pair.farLink)
        var random = SplitMix64(state: 1)
        let mine = makeSecretKey(&random)
        let theirs = makeSecretKey(&random)
        var ours = try LinkHandshake.initiator(
            identity: mine, remote: theirs.publicKey, ephemeral: makeSecretKey(&random), prologue: [])
        var other = LinkHandshake.responder(identity: theirs, ephemeral: makeSecretKey(&random), prologue: [])
        try other.read(ours.write())
        try ours.read(other.write())
        try other.read(ours.write())
        far.keys.offer(ours.finishForPackets())
        #expect(pair.network.run(for: 200_000_000) { !pair.near.closed.isEmpty })
        #expect(pair.near.closed.values.first == .rekeyOverdue)
        #expect(pair.network.now > 180_000_000)
    }

    @Test func `a link closes after too many packets under old keys`() throws {
        let pair = try pair(5) {
            $0.rekeyPacketCount = .max
            $0.rekeyPacketDeadline = 200
        }
        pair.near.waiting = makeMessages(600, seed: 1)
        #expect(pair.network.run(for: 100_000_000) { !pair.near.closed.isEmpty || !pair.far.closed.isEmpty })
        #expect(pair.near.closed.values.contains(.rekeyOverdue) || pair.far.closed.values.contains(.rekeyOverdue))
    }

    @Test func `a peer that begins a rekey before half the keys' time violates the protocol`() throws {
        let pair = try pair(7)
        pair.network.run(for: 59_000_000)
        let far = try #require(pair.farLink)
        try begin(far)
        pair.far.endpoint.touch(far.localID)
        pair.network.run(for: 1_000_000)
        #expect(pair.near.closed.values.first == .protocolViolation)
        #expect(pair.far.closed.values.first == .closedByPeer)
    }

    @Test func `a rekey needs no inbox key, so it works after the key is wiped`() throws {
        let pair = try pair(8)
        for side in [pair.near, pair.far] { side.identity.wipe() }
        pair.network.run(for: 300_000_000)
        let (near, far) = (try #require(pair.nearLink), try #require(pair.farLink))
        #expect(near.keyEpoch == 2 && far.keyEpoch == 2 && pair.near.closed.isEmpty && pair.far.closed.isEmpty)
        // The rekey uses fresh keys, not the identity keys.
        #expect(near.identities.own?.publicKey != pair.near.identity.publicKey)
        #expect(near.identities.remote == far.identities.own?.publicKey)
    }

    @Test func `a link accepts only one key from its peer, also repeated, and never its own`() throws {
        let pair = try pair(9)
        pair.network.run(for: 12_000_000)
        let (near, far) = (try #require(pair.nearLink), try #require(pair.farLink))
        let known = try #require(far.identities.own).publicKey
        var random = SplitMix64(state: 1)
        #expect(near.identities.receive(known.bytes) && near.identities.remote == known)
        #expect(!near.identities.receive(makeSecretKey(&random).publicKey.bytes) && near.identities.remote == known)
        var fresh = LinkIdentities()
        let own = fresh.send(near.source.makeEphemeral)
        #expect(!fresh.areKnown && !fresh.receive(own.bytes) && !fresh.receive([UInt8](repeating: 0, count: 33)))
        #expect(fresh.receive(known.bytes) && !fresh.areKnown)
        fresh.lost()
        #expect(fresh.isOwed && fresh.send(near.source.makeEphemeral) == own)
        fresh.acknowledged()
        #expect(fresh.areKnown && !fresh.isOwed)
    }

    // MARK: Every state and act

    private func begin(_ link: DatagramLink) throws {
        link.rekeying.begin(
            identity: try #require(link.identities.own), remote: try #require(link.identities.remote), keys: link.keys,
            ephemeral: link.source.makeEphemeral())
    }

    private func give(_ act: Rekeying.Outgoing, to link: DatagramLink) throws -> String {
        let outcome = link.rekeying.receive(
            act.act, epoch: act.epoch, act.bytes, identity: try #require(link.identities.own),
            remote: try #require(link.identities.remote), keys: link.keys, makeEphemeral: link.source.makeEphemeral)
        switch consume outcome {
        case .nothing: return "nothing"
        case .offered: return "offered"
        case .installed: return "installed"
        case .violation: return "violation"
        }
    }

    @Test func `rekey acts out of turn change nothing, and a forged act is a violation`() throws {
        let pair = try pair(6)
        let (a, b) = (try #require(pair.nearLink), try #require(pair.farLink))
        // The first keep-alive carries each side's key to the other.
        pair.network.run(for: 12_000_000)
        let keys = (try #require(a.identities.own), try #require(b.identities.own))
        let (small, large) = keys.0.publicKey < keys.1.publicKey ? (a, b) : (b, a)
        // idle: acts 2 and 3 match no handshake.
        try begin(large)
        let foreign = try #require(large.rekeyAct)
        #expect(try give(.init(act: .two, epoch: 1, bytes: foreign.bytes), to: small) == "nothing")
        #expect(try give(.init(act: .three, epoch: 1, bytes: foreign.bytes + foreign.bytes), to: small) == "nothing")
        #expect(small.isRekeyIdle)
        // Only the next epoch is accepted.
        for epoch in [0, 2, 255] as [UInt8] {
            #expect(try give(.init(act: .one, epoch: epoch, bytes: foreign.bytes), to: small) == "nothing")
        }
        #expect(small.isRekeyIdle)
        // initiating: the smaller key goes on, act 3 means nothing, a forged act 2 is a violation.
        try begin(small)
        let actOne = try #require(small.rekeyAct)
        #expect(try give(foreign, to: small) == "nothing" && small.rekeyAct?.act == .one)
        #expect(try give(.init(act: .three, epoch: 1, bytes: foreign.bytes), to: small) == "nothing")
        // The side with the larger key gives up its own handshake.
        #expect(try give(actOne, to: large) == "nothing")
        let actTwo = try #require(large.rekeyAct)
        #expect(actTwo.act == .two)
        // answering: repeated acts 1 and 2 mean nothing.
        #expect(try give(actOne, to: large) == "nothing" && give(actTwo, to: large) == "nothing")
        #expect(large.rekeyAct?.bytes == actTwo.bytes)
        #expect(try give(actTwo, to: small) == "offered")
        let actThree = try #require(small.rekeyAct)
        #expect(actThree.act == .three && small.isRekeyIdle)
        var forged = actThree.bytes
        forged[40] ^= 1
        #expect(try give(.init(act: .three, epoch: 1, bytes: forged), to: large) == "violation")
        // The violation ends the link; the rekey is idle.
        #expect(large.isRekeyIdle)
    }
}

// `#expect` cannot take noncopyable values.
extension DatagramLink {
    var keyEpoch: UInt8 { keys.epoch }
    var keyHash: [UInt8] { keys.handshakeHash }
    var keysAwaitPeer: Bool { keys.awaitsPeer }
    var keysDiscardAt: Microseconds? { keys.discardAt }
    var isRekeyIdle: Bool { rekeying.isIdle }
    var rekeyAct: Rekeying.Outgoing? { rekeying.outgoing }
}
