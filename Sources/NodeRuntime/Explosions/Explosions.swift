import Cryptography
import Dispatch
import Messaging
import NIOCore
import Store
import Synchronization
import Transport

package enum ExplosionProgress: Sendable {
    /// The keys are gone; the tombstone or the fan-out list is not durable yet.
    case exploding
    case exploded
    /// The key page could not be overwritten; the node retries.
    case failed(StoreError)
}

/// Explosions (Explode.md): tombstones, fan-out lists and scheduled explosions.
final class Explosions: Part {
    /// Destroys the keys first (Explode.md). The tombstone records the intent: a start that finds it beside a live
    /// inbox destroys the inbox.
    func explode(_ client: ClientID, _ record: ExplosionRecord, fanOut: [Messaging.Member]) {
        guard let key = inboxes[client]?.key else { return }
        let conversation = record.conversation
        shell.endings[conversation].client = client
        shell.endings[conversation].armed = nil
        let name = inboxes[client]?.notes.alias
        core.machine.set(knocks(record, client, key), name: name, for: conversation)
        saveTombstone(conversation)
        if prepareFanOut(fanOut, conversation, client, key, until: now + Limits.fanOutLifetime) {
            makeDurable(conversation)
        }
        if let creator = record.creator {
            shell.endings[conversation].report = knock(client, key, creator, conversation, .initiator)
        }
        // Routes to the tombstone require that the inbox's routes are gone.
        for copy in [client] + record.earlierCopies.compactMap(\.client) {
            if let failure = shell.removal.destroy(copy) { shell.endings[conversation].failure = failure }
        }
        if let record = core.machine.tombstone(conversation) { shell.routes.register(tombstone: record) }
        shell.commits.schedule()
    }

    /// Prepares a scheduled explosion. Tombstone and list are stored in advance, so that at its time the store destroys
    /// the keys without the core.
    func arm(_ client: ClientID, _ key: IdentityKey, _ record: ExplosionRecord, fanOut: [Messaging.Member]) {
        // The latest copy of a conversation knows the members; the earlier copies end with it.
        guard core.machine.client(of: record.conversation) == client else { return }
        var record = record
        record.set(knocks(record, client, key), name: inboxes[client]?.notes.alias)
        shell.endings[record.conversation].armed = record
        saveTombstone(record.conversation)
        prepareFanOut(fanOut, record.conversation, client, key, until: record.explodedAt + Limits.fanOutLifetime)
        for copy in core.machine.clients(of: record.conversation) { lightFuse(copy) }
        shell.commits.schedule()
    }

    /// Performs due explosions of sleeping conversations that cannot be woken, because the storage is locked or
    /// unreadable.
    func explodeAsleep(now: Timestamp) {
        for conversation in shell.endings.overdue(now: now) {
            guard let record = shell.endings[conversation].armed else { continue }
            let lost = shell.unread.rows(of: conversation)
            // With two copies, the newest decides: an awake copy ends the others.
            guard core.machine.client(of: conversation).map(core.machine.isSleeping) ?? !lost.isEmpty else { continue }
            let asleep = core.machine.clients(of: conversation).filter(core.machine.isSleeping)
            shell.endings[conversation].client = asleep.last
            shell.endings[conversation].armed = nil
            var begun = core.makeTurn()
            core.machine.load(record, &begun)
            for row in lost {
                do throws(StoreError) { try store.destroyRow(row) } catch {
                    shell.endings[conversation].failure = error
                }
                if let inbox = shell.unread.remove(row)?.inbox { shell.removal.letGo(inbox) }
            }
            for client in asleep {
                if let failure = shell.removal.destroy(client) { shell.endings[conversation].failure = failure }
            }
            if let record = core.machine.tombstone(conversation) { shell.routes.register(tombstone: record) }
            core.perform(begun.actions)
            shell.commits.schedule()
        }
    }

    func lightFuse(_ client: ClientID) {
        guard let inbox = inboxes[client], let conversation = core.machine.conversationID(client),
            let end = shell.endings[conversation].armed?.explodedAt
        else { return }
        do throws(StoreError) { try store.scheduleDestruction(of: inbox.row, at: end.milliseconds) } catch {
            // The conversation still ends on time while this node runs.
            retries.add(.fuse(client))
            say("a scheduled destruction could not be written", of: error)
        }
    }

    /// The secret with which `member` knocks here (responder), or we knock there (initiator). If the key is wiped, the
    /// secret comes from the routes, which outlive it.
    private func knock(
        _ client: ClientID, _ key: IdentityKey, _ member: PublicKey, _ conversation: ConversationID, _ role: Role
    ) -> KnockSecret? {
        guard key.isWiped else {
            return RoutingSecret.derive(own: key, remote: member, conversation: conversation.bytes, role: role).knock
        }
        switch role {
        case .initiator: return inboxes[client]?.dialTokens[member]?.knock
        case .responder: return inboxes[client].flatMap { shell.routes.knock(of: member, $0) }
        }
    }

