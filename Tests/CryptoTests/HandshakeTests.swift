import Testing

@testable import Cryptography

private struct Pair: ~Copyable {
    var initiator: LinkHandshake
    var responder: LinkHandshake

    init(responderPrologue: String = "prologue", encapsulation: KeyEncapsulationSource = KeyEncapsulationSource())
        throws
    {
        let responderKey = try key(0x21)
        let initiator = try LinkHandshake.initiator(
            identity: key(0x11), remote: responderKey.publicKey, ephemeral: key(0x12), prologue: Array("prologue".utf8),
            encapsulation: encapsulation)
        let responder = try LinkHandshake.responder(
            identity: responderKey, ephemeral: key(0x22), prologue: Array(responderPrologue.utf8),
            encapsulation: encapsulation)
        self.initiator = initiator
        self.responder = responder
    }

    /// Passes one act to the other side.
    @discardableResult mutating func step() throws -> [UInt8] {
        guard let act = initiator.nextAct else { return [] }
        let bytes = try write(act)
        try read(act, bytes)
        return bytes
    }

    mutating func write(_ act: Act) throws -> [UInt8] { act == .two ? try responder.write() : try initiator.write() }

    mutating func read(_ act: Act, _ bytes: [UInt8]) throws(HandshakeError) {
        if act == .two { try initiator.read(bytes) } else { try responder.read(bytes) }
    }
}

private func key(_ byte: UInt8) throws -> SecretKey {
    try SecretKey(SecretBytes(copying: [UInt8](repeating: byte, count: 32)))
}

@Suite struct HandshakeTests {
    @Test func `both sides learn each other's key and share one handshake hash`() throws {
        var pair = try Pair()
        for _ in 0..<3 { try pair.step() }
        let (initiatorPeer, responderPeer) = try exchangeFrames(pair.initiator.finish(), pair.responder.finish())
        #expect(initiatorPeer.publicKey == (try key(0x21)).publicKey)
        #expect(responderPeer.publicKey == (try key(0x11)).publicKey)
        #expect(initiatorPeer.handshakeHash == responderPeer.handshakeHash)
        #expect(initiatorPeer.handshakeHash.count == 32)
    }

    private func exchangeFrames(_ first: consuming LinkHandshake.Link, _ second: consuming LinkHandshake.Link) throws
        -> (AuthenticatedPeer, AuthenticatedPeer)
    {
        let peers = (first.peer, second.peer)
        var one = first.takeTransport()
        var two = second.takeTransport()
        #expect(try pass(&one, &two, "there") == Array("there".utf8))
        #expect(try pass(&two, &one, "back") == Array("back".utf8))
        return peers
    }

    @Test(arguments: 0..<3) func `neither side acts out of turn or after the end, and an attempt changes nothing`(
        stage: Int
    ) throws {
        var pair = try Pair()
        for _ in 0..<stage { try pair.step() }
        if stage == 1 {
            #expect(throws: HandshakeError.outOfTurn) { try pair.initiator.write() }
            #expect(throws: HandshakeError.outOfTurn) { try pair.responder.read([UInt8](repeating: 0, count: 50)) }
        } else {
            #expect(throws: HandshakeError.outOfTurn) { try pair.responder.write() }
            #expect(throws: HandshakeError.outOfTurn) { try pair.initiator.read([UInt8](repeating: 0, count: 50)) }
        }
        // The refusal has changed nothing.
        for _ in stage..<3 { try pair.step() }
        let finished = [pair.initiator.isFinished, pair.responder.isFinished]
        #expect(finished == [true, true])
        #expect(throws: HandshakeError.outOfTurn) { try pair.initiator.write() }
        #expect(throws: HandshakeError.outOfTurn) { try pair.initiator.read([]) }
        #expect(throws: HandshakeError.outOfTurn) { try pair.responder.write() }
        #expect(throws: HandshakeError.outOfTurn) { try pair.responder.read([]) }
    }

