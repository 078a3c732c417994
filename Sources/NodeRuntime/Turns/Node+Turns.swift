import Logging
import Messaging
import NIOCore
import Primitives
import Store
import Transport

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

/// A turn: one event into the core, what it asks for carried out, and the one timer set anew.
extension Node {
    func readClock() -> NodeClock.Reading {
        clock.read(realtime: environment.realtime(), boottime: environment.boottime())
    }

    /// The time of everything the node does.
    var now: Timestamp { readClock().confirmed }

    /// The node's own time, which never goes back.
    package var currentTime: Timestamp { now }

    var defaultPolicy: LifetimePolicy { LifetimePolicy(configuration.policy) ?? .ask }

    var defaultCap: LifetimeCap { configuration.cap.flatMap { LifetimeCap($0) } ?? .none }

    func makeTurn() -> Turn {
        let reading = readClock()
        return Turn(
            now: reading.confirmed,
            random: .system,
            endpoints: advertisedDirectly,
            relayPlaces: addresses.relayPlaces { core.contact?.relayPlaces ?? [] },
            isLocked: store.isLocked,
            defaultPolicy: defaultPolicy,
            sessionGrace: options.sessionGrace,
            // Not a copy of the archive: what the turn changes would be copied with it.
            isKnown: { [unowned self] client, id in inboxes[client]?.archive.contains(id) ?? false },
            hasRoom: { [unowned self] client in hasRoom(client) },
            isNamedPeer: { [peers] key in peers.peer(key) != nil },
            contents: ContentLookup(
                message: { [unowned self] client, id in
                    inboxes[client]?.archive.read(id, now: readClock().hide)?.message
                },
                deliveries: { [unowned self] client, id in
                    inboxes[client]?.archive.deliveries(of: id, now: readClock().hide) ?? []
                },
                isStored: { [unowned self] client, id in
                    inboxes[client]?.archive.read(id, now: readClock().hide)?.isStored ?? false
                },
                hasChunk: { [unowned self] client, id, index in
                    inboxes[client]?.archive.hasChunk(index, of: id) ?? false
                },
                hasRoom: { [unowned self] client, byteCount in hasRoom(client, byteCount: byteCount) },
                memoryAvailable: { [unowned self] in
                    Limits.attachmentMemoryTotalByteCount - memory.chunkByteCount
                },
                attachmentByteCount: attachmentByteCount,
                sendsReadReceipts: configuration.readReceipts ?? false,
                awaitsStorage: { [unowned self] client, id in inboxes[client]?.archive.awaitsStorage(id) ?? false },
                wasShown: { [unowned self] client, id in inboxes[client]?.archive.wasShown(id) ?? false }
            ),
            defaultCap: defaultCap,
            sourceOf: { [unowned self] link in links[link]?.connection.sourcePrefix }
        )
    }

    /// Whether the inbox may store more of what peers send.
    private func hasRoom(_ client: ClientID) -> Bool {
        // Counted by the store; while it is locked nothing is stored.
        guard let row = inboxes[client]?.row, let stored = try? store.storedAmount(row) else { return true }
        return storage.room.isFor(byteCount: stored.byteCount, recordCount: stored.recordCount)
    }

    /// One step of the core and what follows from it.
    func turn(_ body: (inout Turn) -> [NodeAction]) {
        guard !isStopped else { return }
        var turn = makeTurn()
        perform(body(&turn))
        schedule()
    }

    /// What is due by now: expiry, deadlines of the core, the routing tokens of a new day.
    func tick() {
        guard !isStopped else { return }
        let reading = readClock()
        let looks = pace.looks(at: reading.confirmed)
        addresses.forgetAdvertised()
        if looks { addresses.forgetDevices() }
        // First, for the store destroys the keys at the same moment, and they sign what is left.
        for client in core.sleepersDue(now: reading.confirmed) { wakeIfPossible(client, .activityRanking) }
        explodeAsleep(now: reading.confirmed)
        turn { core.explodeDue(&$0) }
        reap(reading)
        storage.probe(store, after: StorageHealth.probePause, now: reading.confirmed)
        saveWhatWasRefused()
        saveLateCounters()
        loadUnread()
        storeWhatWaited()
        if looks {
            storage.room.look()
            remakeContact()
            lookAtPeers()
        }
        if reading.confirmed.day != routing.day { routing.beginRoll(to: reading.confirmed.day) }
        if routing.isRolling { routing.continueRoll(routes: Self.rollBatchCount) }
        if summarizedAt.map({ reading.confirmed - $0 >= .hour }) ?? false { saveSummaries() }
        if lastMark.map({ reading.confirmed - $0 >= .minute }) ?? true, !store.isReadOnly {
            lastMark = reading.confirmed
            do { try store.saveClockMark(reading.confirmed.milliseconds) } catch {
                log.error("the clock's high-water mark could not be saved", metadata: ["error": "\(error)"])
            }
        }
        if store.isHomeGone, let homeGone {
            log.critical("the home was removed or moved away: stopping", metadata: ["home": "\(options.home)"])
            self.homeGone = nil
            homeGone()
        }
        noteAddresses()
        lookAtGateways()
        announceEndpoints()
        turn { core.advance(&$0) }
        noteRendezvous()
    }

