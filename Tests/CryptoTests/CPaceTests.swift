import Cryptography
import Testing

/// Published vectors of draft-irtf-cfrg-cpace-21, appendices A and B.3 (ristretto255, SHA-512).
@Suite struct CPaceVectors {
    private let password = Array("Password".utf8)
    private let context = CPace.Context(
        channel: Self.bytes("0b415f696e69746961746f720b425f726573706f6e646572"),
        session: Self.bytes("7e4b4791d6a8ef019b936c79fb7f2c57"), initiator: Array("ADa".utf8),
        responder: Array("ADb".utf8))
    private let generator = Self.bytes("222b6b195fe84b1652badb6f6a3ae3d24341e7306967f0b8115b40d5698c7e56")
    private let initiatorScalar = Self.bytes("da3d23700a9e5699258aef94dc060dfda5ebb61f02a5ea77fad53f4ff0976d08")
    private let responderScalar = Self.bytes("d2316b454718c35362d83d69df6320f38578ed5984651435e2949762d900b80d")
    private let initiatorShare = Self.bytes("d6bac480f2c386c394efc7c47adb9925dcd2630b64f240c50f8d0eec482b9157")
    private let responderShare = Self.bytes("3ea7e0b19560d7c0b0f5734f63b955286dfa8232b5ebe63324e2d9e7433f7258")
    private let product = Self.bytes("80b69a8a76457ab6a4d7f887a4bf6b55a2f80ac19c333f917a05fc9887c8b40f")
    private let key = Self.bytes(
        """
        b69effbf61b51d56401c0f65601abe428de8206feaaf0e32198896dcae7b35cd\
        2b38950a39dfd5d4a79164614c2984f7daa460b588c1e80c3fa2068af7900447
        """)
    /// From B.3.10 and B.3.11.
    private let scalar = Self.bytes("7cd0e075fa7955ba52c02759a6c90dbbfc10e6d40aea8d283e407d88cf538a05")

    private static func bytes(_ hex: String) -> [UInt8] { Hex.decode(hex) ?? [] }

    private func share(_ role: Role) throws -> CPaceShare {
        let scalar = role == .initiator ? initiatorScalar : responderScalar
        let secret = SecretBytes(copying: password)
        let share = CPaceShare(role, password: secret, context, scalar: SecretBytes(copying: scalar))
        return try #require(share)
    }

    private func multiply(_ scalar: [UInt8], _ point: [UInt8]) -> [UInt8]? {
        let scalar = SecretBytes(copying: scalar)
        let point = SecretBytes(copying: point)
        let product = point.withBytes { CPace.multiply(scalar, $0) }
        guard let product else { return nil }
        return product.withBytes { Array($0) }
    }

    @Test func `CPace prepends lengths to strings as in A.1`() {
        #expect(CPace.prependLength([]) == [0])
        #expect(CPace.prependLength(Array("1234".utf8)) == Self.bytes("0431323334"))
        let long = (0..<128).map { UInt8($0) }
        #expect(CPace.prependLength(Array(long.dropLast())) == [0x7f] + long.dropLast())
        #expect(CPace.prependLength(long) == [0x80, 0x01] + long)
        let parts = CPace.concatenation(Array("1234".utf8), Array("5".utf8), [], Array("678".utf8))
        #expect(parts == Self.bytes("043132333401350003363738"))
    }

    @Test func `CPace reproduces the generator string and the generator of B.3.1`() {
        let string = CPace.generatorString(password: password, channel: context.channel, session: context.session)
        let head = Self.bytes("11435061636552697374726574746f3235350850617373776f726464")
        let tail = Self.bytes("180b415f696e69746961746f720b425f726573706f6e646572107e4b4791d6a8ef019b936c79fb7f2c57")
        #expect(string == head + [UInt8](repeating: 0, count: 100) + tail)
        #expect(string.count == 170)
        let hash = """
            da6d3ddc8802fca9058755ffd3ebde08a9c2c74945901a258482a288b6663af0\
            6bf645c93cd1c51512307199c80e84908916d983b34af77205f90851a657ee27
            """
        #expect(Hex.encode(SHA512.hash(string)) == hash)
        let point = CPace.generator(password: SecretBytes(copying: password), context)
        let encoded = point.withBytes { Array($0) }
        #expect(encoded == generator)
    }

    @Test func `CPace reproduces the shares and the product of B.3.2 to B.3.4`() throws {
        #expect(try share(.initiator).bytes == initiatorShare)
        #expect(try share(.responder).bytes == responderShare)
        #expect(multiply(initiatorScalar, responderShare) == product)
        #expect(multiply(responderScalar, initiatorShare) == product)
    }

    @Test func `CPace reproduces both sides' key of B.3.5`() throws {
        let initiator = try #require(try share(.initiator).key(with: responderShare))
        let responder = try #require(try share(.responder).key(with: initiatorShare))
        #expect(initiator.withBytes { Array($0) } == key)
        #expect(responder.withBytes { Array($0) } == key)
    }