    @Test(arguments: 0..<3) func `a truncated or lengthened act is refused`(stage: Int) throws {
        let act = try #require(Act(rawValue: stage))
        var pair = try Pair()
        for _ in 0..<stage { try pair.step() }
        let bytes = try pair.write(act)
        #expect(bytes.count == [1_250, 1_154, 66][stage])
        for byteCount in 0...(act.byteCount + 1) where byteCount != act.byteCount {
            #expect(throws: HandshakeError.badLength(act)) {
                try pair.read(act, Array((bytes + [0]).prefix(byteCount)))
            }
        }
    }

    @Test(arguments: 0..<3) func `an act with a flipped bit is refused, and the true act is still accepted`(stage: Int)
        throws
    {
        let act = try #require(Act(rawValue: stage))
        var pair = try Pair()
        for _ in 0..<stage { try pair.step() }
        let bytes = try pair.write(act)
        for index in 0..<act.byteCount {
            // One bit of each byte that is sealed for ML-KEM, every bit of the others.
            let isSealed = act != .three && (34..<act.byteCount - 16).contains(index)
            for bit in isSealed ? index % 8..<index % 8 + 1 : 0..<8 {
                var changed = bytes
                changed[index] ^= 1 << UInt8(bit)
                #expect(throws: HandshakeError.self, "byte \(index), bit \(bit)") { try pair.read(act, changed) }
            }
        }
        try pair.read(act, bytes)
    }

    @Test func `a ciphertext for another ML-KEM key ends the handshake like a wrong tag`() throws {
        let other = KeyEncapsulationSecret.generate().encapsulationKey
        var source = KeyEncapsulationSource()
        source.encapsulate = { _ throws(KeyEncapsulationError) in try KeyEncapsulation(to: other) }
        var pair = try Pair(encapsulation: source)
        try pair.step()
        #expect(throws: HandshakeError.badMAC(.two)) { try pair.step() }
    }

    @Test func `a sealed key that ML-KEM refuses ends the handshake at act 1`() throws {
        var source = KeyEncapsulationSource()
        source.encapsulate = { _ throws(KeyEncapsulationError) in throw .invalidKey }
        var pair = try Pair(encapsulation: source)
        #expect(throws: HandshakeError.badKey(.one)) { try pair.step() }
    }

    /// The keys after `Split` depend on the chaining key alone. The curve's keys are the same here in every run.
    @Test func `the keys of a link depend on the secret of ML-KEM`() throws {
        func firstFrame() throws -> [UInt8] {
            var pair = try Pair()
            for _ in 0..<3 { try pair.step() }
            let initiator = pair.initiator
            let link = initiator.finish()
            #expect(link.peer.isPostQuantum)
            var transport = link.takeTransport()
            return try transport.seal([1, 2, 3])
        }
        #expect(try firstFrame() != firstFrame())
    }

    @Test func `a different prologue makes the handshake fail`() throws {
        var pair = try Pair(responderPrologue: "something else")
        #expect(throws: HandshakeError.badCiphertext(.one)) { try pair.step() }
    }

    @Test func `a dial to our own key is refused`() throws {
        let own = try key(0x11)
        #expect(throws: HandshakeError.reflection) {
            _ = try LinkHandshake.initiator(
                identity: own, remote: own.publicKey, ephemeral: try key(0x12), prologue: [])
        }
    }

    private func initiator(_ remote: UInt8) throws -> LinkHandshake {
        try LinkHandshake.initiator(
            identity: key(0x11), remote: key(remote).publicKey, ephemeral: key(0x12), prologue: [])
    }

    private func responder(_ own: UInt8 = 0x21, ephemeral: UInt8 = 0x22) throws -> LinkHandshake {
        try LinkHandshake.responder(identity: key(own), ephemeral: key(ephemeral), prologue: [])
    }

    @Test func `a dialler that shows our own static key is refused`() throws {
        // A dialler that holds the responder's key: `initiator` refuses such a dial.
        let own = try key(0x21)
        var initiator = try LinkHandshake(.initiator, own, own.publicKey, key(0x12), [])
        var responder = try self.responder()
        try responder.read(initiator.write())
        try initiator.read(responder.write())
        let third = try initiator.write()
        #expect(throws: HandshakeError.reflection) { try responder.read(third) }
    }

    @Test func `an act reflected to its sender is refused`() throws {
        var dialler = try initiator(0x21)
        let first = try dialler.write()
        #expect(throws: HandshakeError.self) { try dialler.read(first) }
        // As the first act of a dial.
        var own = try self.responder(0x11, ephemeral: 0x13)
        #expect(throws: HandshakeError.badCiphertext(.one)) { try own.read(first) }
        // An answer, taken as a dial and as the act that its sender waits for.
        var responder = try self.responder()
        try responder.read(first)
        let second = try responder.write()
        var again = try self.responder()
        let longer = second + [UInt8](repeating: 0, count: first.count - second.count)
        #expect(throws: HandshakeError.badCiphertext(.one)) { try again.read(longer) }
        #expect(throws: HandshakeError.badCiphertext(.three)) { try responder.read(Array(second.prefix(66))) }
    }

    @Test func `a responder with another key is refused by the dialler, for any act 2`() throws {
        var dialler = try initiator(0x33)
        _ = try dialler.write()
        // The same dial to the impostor, whose answer is valid there.
        var other = try initiator(0x21)
        var impostor = try responder()
        try impostor.read(other.write())
        let answer = try impostor.write()
        #expect(throws: HandshakeError.badCiphertext(.two)) { try dialler.read(answer) }
        // Any tag behind a valid point, and a tag of zeros.
        for tag in [[UInt8](repeating: 0, count: 16), [UInt8](repeating: 0xff, count: 16)] {
            #expect(throws: HandshakeError.badCiphertext(.two)) { try dialler.read(answer.dropLast(16) + tag) }
            #expect(throws: HandshakeError.badMAC(.two)) { try other.read(answer.dropLast(16) + tag) }
        }
        try other.read(answer)
    }
}
