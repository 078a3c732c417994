import Crypto
import Logging
import Messaging
import Store

/// What is not done more often than need be, however often there is a tick: peers choose when their messages expire.
struct Pace {
    /// Between two destructions of what is due; what is due is not shown in any case.
    static let expiryPause: Milliseconds = 100
    /// Between two looks at the machine's addresses and the room on its disk: each asks the system.
    static let lookPause: Milliseconds = .second

    private var expiredAt: Timestamp?
    private var lookedAt: Timestamp?

    /// When what is due then may be destroyed.
    func expiry(_ deadline: Timestamp) -> Timestamp {
        expiredAt.map { max(deadline, $0 + Self.expiryPause) } ?? deadline
    }

    mutating func expired(at now: Timestamp) { expiredAt = now }

    /// Whether it is time to look; then it is taken to be done.
    mutating func looks(at now: Timestamp) -> Bool {
        guard lookedAt.map({ now - $0 >= Self.lookPause }) ?? true else { return false }
        lookedAt = now
        return true
    }
}

/// Hides and destroys what has expired, on the disk and in memory.
final class Expiry: CorePart {
    let core: ProtocolCore
    private let endings: EndingTable
    private let unread: UnreadInboxes
    private let writer: InboxWriter
    private let removal: InboxRemoval
    private let events: NodeEvents
    private var pace = Pace()
    /// Messages that are over only if a step of the clock forward is true.
    private var withheld: [(inbox: Inbox, message: Messaging.MessageID)] = []
    /// When it was last logged that something could not be destroyed.
    private var failuresToldAt: Timestamp?

    init(
        _ core: ProtocolCore, _ endings: EndingTable, _ unread: UnreadInboxes, _ writer: InboxWriter,
        _ removal: InboxRemoval, _ events: NodeEvents
    ) {
        self.core = core
        self.endings = endings
        self.unread = unread
        self.writer = writer
        self.removal = removal
        self.events = events
    }

    /// Whether it is time to look at the machine; see ``Pace/looks(at:)``.
    func looks(at now: Timestamp) -> Bool { pace.looks(at: now) }

    /// Destroys what is due by this reading of the clock, and hides what may be.
    func reap(_ reading: NodeClock.Reading) {
        let now = reading.confirmed
        let isTime = pace.expiry(now) <= now
        let isDue =
            memory.expiries.next.map { $0 <= now } ?? false || store.nextExpiry.map { $0 <= now.milliseconds } ?? false
        if isTime, isDue { pace.expired(at: now) }
        let report = store.reap(hide: reading.hide.milliseconds, destroy: now.milliseconds)
        for expired in report.expired {
            guard let inbox = inboxes.inbox(at: expired.row) else { continue }
            let id = Messaging.MessageID(expired.id)
            inbox.forgetHash(of: id)
            if reading.isInDoubt { withheld.append((inbox, id)) } else { inbox.archive.expired(id) }
            events.publish(inbox.client, .messageExpired(id))
        }
        if !reading.isInDoubt { settleWithheld() }
        for inbox in isTime ? inboxes.at(memory.takeExpired(until: now)) : [] {
            for id in inbox.archive.expire(now: now) {
                inbox.forgetHash(of: id)
                events.publish(inbox.client, .messageExpired(id))
            }
        }
        for row in report.rows {
            if let inbox = inboxes.inbox(at: row) ?? unread.remove(row)?.inbox { removal.letGo(inbox) }
        }
        tell(report.failures, now: now)
        if report.recordsOverwritten > 0 { writer.commits.schedule() }
    }

    /// The step of the clock was true, or was taken back: restored messages keep their state.
    private func settleWithheld() {
        for (inbox, id) in withheld {
            let isBack = (try? store.contains(inbox.row, id: id.bytes)) ?? false
            if !isBack { inbox.archive.expired(id) }
        }
        withheld = []
    }

    /// Tried again every second, logged once a minute: a disk that stays as it is must not be filled with lines.
    private func tell(_ failures: [StoreError], now: Timestamp) {
        guard !failures.isEmpty else {
            endings.clearFailures()
            failuresToldAt = nil
            return
        }
        guard failuresToldAt.map({ now - $0 >= .minute }) ?? true else { return }
        failuresToldAt = now
        for failure in failures {
            log.critical("something that is due could not be destroyed", metadata: ["error": "\(failure)"])
        }
    }

    /// When something is destroyed next; `nil` when nothing has an end.
    var next: Timestamp? {
        let onDisk = store.nextExpiry.map { Timestamp(milliseconds: $0) }
        guard let inMemory = memory.expiries.next else { return onDisk.map(pace.expiry) }
        return pace.expiry(onDisk.map { min($0, inMemory) } ?? inMemory)
    }
}
