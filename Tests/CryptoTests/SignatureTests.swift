import Cryptography
import Foundation
import Testing

// Vectors/bip340.csv: bitcoin/bips, bip-0340/test-vectors.csv at 7e8b5dfc304c0e3cd646b54bc49e23fad692d11e (line ends
// made LF); BIP 340 and its vectors are under the 2-clause BSD licence.

/// A row of the test vectors of BIP 340.
struct BIP340Row: Sendable, CustomStringConvertible {
    let index: String
    let secretKey: [UInt8]
    let publicKey: [UInt8]
    let auxiliaryRandomness: [UInt8]
    let message: [UInt8]
    let signature: [UInt8]
    let isValid: Bool
    let comment: String

    var description: String { "row \(index) \(comment)" }

    static let all: [BIP340Row] = {
        let file = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "Vectors/bip340.csv")
        let content = (try? String(contentsOf: file, encoding: .utf8)) ?? ""
        return content.split(separator: "\n").dropFirst().map { line in
            let fields = line.split(separator: ",", maxSplits: 7, omittingEmptySubsequences: false).map(String.init)
            return BIP340Row(
                index: fields[0], secretKey: hex(fields[1]), publicKey: hex(fields[2]),
                auxiliaryRandomness: hex(fields[3]), message: hex(fields[4]), signature: hex(fields[5]),
                isValid: fields[6] == "TRUE", comment: fields[7])
        }
    }()
}

@Suite struct SignatureTests {
    @Test func `the vectors contain all fifteen rows of BIP 340`() {
        #expect(BIP340Row.all.count == 15)
        #expect(BIP340Row.all.filter { !$0.secretKey.isEmpty }.count == 4)
    }

    @Test(arguments: BIP340Row.all) func `verification follows BIP 340`(_ row: BIP340Row) throws {
        let signature = try SchnorrSignature(row.signature)
        // BIP 340 names the point with an even y coordinate.
        let key = try? PublicKey([2] + row.publicKey)
        #expect((key?.isValid(signature, for: row.message) ?? false) == row.isValid)
    }

    @Test(arguments: BIP340Row.all.filter { !$0.secretKey.isEmpty }) func `signing reproduces BIP 340`(_ row: BIP340Row)
        throws
    {
        let key = try SecretKey(SecretBytes(copying: row.secretKey))
        let signature = key.sign(row.message, auxiliaryRandomness: row.auxiliaryRandomness)
        #expect(signature.bytes == row.signature)
        #expect(Array(key.publicKey.bytes.dropFirst()) == row.publicKey)
        let isValid = key.publicKey.isValid(signature, for: row.message)
        #expect(isValid)
    }

    @Test func `a recoverable signature yields its maker's key only`() throws {
        let key = try SecretKey(SecretBytes(copying: bytes(7, 32)))
        let other = try SecretKey(SecretBytes(copying: bytes(8, 32))).publicKey
        let digest = SHA256.hash(text("invite"))
        let signature = key.signRecoverably(digest)
        let recovered = try signature.recoverKey(digest: digest)
        #expect(recovered == key.publicKey)
        #expect(recovered != other)
        // Anyone can make a signature that recovers to *some* key: the payload must be bound to the key.
        let elsewhere = try? signature.recoverKey(digest: SHA256.hash(text("another invite")))
        #expect(elsewhere != key.publicKey)
        #expect(try RecoverableSignature(signature.bytes) == signature)
    }

    @Test func `a recoverable signature with a high s is refused, despite yielding the right key`() throws {
        let order: [UInt8] = [
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe, 0xba, 0xae,
            0xdc, 0xe6, 0xaf, 0x48, 0xa0, 0x3b, 0xbf, 0xd2, 0x5e, 0x8c, 0xd0, 0x36, 0x41, 0x41,
        ]
        let key = SecretKey.generate()
        for number in 0..<32 as Range<UInt8> {
            var bytes = key.signRecoverably(SHA256.hash([number])).bytes
            // n − s, with the other parity of R: another signature of the same key.
            var borrow = 0
            for index in (32..<64).reversed() {
                let difference = Int(order[index - 32]) - Int(bytes[index]) - borrow
                borrow = difference < 0 ? 1 : 0
                bytes[index] = UInt8(truncatingIfNeeded: difference)
            }
            bytes[64] ^= 1
            #expect(throws: CurveError.invalidSignature) { try RecoverableSignature(bytes) }
        }
    }

    @Test func `a flipped bit in a recoverable signature never yields the maker's key`() throws {
        let key = try SecretKey(SecretBytes(copying: bytes(7, 32)))
        let digest = SHA256.hash(text("invite"))
        let signature = key.signRecoverably(digest).bytes
        for index in signature.indices {
            for bit in 0..<8 {
                var changed = signature
                changed[index] ^= 1 << UInt8(bit)
                let recovered = try? RecoverableSignature(changed).recoverKey(digest: digest)
                #expect(recovered != key.publicKey)
            }
        }
    }

    @Test func `signatures and keys of other lengths or out of range are refused`() {
        for count in [0, 63, 64, 66] {
            #expect(throws: CurveError.invalidSignature) { try RecoverableSignature(bytes(1, count)) }
        }
        #expect(throws: CurveError.invalidSignature) { try RecoverableSignature(bytes(1, 64) + [4]) }
        #expect(throws: CurveError.invalidSignature) { try RecoverableSignature(bytes(0xff, 64) + [0]) }
        for count in [0, 63, 65] {
            #expect(throws: CurveError.invalidSignature) { try SchnorrSignature(bytes(1, count)) }
        }
        for encoding in [[], [2], bytes(2, 32), [4] + bytes(1, 32), [2] + bytes(0xff, 32), bytes(2, 34)] {
            #expect(throws: CurveError.invalidPublicKey) { try PublicKey(encoding) }
        }
        for secret in [bytes(0, 32), bytes(0xff, 32), bytes(1, 31), bytes(1, 33)] {
            #expect(throws: CurveError.invalidSecretKey) { _ = try SecretKey(SecretBytes(copying: secret)) }
        }
    }
}