    /// Hides and destroys what has expired.
    func reap(_ reading: NodeClock.Reading) {
        let now = reading.confirmed
        let isTime = pace.expiry(now) <= now
        let isDue =
            nextExpiryInMemory.map { $0 <= now } ?? false || store.nextExpiry.map { $0 <= now.milliseconds } ?? false
        if isTime, isDue { pace.expired(at: now) }
        let report = store.reap(hide: reading.hide.milliseconds, destroy: reading.confirmed.milliseconds)
        for expired in report.expired {
            guard let inbox = inboxes.inbox(at: expired.row) else { continue }
            let id = Messaging.MessageID(expired.id)
            if reading.isInDoubt { withheld.append((inbox, id)) } else { inbox.archive.expired(id) }
            publish(inbox.client, .messageExpired(id))
        }
        if !reading.isInDoubt, !withheld.isEmpty {
            // What has come back is as it was.
            for (inbox, id) in withheld {
                let isBack = (try? store.contains(inbox.row, id: id.bytes)) ?? false
                if !isBack { inbox.archive.expired(id) }
            }
            withheld = []
        }
        for inbox in isTime ? inboxes.all : [] {
            for id in inbox.archive.expire(now: now) { publish(inbox.client, .messageExpired(id)) }
        }
        for row in report.rows {
            if let inbox = inboxes.inbox(at: row) ?? unread.removeValue(forKey: row)?.inbox { letGo(inbox) }
        }
        // Tried again every second, said once a minute: a disk that stays as it is must not be filled with words.
        if !report.failures.isEmpty, failuresToldAt.map({ reading.confirmed - $0 >= .minute }) ?? true {
            failuresToldAt = reading.confirmed
            for failure in report.failures {
                log.critical("something that is due could not be destroyed", metadata: ["error": "\(failure)"])
            }
        }
        if report.failures.isEmpty {
            endings.clearFailures()
            failuresToldAt = nil
        }
        if report.recordsOverwritten > 0 { commits.schedule() }
    }

    /// Not after the first expiry of a message in memory.
    private var nextExpiryInMemory: Timestamp? { inboxes.unordered.lazy.compactMap(\.archive.wakeAt).min() }

    /// Says once a minute what is tried again all the time: a disk that stays as it is must not be filled with words.
    func say(_ text: String, of error: any Error) {
        guard saidAt[text].map({ now - $0 >= .minute }) ?? true else { return }
        saidAt[text] = now
        log.error("\(text)", metadata: ["error": "\(error)"])
    }

    func publish(_ client: ClientID, _ kind: Event.Kind) {
        notify(Event(client: client, conversation: core.conversationID(client), at: now, kind: kind))
    }

    /// Sets the one timer to the next thing to do; at the latest in ten seconds, to see steps of the clock.
    func schedule() {
        guard !isStopped else { return }
        let now = now
        var next = now + 10 * .second
        if let deadline = core.nextDeadline { next = min(next, deadline) }
        if let deadline = store.nextTask { next = min(next, Timestamp(milliseconds: deadline)) }
        if let deadline = store.nextExpiry { next = min(next, pace.expiry(Timestamp(milliseconds: deadline))) }
        if let deadline = nextExpiryInMemory { next = min(next, pace.expiry(deadline)) }
        if routing.isRolling { next = min(next, now + Self.rollPause) }
        // A locked storage gives nothing; it is asked again at the unlock.
        if !store.isLocked, let retry = unread.values.map(\.retryAt).min() { next = min(next, retry) }
        if storage.trouble != nil { next = min(next, now + StorageHealth.probePause) }
        if let timerDeadline, timer != nil, timerDeadline <= next, timerDeadline > now { return }
        timer?.cancel()
        timerDeadline = next
        timer = loop.assumeIsolated().scheduleTask(in: .milliseconds(max(1, next - now))) {
            self.assumeIsolated { node in
                node.timer = nil
                node.tick()
            }
        }
    }
}
