import Crypto
import Messaging
import NIOCore
import Store
import Transport

/// An inbox as `inbox list` shows it.
package struct InboxState {
    package enum State: String {
        case unused
        case awake
        case sleeping
    }

    package var client: ClientID
    package var state: State
    /// Why it was woken; `nil` unless it is awake.
    package var wakeReason: WakeReason?
    package var lastActivity: Messaging.Timestamp?
    package var conversation: ConversationID?
    /// What keeps it awake.
    package var protection: InboxProtection
}

/// How the node is.
package struct NodeState {
    package var isLocked: Bool
    package var erasure: ErasurePromise
    package var protection: Protection
    /// Inboxes of conversations and joins.
    package var awake: Int
    package var sleeping: Int
    package var unused: Int
    /// Of unread contents that are in memory only.
    package var unreadByteCount: Int
    package var links: Int
    /// Messages that are not acknowledged.
    package var outbox: Int
    /// When something that is kept is destroyed next.
    package var nextExpiry: Timestamp?
    /// What is wrong on the disk, in words.
    package var damage: [String]
    /// What the disk has refused: of late, or as long as it is full or read-only.
    package var storageTrouble: StoreError?
    package var isReadOnly: Bool
}

/// What a user can ask of the node and its inboxes, and what one object answers.
extension Node {
    // MARK: The node

    /// Works while the storage is locked.
    package func status() -> NodeState {
        storage.probe(store, after: .second, now: services.now)
        let deadlines = [
            store.nextDestruction.map { Timestamp(milliseconds: $0) }, core.inboxes.nextExpiry(in: core.memory),
        ]
        return NodeState(
            isLocked: store.isLocked, erasure: store.erasurePromise, protection: store.protection,
            awake: core.machine.awakeCount, sleeping: core.machine.sleepingCount,
            unused: core.machine.unused == nil ? 0 : 1, unreadByteCount: core.machine.unreadByteCount,
            links: core.links.count, outbox: core.machine.outboxCount, nextExpiry: deadlines.compactMap { $0 }.min(),
            damage: store.damage + directory.unread.damage, storageTrouble: storage.trouble?.error,
            isReadOnly: store.isReadOnly)
    }

    package var isLocked: Bool { store.isLocked }

    /// Conversations whose members have all agreed to a mailbox; 0 while the storage is locked.
    package var mailboxConversationCount: Int { store.isLocked ? 0 : core.machine.mailboxCount }

    /// Which inboxes the core and the shell have looked at.
    package var visits: [InboxVisits] { [core.machine.visits, core.inboxes.visits] }

    /// The node's own time, which never goes back.
    package var currentTime: Timestamp { services.now }

    /// What `init --name` was given.
    package var configuredName: String? { services.configuration.name }

    /// Destroys what is due, as the timer would.
    package func reapNow() { timer.tick() }

    /// Succeeds when everything that has happened so far, in whatever inbox, is on the disk. While the storage is locked
    /// nothing can be, so nothing is waited for.
    package func whenCommitted() -> EventLoopFuture<Void> { held.writer.commits.whenCommitted() }

    /// Wipes the storage keys and the identity keys.
    package func lock() { storageLock.lock() }

    /// Unlocks in this turn, however long that takes.
    /// - Parameter passphrase: `nil` for a home with a key file.
    package func unlock(passphrase: consuming SecretBytes?) throws { try storageLock.unlock(passphrase: passphrase) }

    /// Unlocks without blocking the loop; see ``StorageLock/unlocking(passphrase:)``.
    package func unlocking(passphrase: consuming SecretBytes) -> EventLoopFuture<Void> {
        storageLock.unlocking(passphrase: passphrase)
    }

    /// Changes what protects the storage, without blocking the loop; see ``StorageLock/changingProtection(from:to:)``.
    package func changingProtection(from old: consuming SecretBytes?, to new: consuming SecretBytes?)
        -> EventLoopFuture<Void>
    { storageLock.changingProtection(from: old, to: new) }

    /// Calls `body` with each event from now on.
    package func watch(_ body: @escaping (EventLog.Entry) -> Void) -> UInt64 { services.feed.watch(body) }

    /// Ends what ``watch(_:)`` began.
    package func unwatch(_ watcher: UInt64) { services.feed.unwatch(watcher) }

    /// The events that are still kept.
    package var eventLog: EventLog { services.feed.log }

    // MARK: The network

    /// Where the node listens, with the ports that the system chose.
    package var listening: [Messaging.Endpoint] { network.listening.endpoints }

    /// What others are told of where the node listens, and what they are not.
    package var reachable: ReachableAddresses { network.reachable }

    /// Why there are no links over UDP where there should be some.
    package var withoutDatagrams: [ListenFailure] { network.listening.withoutDatagrams }

