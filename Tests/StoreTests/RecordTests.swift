import Cryptography
import Testing

@testable import Store

@Suite struct RecordTests {
    private func record(expiresAt: Int64) throws -> MessageRecord? {
        let bytes =
            MessageRecord.header(
                id: try #require(Bytes16([UInt8](repeating: 1, count: 16))), expiresAt: expiresAt, order: 1, version: 0,
                kind: .listed, bounds: MessageRecord.Bounds()) + [1]
        return MessageRecord(bytes, number: 0, span: RecordFile.Span(offset: 144, length: bytes.count + 40))
    }

    /// Found by the fuzz target `record`: the time's distance from its bucket overflowed.
    @Test func `a record with an impossible time is not a record`() throws {
        for time: Int64 in [.min, -1, (1 << 48) + 1, .max] { #expect(try record(expiresAt: time) == nil) }
        for time: Int64 in [0, 1_800_000_000_000, 1 << 48] { #expect(try record(expiresAt: time)?.expiresAt == time) }
    }

    /// Each frame check takes a hash, so a file full of possible frames would take minutes.
    @Test func `the search for a frame after damage is limited`() throws {
        let secret = SharedSecret(SecretBytes(copying: [UInt8](repeating: 4, count: 32)))
        let place = FilePlace(kind: .segment, directory: Bytes16(1, 2), file: Bytes16(3, 4))
        func file() -> RecordFile { RecordFile(number: 0, place: place, associatedData: [1], key: secret, header: []) }
        let writer = file()
        var nonces = NoncePool()
        var frames: [[UInt8]] = []
        for plain in [[1], [2]] as [[UInt8]] {
            _ = writer.append(plain, nonces: &nonces)
            let body = RecordBuffer()
            writer.takeUnsubmitted(into: body)
            frames.append(Array(body.bytes))
        }
        // 64 places with a plausible length of 48 bytes.
        let damage = Array(repeating: [48, 0, 0, 0] as [UInt8], count: 64).flatMap { $0 }
        func numbers(searchLimit: Int) -> [UInt32] {
            var numbers: [UInt32] = []
            let content = frames[0] + damage + frames[1]
            let loaded = file().load(content, from: 0, searchLimit: searchLimit) { number, _, _ in
                numbers.append(number)
            }
            #expect(!loaded.isSound || !loaded.isWhole)
            return numbers
        }
        #expect(numbers(searchLimit: 1_000) == [0, 1])
        #expect(numbers(searchLimit: 16) == [0])
    }
}