    /// The secrets with which members and invite holders may knock after the keys are gone. A tombstone from the disk
    /// has its own. The inbox found beside it may belong to an earlier copy.
    private func knocks(_ record: ExplosionRecord, _ client: ClientID, _ key: IdentityKey)
        -> ExplosionRecord.KnockSecrets
    {
        var members = record.memberKnocks
        for member in record.members where record.memberKnocks.isEmpty {
            members[member] = knock(client, key, member, record.conversation, .responder)?.bytes
        }
        let invites = record.openInvites.map { RoutingSecret.derive(invite: $0).knock.bytes }
        var copies: [ClientID: [UInt8]] = [:]
        for case let copy? in record.earlierCopies.map(\.client) {
            guard let inbox = inboxes[copy], let creator = record.creator else { continue }
            copies[copy] = shell.routes.knock(of: creator, inbox)?.bytes
        }
        return ExplosionRecord.KnockSecrets(
            members: members, invites: record.openInvites.isEmpty ? record.inviteKnocks : invites, earlierCopies: copies
        )
    }

    func saveTombstone(_ conversation: ConversationID) {
        guard let record = core.machine.tombstone(conversation) ?? shell.endings[conversation].armed else { return }
        retries.add(.tombstone(conversation))
        guard !store.isLocked else { return }
        let payload = StoredCodec.encode(tombstone: record, byteLimit: Store.maximumTombstonePayload)
        do throws(StoreError) {
            if let id = shell.endings[conversation].tombstone {
                try store.updateTombstone(id, payload: payload)
            } else {
                shell.endings[conversation].tombstone = try store.addTombstone(
                    keepUntil: record.keepUntil.milliseconds, payload: payload)
            }
            retries.remove(.tombstone(conversation))
        } catch {
            // Destroy the keys anyway: deletion is promised, telling the members is best effort.
            say("a tombstone could not be written", of: error)
        }
        if !record.isPrepared, record.confirmed.count == record.members.count { removeFanOut(conversation) }
    }

    func removeTombstone(_ conversation: ConversationID) {
        removeFanOut(conversation)
        shell.routes.unregister(tombstone: conversation)
        let tombstone = shell.endings[conversation].tombstone
        shell.endings.remove(conversation)
        retries.remove(.tombstone(conversation))
        if let tombstone { try? store.removeTombstone(tombstone) }
    }

    @discardableResult private func prepareFanOut(
        _ members: [Messaging.Member], _ conversation: ConversationID, _ client: ClientID, _ key: IdentityKey,
        until: Timestamp
    ) -> Bool {
        // The store keeps the expiry of a list that it replaces.
        removeFanOut(conversation)
        guard !members.isEmpty else { return false }
        shell.endings[conversation].fanOut = FanOut(
            conversation: conversation, until: until,
            targets: members.compactMap { member in
                knock(client, key, member.key, conversation, .initiator).map {
                    FanOut.Target(remote: member.key, endpoints: member.endpoints, knock: Hex.encode($0.bytes))
                }
            })
        return saveFanOut(conversation)
    }

    /// Waits for the disk: without the keys, targets and knock secrets cannot be derived again. The wait is bounded, so
    /// a hanging disk does not keep the keys alive.
    private func makeDurable(_ conversation: ConversationID) {
        guard !store.isLocked else { return }
        let done = DispatchSemaphore(value: 0)
        let isDurable = Outcome()
        shell.commits.commit { result in
            isDurable.value.withLock { $0 = result }
            done.signal()
        }
        store.hurryCommits()
        let ended = done.wait(timeout: .now() + .seconds(2))
        if ended == .success, isDurable.value.withLock({ $0 }) { retries.remove(.fanOut(conversation)) }
    }

    private final class Outcome: Sendable { let value = Mutex(false) }

    /// Saves the list, or removes it if there is none in memory.
    /// - Returns: whether the store accepted the list; the next commit makes it durable.
    @discardableResult func saveFanOut(_ conversation: ConversationID) -> Bool {
        guard let fanOut = shell.endings[conversation].fanOut else {
            removeFanOut(conversation)
            return false
        }
        // Until a commit confirms the list.
        retries.add(.fanOut(conversation))
        guard !store.isLocked else { return false }
        do throws(StoreError) {
            try store.saveFanOut(
                id: conversation.value.left, expiresAt: fanOut.until.milliseconds,
                payload: StoredCodec.encode(record: fanOut))
            shell.commits.whenCommitted().assumeIsolated().whenSuccess { [unowned self] in
                // A newer list has a commit of its own.
                guard !store.isLocked, shell.endings[conversation].fanOut?.until == fanOut.until else { return }
                retries.remove(.fanOut(conversation))
            }
            return true
        } catch {
            say("the list of members to notify could not be written", of: error)
            return false
        }
    }

