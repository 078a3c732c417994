import Messaging
import Testing

@testable import NodeRuntime

@Suite struct EventLogTests {
    /// Its cursors follow 100.
    private func log(_ count: Int) -> EventLog {
        var log = EventLog(startedAt: Timestamp(milliseconds: 0), after: EventLog.Mark(first: 100, last: 100))
        for index in 0..<count {
            let event = Event(client: nil, conversation: nil, at: Timestamp(milliseconds: Int64(index)), kind: .locked)
            _ = log.append(event)
        }
        return log
    }

    private static let full = EventLog.capacity + 5

    @Test(
        arguments: [
            (10, 104, 105, nil), (10, 110, nil, nil), (10, .min, 101, nil),
            // Cursor zero replays from the oldest kept event.
            (full, 0, 106, nil), (full, 105, 106, nil), (full, 1_105, nil, nil),
            (full, 101, 106, EventLog.Gap(cursor: 105, lost: 4)),
            // From before the node's last start.
            (full, 7, 106, EventLog.Gap(cursor: 105, lost: nil)), (0, 7, nil, EventLog.Gap(cursor: 100, lost: nil)),
            (0, 100, nil, nil),
            // A cursor of a run whose clock was ahead: its loss is unknown, and it has seen none of the kept events.
            (10, 111, 101, EventLog.Gap(cursor: 100, lost: nil)), (10, .max, 101, EventLog.Gap(cursor: 100, lost: nil)),
            (0, 101, nil, EventLog.Gap(cursor: 100, lost: nil)),
        ] as [(Int, Int64, Int64?, EventLog.Gap?)])
    func `a watcher is told of a gap when its next event is no longer kept`(
        count: Int, cursor: Int64, first: Int64?, gap: EventLog.Gap?
    ) {
        let log = log(count)
        let (entries, missed) = log.since(cursor)
        #expect(entries.map(\.cursor) == first.map { Array($0...(100 + Int64(count))) } ?? [])
        #expect(log.gap(since: cursor) == gap && missed == (gap != nil))
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
}