    @Test func `CPace reproduces the multiplication of B.3.10`() {
        let point = Self.bytes("2c3c6b8c4f3800e7aef6864025b4ed79bd599117e427c41bd47d93d654b4a51c")
        let result = Self.bytes("7c13645fe790a468f62c39beb7388e541d8405d1ade69d1778c5fe3e7f6b600e")
        #expect(multiply(scalar, point) == result)
        #expect(CPace.isElement(point))
    }

    @Test(arguments: [
        "2b3c6b8c4f3800e7aef6864025b4ed79bd599117e427c41bd47d93d654b4a51c",
        "0000000000000000000000000000000000000000000000000000000000000000",
    ]) func `CPace refuses an invalid point and the neutral element of B.3.11`(_ point: String) throws {
        let point = Self.bytes(point)
        #expect(multiply(scalar, point) == nil)
        #expect(!CPace.isElement(point))
        #expect(try share(.initiator).key(with: point) == nil)
        #expect(try share(.responder).key(with: point) == nil)
    }
}

@Suite struct CPaceTests {
    private let context = CPace.Context(channel: [1], session: [2], initiator: [3], responder: [4])

    private func share(_ role: Role, _ password: String, _ context: CPace.Context? = nil) throws -> CPaceShare {
        let scalar = CPace.scalar(random: SecretBytes(randomByteCount: CPace.scalarByteCount))
        let secret = SecretBytes(copying: Array(password.utf8))
        let share = CPaceShare(role, password: secret, context ?? self.context, scalar: scalar)
        return try #require(share)
    }

    private func keys(_ left: CPaceShare, _ right: CPaceShare) throws -> (CPaceKey, CPaceKey) {
        (try #require(left.key(with: right.bytes)), try #require(right.key(with: left.bytes)))
    }

    @Test func `equal passwords give equal keys and valid tags`() throws {
        let (initiator, responder) = try keys(try share(.initiator, "a"), try share(.responder, "a"))
        #expect(initiator.withBytes { Array($0) } == responder.withBytes { Array($0) })
        #expect(responder.isAuthentic(initiator.tag(of: .initiator), of: .initiator))
        #expect(initiator.isAuthentic(responder.tag(of: .responder), of: .responder))
        let derived = [initiator.derive("x").withBytes { Array($0) }, responder.derive("x").withBytes { Array($0) }]
        let other = responder.derive("y").withBytes { Array($0) }
        #expect(derived[0] == derived[1] && derived[0] != other)
    }

    @Test func `a different password, session, channel or party gives a different key`() throws {
        let others = [
            CPace.Context(channel: [9], session: [2], initiator: [3], responder: [4]),
            CPace.Context(channel: [1], session: [9], initiator: [3], responder: [4]),
            CPace.Context(channel: [1], session: [2], initiator: [9], responder: [4]),
            CPace.Context(channel: [1], session: [2], initiator: [3], responder: [9]),
        ]
        let pairs =
            [(try share(.initiator, "a"), try share(.responder, "b"))]
            + (try others.map { (try share(.initiator, "a"), try share(.responder, "a", $0)) })
        for (left, right) in pairs {
            let (initiator, responder) = try keys(left, right)
            #expect(initiator.withBytes { Array($0) } != responder.withBytes { Array($0) })
            #expect(!responder.isAuthentic(initiator.tag(of: .initiator), of: .initiator))
            #expect(!initiator.isAuthentic(responder.tag(of: .responder), of: .responder))
        }
    }

    @Test func `a share and a tag reflected to their sender are not valid`() throws {
        let own = try share(.initiator, "a")
        let key = try #require(own.key(with: own.bytes))
        #expect(!key.isAuthentic(key.tag(of: .initiator), of: .responder))
    }

    @Test func `a tag with a flipped bit or another length is refused`() throws {
        let (initiator, responder) = try keys(try share(.initiator, "a"), try share(.responder, "a"))
        let tag = initiator.tag(of: .initiator)
        for bit in 0..<8 * tag.count {
            var changed = tag
            changed[bit / 8] ^= 1 << (bit % 8)
            #expect(!responder.isAuthentic(changed, of: .initiator))
        }
        for count in 0..<tag.count { #expect(!responder.isAuthentic(Array(tag.prefix(count)), of: .initiator)) }
        #expect(!responder.isAuthentic(tag + [0], of: .initiator))
    }

    @Test func `a share of another length is refused, and a scalar of zero makes no share`() throws {
        let own = try share(.initiator, "a")
        for count in [0, 1, 31, 33, 64] {
            #expect(own.key(with: [UInt8](repeating: 2, count: count)) == nil)
            #expect(!CPace.isElement([UInt8](repeating: 2, count: count)))
        }
        let zero = SecretBytes(copying: [UInt8](repeating: 0, count: 32))
        let none = CPaceShare(.initiator, password: SecretBytes(copying: [1]), context, scalar: zero)
        #expect(none == nil)
    }

    @Test func `a CPace scalar has 252 bits`() {
        let all = SecretBytes(copying: [UInt8](repeating: 0xff, count: 32))
        let scalar = CPace.scalar(random: all).withBytes { Array($0) }
        #expect(scalar == [UInt8](repeating: 0xff, count: 31) + [0x0f])
    }
}