    private func removeFanOut(_ conversation: ConversationID) {
        shell.endings[conversation].fanOut = nil
        guard !store.isLocked else { return retries.add(.fanOut(conversation)) }
        retries.remove(.fanOut(conversation))
        try? store.removeFanOut(id: conversation.value.left)
        shell.commits.schedule()
    }

    func fanOut(_ conversation: ConversationID) -> FanOut? {
        if let known = shell.endings[conversation].fanOut {
            guard known.until <= now else { return known }
            removeFanOut(conversation)
            return nil
        }
        guard !store.isLocked, let stored = try? store.fanOut(id: conversation.value.left, now: now.milliseconds),
            let fanOut = try? StoredCodec.decode(FanOut.self, stored), fanOut.conversation == conversation
        else { return nil }
        shell.endings[conversation].fanOut = fanOut
        return fanOut
    }

    func progress(of conversation: ConversationID) -> ExplosionProgress {
        let ending = shell.endings[conversation]
        if let failure = ending.failure { return .failed(failure) }
        let isSaved =
            !retries.contains(.tombstone(conversation))
            && (ending.fanOut == nil || !retries.contains(.fanOut(conversation)))
        return isSaved ? .exploded : .exploding
    }

    /// Whether the scheduled end has passed by the clock that hides content. The keys are destroyed once the time is
    /// confirmed (``NodeClock``).
    func isOver(_ machine: Conversation) -> Bool {
        machine.record.schedule.map { $0.expiresAt <= readClock().hide } ?? false
    }
}

/// The fan-out list: endpoints and knock secrets for telling the members of an exploded conversation. Sealed under a
/// seven-day column, since the inbox's own keys are gone.
struct FanOut: Codable {
    struct Target: Codable {
        var remote: PublicKey
        var endpoints: [Messaging.Endpoint]
        /// Hexadecimal.
        var knock: String
    }

    var conversation: ConversationID
    /// When the list is deleted.
    var until: Timestamp
    var targets: [Target]
}

/// The shell's state of a conversation that has exploded or has a scheduled explosion.
struct Ending {
    /// The conversation's inbox, known since the start of the node; the tombstone does not store it.
    var client: ClientID?
    var tombstone: TombstoneID?
    /// The prepared tombstone of a scheduled explosion.
    var armed: ExplosionRecord?
    var fanOut: FanOut?
    /// Delivers our receipt to the creator of a conversation that has just exploded.
    var report: KnockSecret?
    var failure: StoreError?
    /// Routing numbers of the peers that may knock at the tombstone.
    var routes: [Knocker: UInt64] = [:]

    fileprivate var isEmpty: Bool {
        client == nil && tombstone == nil && armed == nil && fanOut == nil && report == nil && failure == nil
            && routes.isEmpty
    }
}

/// The endings of the conversations; an empty ending is not stored. On the node's loop alone.
final class EndingTable {
    private var endings: [ConversationID: Ending] = [:]
    private var failedIDs: Set<ConversationID> = []
    private var ends = DeadlineQueue<ConversationID>()
    private var queuedEnds: [ConversationID: Timestamp] = [:]

    subscript(conversation: ConversationID) -> Ending {
        get { endings[conversation] ?? Ending() }
        set {
            endings[conversation] = newValue.isEmpty ? nil : newValue
            if newValue.failure != nil { failedIDs.insert(conversation) } else { failedIDs.remove(conversation) }
            ends.set(conversation, newValue.armed?.explodedAt, queued: &queuedEnds[conversation])
        }
    }

    func remove(_ conversation: ConversationID) { self[conversation] = Ending() }

    /// Sorted.
    var armed: [ConversationID] { endings.filter { $0.value.armed != nil }.keys.sorted() }

    func overdue(now: Timestamp) -> [ConversationID] {
        var result: [ConversationID] = []
        for (conversation, at) in ends.take(until: now) where queuedEnds[conversation] == at {
            queuedEnds[conversation] = nil
            guard let end = endings[conversation]?.armed?.explodedAt else { continue }
            // Stays queued until the explosion is performed.
            ends.set(conversation, end, queued: &queuedEnds[conversation])
            if end <= now { result.append(conversation) }
        }
        return result.sorted()
    }

    /// Call this when no key page waits to be overwritten.
    func clearFailures() { for conversation in failedIDs.sorted() { self[conversation].failure = nil } }
}
