import Testing

@testable import Store

@Suite struct RecordTests {
    private func record(expiresAt: Int64) throws -> MessageRecord? {
        let bytes = MessageRecord.encode(
            id: try #require(MessageID([UInt8](repeating: 1, count: 16))),
            expiresAt: expiresAt,
            order: 1,
            version: 0,
            isHidden: false,
            payload: [1]
        )
        return MessageRecord(bytes, number: 0, span: RecordFile.Span(offset: 144, length: bytes.count + 40))
    }

    /// Found by the target `record`: its distance from the bucket overflowed.
    @Test func `a record with a time that no record has is none`() throws {
        for time: Int64 in [.min, -1, (1 << 48) + 1, .max] { #expect(try record(expiresAt: time) == nil) }
        for time: Int64 in [0, 1_800_000_000_000, 1 << 48] { #expect(try record(expiresAt: time)?.expiresAt == time) }
    }
}