    /// `nil` when ports are not to be mapped; empty without a gateway.
    package var portMappings: [PortMappingState]? { network.portMappings }

    /// Interfaces that are to be used and are not there.
    package var missingInterfaces: [String] { network.neighbourhood.missingInterfaces }

    /// Networks on which members are looked for; `nil` when that is off.
    package var discovery: String? { network.neighbourhood.networks }

    /// `mayfly netcheck`; see ``NodeNetwork/check(timeout:mapsPorts:)``.
    package func netcheck(timeout: Milliseconds, mapsPorts: Bool) -> EventLoopFuture<NetworkFindings> {
        network.check(timeout: timeout, mapsPorts: mapsPorts)
    }

    /// How the members of a conversation are reached that have a link.
    package func paths(of machine: ConversationStateMachine) -> [PublicKey: LinkPath] {
        var result: [PublicKey: LinkPath] = [:]
        for member in machine.currentMembers {
            result[member.key] = machine.link(to: member.key).flatMap { core.links[$0] }.flatMap {
                peers.path(of: $0.connection)
            }
        }
        return result
    }

    /// How the last link to each member was lost, of those that were lost in the last minutes and by no node's will.
    package func losses(of machine: ConversationStateMachine) -> [PublicKey: LinkLoss] {
        var result: [PublicKey: LinkLoss] = [:]
        for member in machine.currentMembers { result[member.key] = network.listening.transport?.loss(of: member.key) }
        return result
    }

    /// Conversations that have shown that two copies of a home run at once.
    package var conversationsWithCopies: [ConversationStateMachine] { core.machine.conversationsWithCopies }

    // MARK: Inboxes

