import NodeRuntime
import Testing

@Suite struct ReadingPausesTests {
    /// The result of ending each reason.
    private func ends(_ pauses: inout ReadingPauses, _ reasons: ReadingPauses.Reason...) -> [Bool] {
        reasons.map { pauses.remove($0) }
    }

    @Test func `reading of a link resumes once, when no reason for a pause is left`() {
        var pauses = ReadingPauses()
        #expect(ends(&pauses, .disk) == [false], "it was not paused")
        pauses.add(.disk)
        pauses.add(.haste)
        #expect(ends(&pauses, .haste) == [false], "the disk has not caught up")
        #expect(ends(&pauses, .disk, .disk) == [true, false])
        pauses.add(.haste)
        pauses.add(.haste)
        pauses.add(.disk)
        #expect(ends(&pauses, .disk) == [false], "a commit does not end the pause of a hasty peer")
        #expect(ends(&pauses, .haste) == [true])
    }
}
