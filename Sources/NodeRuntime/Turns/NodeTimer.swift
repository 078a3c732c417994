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
        if looks {
            shell.addresses.forgetAdvertised()
            shell.addresses.refresh(at: now)
        }
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
        if let retry = shell.loading.retryAt { next = min(next, retry) }
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
