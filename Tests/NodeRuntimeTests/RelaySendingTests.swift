import Messaging
import Testing

@testable import NodeRuntime

/// Small pieces over one link to a rendezvous node (Relay.md).
@Suite struct RelaySendingTests {
    private let noon = Timestamp(milliseconds: 1_795_262_400_000)

    @Test func `a sender uses the rendezvous node's whole burst, and then half of its rate`() {
        var sending = RelaySending()
        var theirs = IdleFrames.relayed
        var said = 0
        for time in 0..<10_000 {
            let now = noon + Milliseconds(time)
            while sending.take(now: now) {
                said += 1
                let wait = theirs.note(now: now)
                #expect(wait == nil, "it is never left unread")
            }
        }
        #expect(said == Limits.sentPieceRate.burst + 9_999)
    }

    @Test func `a waiting stream that has more to send waits only once`() {
        var sending = RelaySending()
        while sending.take(now: noon) {}
        let isFirst = (0..<3).map { _ in sending.wait(RelayStreamID(1)) }
        #expect(isFirst == [true, false, false])
    }

    @Test func `waiting streams are served in turn, and no other stream before them`() {
        var sending = RelaySending()
        while sending.take(now: noon) {}
        let streams = (1...3).map { RelayStreamID($0) }
        let isFirst = streams.map { sending.wait($0) } + [sending.wait(streams[0])]
        #expect(isFirst == [true, false, false, false])
        let early = sending.take(now: noon + .second)
        #expect(!early, "there is leave, but others wait for it")
        let next = sending.next()
        #expect(next == streams)
        let served = sending.take(now: noon + Limits.sentPieceRate.interval)
        let second = sending.take(now: noon + Limits.sentPieceRate.interval)
        #expect(served && !second)
        let isFirstAgain = [sending.wait(streams[1]), sending.wait(streams[2])]
        #expect(isFirstAgain == [true, false])
        let rest = sending.next()
        #expect(rest == [streams[1], streams[2]])
    }
}
