import Cryptography
import Simulation

/// The acts of the handshake with fixed keys, and the sealed frames after it.
let handshakeTargets: [FuzzTarget] = [
    FuzzTarget("act-1", byteCountLimit: 1_536, cost: 10, seeds: [try Acts().one]) { bytes in
        let acts = try Acts.recorded.get()
        var responder = Acts.responder()
        try refuseOrTake(bytes, &responder, good: acts.one)
    },
    FuzzTarget("act-2", byteCountLimit: 1_536, cost: 10, seeds: [try Acts().two]) { bytes in
        let acts = try Acts.recorded.get()
        var initiator = try Acts.initiator()
        _ = try initiator.write()
        try refuseOrTake(bytes, &initiator, good: acts.two)
    },
    FuzzTarget("act-3", byteCountLimit: 1_536, cost: 10, seeds: [try Acts().three]) { bytes in
        let acts = try Acts.recorded.get()
        var responder = Acts.responder()
        try responder.read(acts.one)
        _ = try responder.write()
        try refuseOrTake(bytes, &responder, good: acts.three)
    },
    FuzzTarget("sealed-frames", byteCountLimit: 4_096, cost: 10) {
        let plain = FuzzScript().byte(2, 0).run(Array("hello".utf8)).byte(0).run([]).byte(0).run([1, 2, 3])
        return [
            plain.bytes, FuzzScript(plain.bytes).byte(1, 3, 1).run([9, 9]).bytes,
            FuzzScript(plain.bytes).byte(2).run([UInt8](repeating: 0, count: 18)).bytes,
            FuzzScript().byte(1, 3).length(256, doubled: 8).byte(4, 60, 0).run([7]).bytes,
        ]
    } run: {
        try checkSealedFrames($0)
    },
]

private struct Acts {
    let one: [UInt8]
    let two: [UInt8]
    let three: [UInt8]

    static let recorded = Result { try Acts() }
    private static let prologue = Array("fuzz".utf8)

    static func responder() -> LinkHandshake {
        .responder(
            identity: FuzzKeys.bob.secret, ephemeral: FuzzKeys.key(0x42).secret.clone(), prologue: prologue,
            encapsulation: .repeating)
    }

    static func initiator() throws -> LinkHandshake {
        try .initiator(
            identity: FuzzKeys.ann.secret, remote: FuzzKeys.bob.publicKey, ephemeral: FuzzKeys.key(0x41).secret.clone(),
            prologue: prologue, encapsulation: .repeating)
    }

    init() throws {
        var initiator = try Self.initiator()
        var responder = Self.responder()
        one = try initiator.write()
        try responder.read(one)
        two = try responder.write()
        try initiator.read(two)
        three = try initiator.write()
        try responder.read(three)
    }
}

/// A refused act leaves the handshake unchanged: the valid act is still accepted. This check costs two curve
/// operations, so only one input in 16 makes it.
private func refuseOrTake(_ bytes: [UInt8], _ handshake: inout LinkHandshake, good: [UInt8]) throws {
    let before = handshake.nextAct
    do throws(HandshakeError) {
        try handshake.read(bytes)
        // A changed act may be valid, because any dialer can make an act 1 for a known key.
        return
    } catch { try expect(handshake.nextAct == before, "a refused act moves the handshake") }
    guard bytes.reduce(0, ^) & 15 == 0 else { return }
    do throws(HandshakeError) { try handshake.read(good) } catch {
        throw FuzzFailure("after a refused act the good one is refused: \(error)")
    }
}

/// A script of two ends: 0 sends a frame, 1 one with a changed byte, 2 foreign bytes, 3 a frame of some length, 4 empty
/// frames. The first byte sets how many frames remain before key rotation.
@Sendable private func checkSealedFrames(_ bytes: [UInt8]) throws {
    func key(_ byte: UInt8) -> SecretBytes { SecretBytes(copying: [UInt8](repeating: byte, count: 32)) }
    var input = FuzzInput(bytes)
    // A frame takes two nonces, and a key has 1,000.
    let nonce = 998 - 2 * UInt64(input.byte() & 63)
    var near = TransportState(
        sending: CipherState(key: key(1), nonce: nonce), receiving: CipherState(key: key(2)), chainingKey: key(3))
    var far = TransportState(
        sending: CipherState(key: key(2)), receiving: CipherState(key: key(1), nonce: nonce), chainingKey: key(3))
    func arrive(_ sealed: [UInt8], _ far: inout TransportState) -> [UInt8]? {
        var position = 0
        while position < sealed.count {
            let count = far.expectedByteCount
            guard count <= sealed.count - position else { return nil }
            do throws(NoiseError) {
                if let frame = try far.open(sealed[position..<(position + count)]) { return frame }
            } catch { return nil }
            position += count
        }
        return nil
    }
    // Remaining sealed bytes; most inputs end early.
    var left = FuzzPatience(bytes) == .long ? Int.max : 16_384
    for _ in 0..<24 where !input.isAtEnd && left > 0 {
        left -= 512
        switch input.index(below: 5) {
        case 0:
            let frame = input.run()
            let sealed = try near.seal(frame)
            try expect(areSame(arrive(sealed, &far), frame), "a frame does not arrive")
        case 1:
            let at = Int(input.short())
            let change = input.byte() | 1
            let frame = input.run()
            var sealed = try near.seal(frame)
            sealed[at % sealed.count] ^= change
            try expect(arrive(sealed, &far) == nil, "a changed frame arrives")
            return
        case 2:
            let sealed = input.run()
            try expect(arrive(sealed, &far) == nil, "a stranger's frame arrives")
            return
        case 3:
            let frame = [UInt8](repeating: 1, count: input.length())
            left -= frame.count
            let sealed = try near.seal(frame)
            try expect(areSame(arrive(sealed, &far), frame), "a long frame does not arrive")
        default:
            for _ in 0..<(input.byte() & 63) where left > 0 {
                left -= 512
                let sealed = try near.seal([])
                try expect(arrive(sealed, &far) == [], "an empty frame does not arrive")
            }
        }
    }
}
