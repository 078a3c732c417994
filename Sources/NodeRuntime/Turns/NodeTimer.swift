import Crypto
import Logging
import Messaging
import NIOCore
import Store

/// The node's one timer, and the work of its ticks.
final class NodeTimer: CorePart {
    let core: ProtocolCore
    /// Retained: actions are performed as long as ticks come.
    private let performer: ActionPerformer
    private let addresses: OwnAddresses
    private let unread: UnreadInboxes
    private let routes: Routes
    private let counters: TokenCounters
    private let writer: InboxWriter
    private let sleep: InboxSleep
    private let explosions: Explosions
    private let loading: InboxLoading
    private let summaries: InboxSummaries
    private let expiry: Expiry
    private let peers: Peers
    private let network: NodeNetwork
    private let rendezvous: RendezvousNodes
    private let mailboxes: Mailboxes
    private let codes: Codes
    private var timer: Scheduled<Void>?
    private(set) var deadline: Timestamp?
    /// Called once when the home has disappeared.
    var homeGone: (() -> Void)?

    init(
        _ core: ProtocolCore, _ performer: ActionPerformer, _ addresses: OwnAddresses, _ unread: UnreadInboxes,
        _ routes: Routes, _ counters: TokenCounters, _ writer: InboxWriter, _ sleep: InboxSleep,
        _ explosions: Explosions, _ loading: InboxLoading, _ summaries: InboxSummaries, _ expiry: Expiry,
        _ peers: Peers, _ network: NodeNetwork, _ rendezvous: RendezvousNodes, _ mailboxes: Mailboxes, _ codes: Codes
    ) {
        self.core = core
        self.performer = performer
        self.addresses = addresses
        self.unread = unread
        self.routes = routes
        self.counters = counters
        self.writer = writer
        self.sleep = sleep
        self.explosions = explosions
        self.loading = loading
        self.summaries = summaries
        self.expiry = expiry
        self.peers = peers
        self.network = network
        self.rendezvous = rendezvous
        self.mailboxes = mailboxes
        self.codes = codes
    }

    /// Does due work: expiry, the core's deadlines, daily token rotation.
    func tick() {
        guard !isStopped else { return }
        let reading = readClock()
        let now = reading.confirmed
        let looks = expiry.looks(at: now)
        addresses.forgetAdvertised()
        if looks { addresses.refresh(at: now) }
        // First, because the store destroys the keys at the same time, and they still sign the receipts.
        for client in core.machine.sleepersDue(now: now) { sleep.wakeIfPossible(client, .activityRanking) }
        explosions.explodeAsleep(now: now)
        core.turn { core.machine.explodeDue(&$0) }
        expiry.reap(reading)
        storage.probe(store, after: StorageHealth.probePause, now: now)
        explosions.saveWhatWasRefused()
        counters.saveLate()
        loading.loadUnread()
        writer.storeWaiting()
        writer.saveShown()
        if looks {
            storage.room.look()
            loading.remakeContact()
            peers.look()
        }
        routes.roll(to: now.day)
        summaries.saveIfDue(now: now)
        if looks { lookForHome() }
        network.look(asksGateways: looks)
        core.turn { core.machine.advance(&$0) }
        mailboxes.own.settle()
        rendezvous.noteStandings()
        codes.advance(looks: looks)
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
        if let deadline = expiry.next { next = min(next, deadline) }
        if let deadline = codes.nextDeadline { next = min(next, deadline) }
        if mailboxes.own.isDue { next = now }
        if let deadline = mailboxes.own.nextDeadline { next = min(next, deadline) }
        if let pause = routes.rollPause { next = min(next, now + pause) }
        // Unreadable inboxes are retried at the unlock, not while locked.
        if !unread.isEmpty, !store.isLocked, let retry = unread.retryAt { next = min(next, retry) }
        if storage.trouble != nil { next = min(next, now + StorageHealth.probePause) }
        if let deadline, timer != nil, deadline <= next, deadline > now { return }
        timer?.cancel()
        deadline = next
        timer = loop.assumeIsolated().scheduleTask(in: .milliseconds(max(1, next - now))) {
            self.timer = nil
            self.tick()
        }
    }

    func stop() { timer?.cancel() }
}
