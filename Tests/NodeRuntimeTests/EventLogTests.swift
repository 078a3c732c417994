import Messaging
import NodeRuntime
import Testing

@Suite struct EventLogTests {
    private func log(_ count: Int) -> EventLog {
        var log = EventLog(start: 100)
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

    @Test func `zero replays from the oldest that is kept`() {
        let (entries, missed) = log(EventLog.capacity + 5).since(0)
        #expect(entries.count == EventLog.capacity && entries.first?.cursor == 106 && !missed)
    }

    @Test func `the last number there is has nothing after it`() {
        #expect(
            log(10).since(.max).entries.isEmpty && log(10).gap(since: .max) == nil && log(10).gap(since: .min) == nil
        )
    }

    @Test func `a watcher is told when what it missed is gone`() {
        #expect(log(EventLog.capacity + 5).since(101).missed)
        #expect(!log(EventLog.capacity + 5).since(105).missed)
    }

    @Test func `a watcher is told how many events it has lost, if it can be known`() {
        let full = log(EventLog.capacity + 5)
        #expect(full.gap(since: 101) == EventLog.Gap(cursor: 105, lost: 4))
        #expect(full.gap(since: 105) == nil && full.gap(since: 0) == nil && full.gap(since: 1_105) == nil)
        // Seen before the node's last start.
        #expect(full.gap(since: 7) == EventLog.Gap(cursor: 105, lost: nil))
        #expect(log(0).gap(since: 7) == EventLog.Gap(cursor: 100, lost: nil))
        #expect(log(0).gap(since: 100) == nil)
    }
}
