import Messaging
import Testing

@testable import NodeRuntime

@Suite struct EventLogTests {
    private func log(_ count: Int) -> EventLog {
        var log = EventLog(startedAt: Timestamp(milliseconds: 0), after: EventLog.Mark(first: 100, last: 100))
        for index in 0..<count {
            let event = Event(client: nil, conversation: nil, at: Timestamp(milliseconds: Int64(index)), kind: .locked)
            _ = log.append(event)
        }
        return log
    }

    @Test func `a watcher that resumes with its cursor misses nothing`() {
        let (entries, missed) = log(10).since(104)
        #expect(entries.map(\.cursor) == [105, 106, 107, 108, 109, 110] && !missed)
    }

    @Test func `cursor zero replays from the oldest kept event`() {
        let (entries, missed) = log(EventLog.capacity + 5).since(0)
        #expect(entries.count == EventLog.capacity && entries.first?.cursor == 106 && !missed)
    }

    @Test func `an unknown cursor starts with a gap and replays all kept events`() {
        // A cursor of a run whose clock was ahead: its loss is unknown, and it has seen none of the kept events.
        for cursor in [111, .max] as [Int64] {
            let (entries, missed) = log(10).since(cursor)
            #expect(entries.map(\.cursor) == Array(101...110) && missed)
            #expect(log(10).gap(since: cursor) == EventLog.Gap(cursor: 100, lost: nil))
        }
        #expect(log(0).gap(since: 101) == EventLog.Gap(cursor: 100, lost: nil))
        #expect(log(10).since(110).entries.isEmpty && log(10).gap(since: 110) == nil)
        #expect(log(10).gap(since: .min) == nil && log(10).since(.min).entries.count == 10)
    }

    @Test func `event cursors rise over a restart`() {
        var before = EventLog(startedAt: Timestamp(milliseconds: 1_000))
        for _ in 0..<999 {
            _ = before.append(Event(client: nil, conversation: nil, at: Timestamp(milliseconds: 1_000), kind: .locked))
        }
        let after = EventLog(startedAt: Timestamp(milliseconds: 1_001))
        #expect(after.cursor > before.cursor)
        #expect(after.gap(since: before.cursor) == EventLog.Gap(cursor: after.cursor, lost: nil))
    }

    @Test func `cursors continue after a clean stop, and a watcher is told the number of lost events`() {
        let before = log(10)
        let after = EventLog(startedAt: Timestamp(milliseconds: 1), after: before.mark)
        #expect(after.cursor == 110 && after.mark == before.mark)
        #expect(after.gap(since: 110) == nil)
        #expect(after.gap(since: 104) == EventLog.Gap(cursor: 110, lost: 6))
        #expect(after.gap(since: 99) == EventLog.Gap(cursor: 110, lost: nil), "of a run before a crash")
    }

    @Test func `an impossible mark of an earlier run is ignored`() {
        for mark in [
            EventLog.Mark(first: -1, last: 5), EventLog.Mark(first: 6, last: 5), EventLog.Mark(first: 0, last: .max),
            EventLog.Mark(first: .min, last: .max),
        ] { #expect(EventLog(startedAt: Timestamp(milliseconds: 7), after: mark).mark.last == 7_000) }
    }

    @Test func `a watcher is told of a gap when its next event is no longer kept`() {
        #expect(log(EventLog.capacity + 5).since(101).missed)
        #expect(!log(EventLog.capacity + 5).since(105).missed)
    }

    @Test func `a watcher is told the number of lost events, if it is known`() {
        let full = log(EventLog.capacity + 5)
        #expect(full.gap(since: 101) == EventLog.Gap(cursor: 105, lost: 4))
        #expect(full.gap(since: 105) == nil && full.gap(since: 0) == nil && full.gap(since: 1_105) == nil)
        // From before the node's last start.
        #expect(full.gap(since: 7) == EventLog.Gap(cursor: 105, lost: nil))
        #expect(log(0).gap(since: 7) == EventLog.Gap(cursor: 100, lost: nil))
        #expect(log(0).gap(since: 100) == nil)
    }
}
