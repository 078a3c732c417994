import Cryptography
import Logging
import Messaging
import Store

/// Limits how often ticks do expensive work: peers choose when their messages expire.
struct Pace {
    /// Pause between two destructions of expired content, which is hidden in any case.
    static let expiryPause: Milliseconds = 100

    private var expiredAt: Timestamp?

    func expiry(_ deadline: Timestamp) -> Timestamp {
        expiredAt.map { max(deadline, $0 + Self.expiryPause) } ?? deadline
    }

    mutating func expired(at now: Timestamp) { expiredAt = now }
}

/// Hides and destroys expired content, on the disk and in memory.
final class Expiry: Part {
    private var pace = Pace()
    /// Messages that have expired only if an unconfirmed clock step is real.
    private var withheld: [(inbox: Inbox, message: Messaging.MessageID)] = []
    private var failuresToldAt: Timestamp?

    /// Destroys content expired by the confirmed time, and hides content expired by the unconfirmed time.
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
            shell.events.publish(inbox.client, .messageExpired(id))
        }
        if !reading.isInDoubt { settleWithheld() }
        for inbox in isTime ? inboxes.at(memory.takeExpired(until: now)) : [] {
            for id in inbox.archive.expire(now: now) {
                inbox.forgetHash(of: id)
                shell.events.publish(inbox.client, .messageExpired(id))
            }
        }
        for row in report.rows {
            if let inbox = inboxes.inbox(at: row) ?? shell.unread.remove(row)?.inbox { shell.removal.letGo(inbox) }
        }
        tell(report.failures, now: now)
        if report.recordsOverwritten > 0 { shell.commits.schedule() }
    }

    /// The clock step was confirmed or reverted: restored messages keep their state.
    private func settleWithheld() {
        for (inbox, id) in withheld {
            let isBack = (try? store.contains(inbox.row, id: id.value)) ?? false
            if !isBack { inbox.archive.expired(id) }
        }
        withheld = []
    }

    /// Logs the first failure, at most once a minute: every second is a retry, and many pages can fail at once.
    ///
    /// A reap without a failure does not end the pause, since it may have left the retry to a commit.
    private func tell(_ failures: [StoreError], now: Timestamp) {
        guard let failure = failures.first else { return shell.endings.clearFailures() }
        guard failuresToldAt.map({ now - $0 >= .minute }) ?? true else { return }
        failuresToldAt = now
        log.critical(
            "data that must be gone by now could not be destroyed",
            metadata: ["error": "\(failure)", "count": "\(failures.count)"])
    }

    /// When ``reap(_:)`` has work; `nil` without a deadline.
    var next: Timestamp? {
        let stored = store.nextExpiry.map { Timestamp(milliseconds: $0) } ?? .latest
        let expiry = min(stored, memory.expiries.next ?? .latest)
        let task = store.nextTask.map { Timestamp(milliseconds: $0) } ?? .latest
        let next = min(expiry == .latest ? expiry : pace.expiry(expiry), task)
        return next == .latest ? nil : next
    }
}