    /// - Throws: ``NodeError/locked``.
    package func inboxStates() throws(NodeError) -> [InboxState] {
        try directory.checkUnlocked()
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

    /// - Throws: ``NodeError/unknownInbox(_:)``, ``NodeError/ambiguous(_:matches:)``.
    package func wakeInbox(_ text: String) throws(NodeError) -> InboxState {
        try directory.checkUnlocked()
        let client = try directory.resolveInbox(text)
        try directory.sleep.wake(client, .userInteraction)
        return inboxState(client)
    }

    /// - Throws: ``NodeError/unknownInbox(_:)``, ``NodeError/ambiguous(_:matches:)``, ``NodeError/command(_:)`` when it is
    ///   protected or is no conversation's.
    package func sleepInbox(_ text: String) throws(NodeError) -> InboxState {
        try directory.checkUnlocked()
        let client = try directory.resolveInbox(text)
        guard core.machine.conversationID(client) != nil else {
            if core.machine.joins.contains(where: { $0.client == client }) {
                throw .command(.inboxProtected(.pendingInvite))
            }
            throw .notAConversation(client)
        }
        try core.request { turn throws(CommandError) in ((), try core.machine.sleep(client, &turn)) }
        return inboxState(client)
    }

    /// Puts the set of awake inboxes in order: the most recently active.
    /// - Returns: how many were put to sleep, and how many are woken now.
    package func rebalance() throws(NodeError) -> (slept: Int, woken: Int) {
        try directory.checkUnlocked()
        return try core.request { turn throws(CommandError) in
            let (slept, woken, actions) = core.machine.rebalance(&turn)
            return ((slept, woken), actions)
        }
    }

    /// How many inboxes are to be awake.
    package var capacity: Int { core.machine.capacity }

    /// Somebody has this conversation open, until ``stoppedWatching(_:)``. It is woken if that is possible.
    package func watching(_ client: ClientID) { directory.sleep.watching(client) }

    package func stoppedWatching(_ client: ClientID) { directory.sleep.stoppedWatching(client) }

    // MARK: Reaching members

    /// Wakes a conversation and waits, a few seconds at most, until its members have a link: for what can only be said
    /// over one. Ends at once when they are linked, or when nobody is being dialled.
    package func whenReached(_ text: String) -> EventLoopFuture<Void> {
        guard let client = try? directory.resolve(text), (try? directory.sleep.wake(client, .userInteraction)) != nil
        else { return loop.makeSucceededVoidFuture() }
        core.turn { core.machine.reach(client, &$0) }
        let promise = loop.makePromise(of: Void.self)
        // It does not give way to other commands meanwhile.
        watching(client)
        awaitLinks(of: client, since: loop.now, promise)
        return promise.futureResult.map { [self] in assumeIsolated { $0.stoppedWatching(client) } }
    }

    private func awaitLinks(of client: ClientID, since start: NIODeadline, _ promise: EventLoopPromise<Void>) {
        guard let machine = core.machine.conversation(client), !services.isStopped, !machine.isReached else {
            return promise.succeed(())
        }
        let patience = machine.isReaching(now: services.now) ? Self.reachTime : Self.retryTime
        guard loop.now - start < patience else { return promise.succeed(()) }
        loop.assumeIsolated().scheduleTask(in: .milliseconds(5)) {
            self.assumeIsolated { $0.awaitLinks(of: client, since: start, promise) }
        }
    }

    /// A node on the other side of the world that sleeps has answered by then.
    private static let reachTime: TimeAmount = .seconds(3)
    /// A member whose dial has failed has been dialled again by then.
    private static let retryTime: TimeAmount = .milliseconds(1_500)

    // MARK: Peers

    /// - Throws: ``NodeError/unknownPeer(_:)``, and as ``peersFile()``.
    package func peer(_ name: String) throws(NodeError) -> (PeersFile.Peer, PeerSighting?) { try peers.peer(name) }

    /// Adds a peer to `peers.json`; see ``Peers/add(_:card:endpoints:)``.
    package func addPeer(_ name: String, card: String?, endpoints: [Messaging.Endpoint]) throws(NodeError)
        -> PeersFile.Peer
    { try peers.add(name, card: card, endpoints: endpoints) }

    /// - Throws: ``NodeError/unknownPeer(_:)``, ``NodeError/homeFile(_:)``.
    package func removePeer(_ name: String) throws(NodeError) { try peers.remove(name) }

    /// Changes an entry of `peers.json`.
    /// - Throws: ``NodeError/unknownPeer(_:)``, ``NodeError/homeFile(_:)``.
    package func changePeer(_ name: String, _ change: (inout PeersFile.Peer) -> Void) throws(NodeError)
        -> PeersFile.Peer
    { try peers.change(name, change) }

    /// Refuses links and invitations of a peer, and forgets those that wait on either side.
    /// - Throws: ``NodeError/unknownPeer(_:)``, ``NodeError/homeFile(_:)``.
    package func blockPeer(_ name: String) throws(NodeError) { try peers.block(name) }

    /// Takes over the peers of another file; those with a name that is taken must be the same. All or none.
    package func importPeers(_ file: PeersFile) throws(NodeError) { try peers.take(file) }

    /// `peers.json` as it is now.
    /// - Throws: ``NodeError/homeFile(_:)`` when the file was edited and cannot be read.
    package func peersFile() throws(NodeError) -> PeersFile { try peers.file() }

    /// The card by which others can introduce themselves to this node.
    package func card() throws(NodeError) -> ContactCard { try peers.card() }

    /// Of the peers that are linked or have been heard since the start, by their names.
    package func peerPresences() -> [String: PeerPresence] { peers.presences() }

    /// Dials a peer's contact inbox.
    /// - Returns: the round trip in milliseconds.
    package func ping(_ name: String, timeout: Milliseconds) throws(NodeError) -> EventLoopFuture<Double> {
        try peers.ping(name, timeout: timeout)
    }

    /// Sends an invite to a peer's contact inbox, for as long as it is valid.
    package func sendInvitation(_ slug: String, invite: VerifiedInvite, name: String?, to peerName: String)
        throws(NodeError)
    { try peers.sendInvitation(slug, invite: invite, name: name, to: peerName) }

    /// Invitations that wait for the user's answer, in the order of their arrival.
    package func invitations() -> [ReceivedInvitation] { peers.invitations() }

    /// Forgets an invitation; an unknown one is no error.
    package func dismissInvitation(_ id: Messaging.MessageID) { peers.dismissInvitation(id) }

    // MARK: Rendezvous nodes

    /// Lets others reach us through a peer, or no longer; see ``Peers/setRendezvous(_:_:)``.
    package func setRendezvous(_ name: String, _ isRendezvous: Bool) throws(NodeError) {
        try peers.setRendezvous(name, isRendezvous)
    }

    /// Whom others may ask, and what became of it.
    package func rendezvousStandings() -> [(name: String, standing: RelayReservationStateMachine.Standing?)] {
        peers.rendezvous.standings()
    }

    // MARK: Mailboxes

    /// Has a peer keep what comes for us while we are away, or no longer; see ``Peers/setMailbox(_:_:)``.
    package func setMailbox(_ name: String, _ isMailbox: Bool) throws(NodeError) {
        try peers.setMailbox(name, isMailbox)
    }

    /// Our mailbox, and how it stands; `nil` without one.
    package var mailboxStanding: OwnMailboxStanding? { mailboxes.own.standing }

    /// What this node keeps for others as a mailbox; `nil` if it serves nobody and keeps nothing.
    package var mailboxService: MailboxServiceStanding? { mailboxes.service }

    /// Whether contents for a member would go to its mailbox now, were it away.
    package func isMailable(_ member: PublicKey, in conversation: ConversationStateMachine) -> Bool {
        conversation.isMailable(member, now: services.now)
    }

    /// What this node does for others; `nil` if it serves nobody.
    package var relayService: (terms: RelayTerms, counts: RelayCounts)? { peers.rendezvous.service }
}
