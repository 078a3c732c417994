import Crypto
import Messaging
import Testing

@Suite struct JoinErrorTests {
    /// Found by the fuzz targets `core-joining` and `join-error-json`: milliseconds were lost.
    @Test func `a join error keeps its time in whole seconds through JSON`() throws {
        var random = Randomness.seeded(1)
        let error = JoinError(
            errorType: .genericFailure, inviteTag: InviteTag.random(&random),
            timestamp: Timestamp(milliseconds: 1_795_247_146_133))
        #expect(error.timestamp.milliseconds == 1_795_247_146_000)
        #expect(try SeedJSON.decodeJoinError(SeedJSON.encode(error)) == error)
    }
}
