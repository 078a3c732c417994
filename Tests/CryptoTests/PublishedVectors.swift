import Cryptography
import Testing

/// BOLT 8, appendix A.
@Suite struct PublishedVectors {
    @Test func `the vectors contain all sixteen cases of BOLT 8`() {
        #expect(BOLT8Case.starting("transport-initiator").count == 5)
        #expect(BOLT8Case.starting("transport-responder").count == 10)
        #expect(BOLT8Case.starting("transport-message").count == 1)
    }

    @Test(arguments: BOLT8Case.starting("transport-initiator")) func `an initiator reproduces the cases of BOLT 8`(
        _ vector: BOLT8Case
    ) throws {
        let handshake = try LinkHandshake.initiator(
            identity: vector.secretKey("ls.priv"), remote: vector.publicKey("rs.pub"),
            ephemeral: vector.secretKey("e.priv"), prologue: Array("lightning".utf8), encapsulation: nil)
        try replay(vector, handshake)
    }

    @Test(arguments: BOLT8Case.starting("transport-responder")) func `a responder reproduces the cases of BOLT 8`(
        _ vector: BOLT8Case
    ) throws {
        let handshake = try LinkHandshake.responder(
            identity: vector.secretKey("ls.priv"), ephemeral: vector.secretKey("e.priv"),
            prologue: Array("lightning".utf8), encapsulation: nil)
        try replay(vector, handshake)
    }

    private func replay(_ vector: BOLT8Case, _ start: consuming LinkHandshake) throws {
        var handshake = start
        var refusal: HandshakeError?
        for step in vector.steps {
            switch step {
            case .output(let act):
                let written = try handshake.write()
                #expect(written == act)
            case .input(let act): do { try handshake.read(act) } catch { refusal = error }
            case .error(let name):
                #expect(refusal.map(Self.name) == name.filter { $0 != "(" && $0 != ")" })
                refusal = nil
            case .keys(let sending, let receiving):
                try expectKeys(of: handshake.finish(), sending, receiving)
                return
            case .message: Issue.record("a handshake has no messages")
            }
        }
        #expect(refusal == nil)
        let finished = handshake.isFinished
        #expect(!finished)
    }

    /// Checks that the link seals with `sending` and opens with `receiving`.
    private func expectKeys(of link: consuming LinkHandshake.Link, _ sending: [UInt8], _ receiving: [UInt8]) throws {
        var ours = link.takeTransport()
        var theirs = TransportState(
            sending: CipherState(key: SecretBytes(copying: receiving)),
            receiving: CipherState(key: SecretBytes(copying: sending)), chainingKey: SecretBytes(copying: sending))
        let sent = try #require(try pass(&ours, &theirs, "from us"))
        #expect(sent == Array("from us".utf8))
        let received = try #require(try pass(&theirs, &ours, "from them"))
        #expect(received == Array("from them".utf8))
    }

    private static func name(_ error: HandshakeError) -> String {
        switch error {
        case .badLength(let act): "ERROR ACT\(act.rawValue + 1)_READ_FAILED"
        // The appendix omits the version in act 1.
        case .badVersion(.one, _): "ERROR ACT1_BAD_VERSION"
        case .badVersion(let act, let version): "ERROR ACT\(act.rawValue + 1)_BAD_VERSION \(version)"
        case .badKey(let act): "ERROR ACT\(act.rawValue + 1)_BAD_PUBKEY"
        case .badCiphertext(let act): "ERROR ACT\(act.rawValue + 1)_BAD_CIPHERTEXT"
        case .badMAC(let act): "ERROR ACT\(act.rawValue + 1)_BAD_TAG"
        case .reflection, .outOfTurn: "not in the appendix"
        }
    }

    @Test(arguments: BOLT8Case.starting("transport-message")) func `messages over two key rotations reproduce BOLT 8`(
        _ vector: BOLT8Case
    ) throws {
        var ours = try TransportState(
            sending: CipherState(key: vector.secret("sk")), receiving: CipherState(key: vector.secret("rk")),
            chainingKey: vector.secret("ck"))
        var theirs = try TransportState(
            sending: CipherState(key: vector.secret("rk")), receiving: CipherState(key: vector.secret("sk")),
            chainingKey: vector.secret("ck"))
        var expected: [Int: [UInt8]] = [:]
        for case .message(let number, let bytes) in vector.steps { expected[number] = bytes }
        #expect(expected.keys.sorted() == [0, 1, 500, 501, 1_000, 1_001])
        for number in 0...1_001 {
            let sealed = try ours.seal(Array("hello".utf8))
            if let bytes = expected[number] { #expect(sealed == bytes, "message \(number)") }
            let opened = try open(sealed, with: &theirs)
            #expect(opened == Array("hello".utf8))
        }
    }
}

func pass(_ sender: inout TransportState, _ receiver: inout TransportState, _ text: String) throws(NoiseError)
    -> [UInt8]?
{ try open(sender.seal(Array(text.utf8)), with: &receiver) }

/// Opens `sealed` as a reader takes it from a stream.
func open(_ sealed: [UInt8], with transport: inout TransportState) throws(NoiseError) -> [UInt8]? {
    var rest = sealed[...]
    while !rest.isEmpty {
        let count = transport.expectedByteCount
        if let frame = try transport.open(rest.prefix(count)) { return frame }
        rest = rest.dropFirst(count)
    }
    return nil
}
