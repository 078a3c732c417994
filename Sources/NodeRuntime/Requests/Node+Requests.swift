import Cryptography
import Messaging
import NIOCore
import Store
import Transport

package struct InboxState {
    package enum State: String {
        case unused
        case awake
        case sleeping
    }

    package var client: ClientID
    package var state: State
    /// `nil` unless the inbox is awake.
    package var wakeReason: WakeReason?
    package var lastActivity: Messaging.Timestamp?
    package var conversation: ConversationID?
    package var protection: InboxProtection
}

package struct NodeState {
    package var isLocked: Bool
    package var erasure: ErasurePromise
    package var protection: Protection
    /// Inboxes of conversations and joins.
    package var awake: Int
    package var sleeping: Int
    package var unused: Int
    /// Unread contents that are only in memory.
    package var unreadByteCount: Int
    package var links: Int
    package var outbox: Int
    /// When stored content is next destroyed.
    package var nextExpiry: Timestamp?
    /// Damage of the store, for display.
    package var damage: [String]
    /// The latest disk error; a full or read-only disk keeps it.
    package var storageTrouble: StoreError?
    package var isReadOnly: Bool
}

/// User requests about the node and its inboxes. Most functions without a comment only forward to a part of the node.
extension Node {
    /// Works while the storage is locked.
    package func status() -> NodeState {
        storage.probe(store, after: .second, now: services.now)
        return NodeState(
            isLocked: store.isLocked, erasure: store.erasurePromise, protection: store.protection,
            awake: core.machine.awakeCount, sleeping: core.machine.sleepingCount,
            unused: core.machine.unused == nil ? 0 : 1, unreadByteCount: core.machine.unreadByteCount,
            links: shell.links.count, outbox: core.machine.outboxCount,
            nextExpiry: earliest(
                store.nextDestruction.map { Timestamp(milliseconds: $0) }, inboxes.nextExpiry(in: core.memory)),
            damage: store.damage + shell.unread.damage, storageTrouble: storage.trouble?.error,
            isReadOnly: store.isReadOnly)
    }

    package var isLocked: Bool { store.isLocked }

    /// Conversations whose members all agreed to a mailbox; 0 while the storage is locked.
    package var mailboxConversationCount: Int { store.isLocked ? 0 : core.machine.mailboxCount }

    /// The inboxes that core and shell have accessed.
    package var visits: [InboxVisits] { [core.machine.visits, inboxes.visits] }

    package var currentTime: Timestamp { services.now }

    package var configuredName: String? { services.configuration.name }

    /// Destroys overdue data, like a tick of the timer.
    package func reapNow() { shell.timer.tick(reaps: true) }

    /// Succeeds when all changes so far, in all inboxes, are durable; at once while the storage is locked.
    package func whenCommitted() -> EventLoopFuture<Void> { shell.commits.whenCommitted() }

    package func lock() { shell.storageLock.lock() }

    package func unlock(passphrase: consuming SecretBytes?) throws {
        try shell.storageLock.unlock(passphrase: passphrase)
    }

    package func unlocking(passphrase: consuming SecretBytes) -> EventLoopFuture<Void> {
        shell.storageLock.unlocking(passphrase: passphrase)
    }

    package func changingProtection(from old: consuming SecretBytes?, to new: consuming SecretBytes?)
        -> EventLoopFuture<Void>
    { shell.storageLock.changingProtection(from: old, to: new) }

    package func watch(_ body: @escaping (EventLog.Entry) -> Void) -> UInt64 { shell.events.watch(body) }

    package func unwatch(_ watcher: UInt64) { shell.events.unwatch(watcher) }

    package var eventLog: EventLog { shell.events.eventLog }

    package var listening: [Messaging.Endpoint] { shell.listening.endpoints }

    package var reachable: ReachableAddresses { shell.addresses.reachable }

    package var withoutDatagrams: [ListenFailure] { shell.listening.withoutDatagrams }

    package var portMappings: [PortMappingState]? { shell.portMapper.states }

    package var missingInterfaces: [String] { (shell.routes.lan?.missing ?? []).sorted() }

    package var discovery: String? { shell.network.discovery }

    package func netcheck(timeout: Milliseconds, mapsPorts: Bool) -> EventLoopFuture<NetworkFindings> {
        NetworkCheck(shell).run(timeout: timeout, mapsPorts: mapsPorts)
    }

    package func paths(of machine: Conversation) -> [PublicKey: LinkPath] {
        var result: [PublicKey: LinkPath] = [:]
        for member in machine.currentMembers {
            result[member.key] = machine.link(to: member.key).flatMap { shell.links[$0] }.flatMap {
                shell.peers.path(of: $0.connection)
            }
        }
        return result
    }

    /// Recent link losses of members that neither node intended.
    package func losses(of machine: Conversation) -> [PublicKey: LinkLoss] {
        var result: [PublicKey: LinkLoss] = [:]
        for member in machine.currentMembers { result[member.key] = shell.listening.transport?.loss(of: member.key) }
        return result
    }

