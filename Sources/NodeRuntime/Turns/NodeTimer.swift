import Logging
import Messaging
import NIOCore
import Store

/// The node's one timer, and the work of its ticks.
final class NodeTimer: Part {
    private var timer: Scheduled<Void>?
    private(set) var deadline: Timestamp?
    private var lookedAt: Timestamp?
    /// Called once when the home has disappeared.
    var homeGone: (() -> Void)?

    /// Does what is due: looks, expiry, the core's deadlines, daily token rotation.
    /// - Parameter reaps: whether to look for expired data even if none is due.
    func tick(reaps: Bool = false) {
        guard !isStopped else { return }
        let reading = readClock()
        let now = reading.confirmed
        let looks = lookedAt.map { now - $0 >= .second } ?? true
        let isCoreDue = core.machine.nextDeadline.map { $0 <= now } ?? false
        // First, because the store destroys the keys at the same time, and they still sign the receipts.
        for client in isCoreDue ? core.machine.sleepersDue(now: now) : [] {
            shell.sleep.wakeIfPossible(client, .activityRanking)
        }
        shell.explosions.explodeAsleep(now: now)
        if isCoreDue { core.turn { core.machine.explodeDue(&$0) } }
        if reaps || looks || shell.expiry.next.map({ $0 <= now }) ?? false { shell.expiry.reap(reading) }
        storage.probe(store, after: StorageHealth.probePause, now: now)
        shell.loading.loadUnread()
        if !store.isReadOnly { retries.run() }
        shell.counters.saveLate()
        shell.writer.storeWaiting()
        shell.writer.saveShown()
        shell.routes.roll(to: now.day)
        if looks { look(now) }
        if isCoreDue { core.turn { core.machine.advance(&$0) } }
        shell.ownMailbox.settle()
        shell.codes.advance(looks: looks)
        core.schedule()
    }

    /// Asks the system and the disk, at most once a second.
    private func look(_ now: Timestamp) {
        lookedAt = now
        shell.addresses.forgetAdvertised()
        shell.addresses.refresh(at: now)
        storage.room.look()
        shell.loading.remakeContact()
        shell.peers.look()
        shell.summaries.saveIfDue(now: now)
        shell.network.look()
        shell.peerServices.noteStandings()
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
        // Each turn sets the timer, so the deadlines are compared without allocating an array.
        func meet(_ deadline: Timestamp?) { if let deadline, deadline < next { next = deadline } }
        meet(core.machine.nextDeadline)
        meet(shell.expiry.next)
        meet(shell.codes.nextDeadline)
        meet(shell.ownMailbox.isDue ? now : shell.ownMailbox.nextDeadline)
        meet(shell.routes.rollPause.map { now + $0 })
        meet(shell.loading.retryAt)
        meet(storage.trouble == nil ? nil : now + StorageHealth.probePause)
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
