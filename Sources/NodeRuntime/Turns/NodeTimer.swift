import Crypto
import Logging
import Messaging
import NIOCore
import Store

/// The node's one timer, and the work of its ticks.
final class NodeTimer: Part {
    private var timer: Scheduled<Void>?
    private(set) var deadline: Timestamp?
    /// Called once when the home has disappeared.
    var homeGone: (() -> Void)?

    /// Does due work: expiry, the core's deadlines, daily token rotation.
    func tick() {
        guard !isStopped else { return }
        let reading = readClock()
        let now = reading.confirmed
        let looks = shell.expiry.looks(at: now)
        shell.addresses.forgetAdvertised()
        if looks { shell.addresses.refresh(at: now) }
        // First, because the store destroys the keys at the same time, and they still sign the receipts.
        for client in core.machine.sleepersDue(now: now) { shell.sleep.wakeIfPossible(client, .activityRanking) }
        shell.explosions.explodeAsleep(now: now)
        core.turn { core.machine.explodeDue(&$0) }
        shell.expiry.reap(reading)
        storage.probe(store, after: StorageHealth.probePause, now: now)
        shell.loading.loadUnread()
        if !store.isReadOnly { retries.run() }
        shell.counters.saveLate()
        shell.writer.storeWaiting()
        shell.writer.saveShown()
        if looks {
            storage.room.look()
            shell.loading.remakeContact()
            shell.peers.look()
        }
        shell.routes.roll(to: now.day)
        shell.summaries.saveIfDue(now: now)
        if looks { lookForHome() }
        shell.network.look(asksGateways: looks)
        core.turn { core.machine.advance(&$0) }
        shell.ownMailbox.settle()
        shell.peerServices.noteStandings()
        shell.codes.advance(looks: looks)
    }

    private func lookForHome() {
        guard store.isHomeGone, let homeGone else { return }
        log.critical("the home was removed or moved away: stopping", metadata: ["home": "\(options.home)"])
        self.homeGone = nil
        homeGone()
    }

    /// Sets the timer to the next deadline; at most ten seconds ahead, to detect clock steps.
    func schedule() {
        guard !isStopped else { return }
        let now = now
        var next = now + 10 * .second
        if let deadline = core.machine.nextDeadline { next = min(next, deadline) }
        if let deadline = store.nextTask { next = min(next, Timestamp(milliseconds: deadline)) }
        if let deadline = shell.expiry.next { next = min(next, deadline) }
        if let deadline = shell.codes.nextDeadline { next = min(next, deadline) }
        if shell.ownMailbox.isDue { next = now }
        if let deadline = shell.ownMailbox.nextDeadline { next = min(next, deadline) }
        if let pause = shell.routes.rollPause { next = min(next, now + pause) }
        // Unreadable inboxes are retried at the unlock, not while locked.
        if !shell.unread.isEmpty, !store.isLocked, let retry = shell.unread.retryAt { next = min(next, retry) }
        if storage.trouble != nil { next = min(next, now + StorageHealth.probePause) }
        if let deadline, timer != nil, deadline <= next, deadline > now { return }
        timer?.cancel()
        deadline = next
        timer = after(max(1, next - now)) {
            self.timer = nil
            self.tick()
        }
    }

    func stop() { timer?.cancel() }
}

/// Limits how often ticks do expensive work: peers choose when their messages expire.
struct Pace {
    /// Pause between two destructions of expired content, which is hidden in any case.
    static let expiryPause: Milliseconds = 100
    /// Pause between two system queries for addresses and disk space.
    static let lookPause: Milliseconds = .second

    private var expiredAt: Timestamp?
    private var lookedAt: Timestamp?

    func expiry(_ deadline: Timestamp) -> Timestamp {
        expiredAt.map { max(deadline, $0 + Self.expiryPause) } ?? deadline
    }

    mutating func expired(at now: Timestamp) { expiredAt = now }

    /// Whether a system query is due; marks it as done.
    mutating func looks(at now: Timestamp) -> Bool {
        guard lookedAt.map({ now - $0 >= Self.lookPause }) ?? true else { return false }
        lookedAt = now
        return true
    }
}

/// Hides and destroys expired content, on the disk and in memory.
final class Expiry: Part {
    private var pace = Pace()
    /// Messages that have expired only if an unconfirmed clock step is real.
    private var withheld: [(inbox: Inbox, message: Messaging.MessageID)] = []
    private var failuresToldAt: Timestamp?

    func looks(at now: Timestamp) -> Bool { pace.looks(at: now) }

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
            let isBack = (try? store.contains(inbox.row, id: id.bytes)) ?? false
            if !isBack { inbox.archive.expired(id) }
        }
        withheld = []
    }

    /// Retried every second, logged once a minute, so that a failing disk does not fill the log.
    private func tell(_ failures: [StoreError], now: Timestamp) {
        guard !failures.isEmpty else {
            shell.endings.clearFailures()
            failuresToldAt = nil
            return
        }
        guard failuresToldAt.map({ now - $0 >= .minute }) ?? true else { return }
        failuresToldAt = now
        for failure in failures {
            log.critical("data that must be gone by now could not be destroyed", metadata: ["error": "\(failure)"])
        }
    }

    /// The next destruction; `nil` without a deadline.
    var next: Timestamp? {
        let onDisk = store.nextExpiry.map { Timestamp(milliseconds: $0) }
        guard let inMemory = memory.expiries.next else { return onDisk.map(pace.expiry) }
        return pace.expiry(onDisk.map { min($0, inMemory) } ?? inMemory)
    }
}