    /// Conversations that have detected two running copies of a home.
    package var conversationsWithCopies: [Conversation] { core.machine.conversationsWithCopies }
    package var conversationsWithFullMemory: [Conversation] { core.machine.conversationsWithFullMemory }

    package func inboxStates() throws(NodeError) -> [InboxState] {
        try shell.directory.checkUnlocked()
        return core.machine.clients.map(inboxState)
    }

    private func inboxState(_ client: ClientID) -> InboxState {
        let state: InboxState.State =
            core.machine.isUnused(client) ? .unused : core.machine.isSleeping(client) ? .sleeping : .awake
        return InboxState(
            client: client, state: state, wakeReason: core.machine.wakeReason(client),
            lastActivity: core.machine.lastActivity(client), conversation: core.machine.conversationID(client),
            protection: state == .awake ? core.machine.protection(client) : [])
    }

    package func wakeInbox(_ text: String) throws(NodeError) -> InboxState {
        try shell.directory.checkUnlocked()
        let client = try shell.directory.resolveInbox(text)
        try shell.sleep.wake(client, .userInteraction)
        return inboxState(client)
    }

    /// - Throws: also for a protected inbox, or one without a conversation.
    package func sleepInbox(_ text: String) throws(NodeError) -> InboxState {
        try shell.directory.checkUnlocked()
        let client = try shell.directory.resolveInbox(text)
        guard core.machine.conversationID(client) != nil else {
            if core.machine.joins.contains(where: { $0.client == client }) {
                throw .command(.inboxProtected(.pendingInvite))
            }
            throw .failed(
                "inbox \(client.description.prefix(8)) belongs to no conversation and does not sleep",
                "`mayfly inbox list` shows the others")
        }
        try core.request { turn throws(CommandError) in try core.machine.sleep(client, &turn) }
        return inboxState(client)
    }

    /// Wakes the most recently active inboxes and puts the others to sleep.
    /// - Returns: the numbers of inboxes put to sleep and being woken.
    package func rebalance() throws(NodeError) -> (slept: Int, woken: Int) {
        try shell.directory.checkUnlocked()
        return try core.request { core.machine.rebalance(&$0) }
    }

    package var capacity: Int { core.machine.capacity }

    /// A user follows this conversation until ``stoppedWatching(_:)``. Wakes the conversation if possible.
    package func watching(_ client: ClientID) { shell.sleep.watching(client) }

    package func stoppedWatching(_ client: ClientID) { shell.sleep.stoppedWatching(client) }

    /// Wakes a conversation and waits until its members are linked, for requests that need a link.
    package func whenReached(_ text: String) -> EventLoopFuture<Void> {
        guard let client = try? shell.directory.resolve(text), (try? shell.sleep.wake(client, .userInteraction)) != nil
        else { return loop.makeSucceededVoidFuture() }
        core.turn { core.machine.step(client, &$0) { $0.reach(&$1) } }
        // Keeps the inbox awake during other commands.
        watching(client)
        return shell.sleep.whenReached(client).map { [self] in assumeIsolated { $0.stoppedWatching(client) } }
    }

    package var peers: Peers { shell.peers }

    package func card() throws(NodeError) -> ContactCard { try peers.card() }

    package func rendezvousStandings() -> [(name: String, standing: RelayReservationStateMachine.Standing?)] {
        shell.peerServices.standings()
    }

    package var mailboxStanding: OwnMailboxStanding? { shell.ownMailbox.standing }

    package var mailboxService: MailboxServiceStanding? { shell.peerServices.mailboxService }

    /// Whether contents for an offline member would go to its mailbox now.
    package func isMailable(_ member: PublicKey, in conversation: Conversation) -> Bool {
        conversation.isMailable(member, now: services.now)
    }

    package var relayService: (terms: RelayTerms, counts: RelayCounts)? { shell.peerServices.relayService }
}

/// The node's metrics.
package struct NodeFigures: Sendable {
    package var state: NodeState
    package var counters: NodeCounters
    package var commits: CommitFigures
    package var links: [NodeCounters.LinkKind: Int]
    /// Sealed bytes of all links, open and ended.
    package var bytesIn: UInt64
    package var bytesOut: UInt64
    package var capacity: Int
    /// `nil` unless this is a rendezvous node.
    package var relay: RelayCounts?

    package init(_ node: isolated Node) {
        state = node.status()
        counters = node.services.counters
        commits = node.shell.commits.figures
        links = [:]
        bytesIn = counters.bytesIn
        bytesOut = counters.bytesOut
        for link in node.shell.links.all {
            links[NodeCounters.LinkKind(link.connection), default: 0] += 1
            bytesIn &+= link.connection.bytesIn
            bytesOut &+= link.connection.bytesOut
        }
        capacity = node.capacity
        relay = node.relayService?.counts
    }
}
