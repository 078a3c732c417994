import Primitives

/// All inboxes of a node, and what is found in them without looking at all of them. Reads and writes like a dictionary;
/// what is entered is entered into the indices too.
struct InboxTable: Sendable {
    private var awake: [ClientID: NodeStateMachine.Inbox] = [:]
    private(set) var sleeping: [ClientID: SleepingInbox] = [:]
    private(set) var directory = InboxDirectory()
    private var deadlines = DeadlineQueue<ClientID>()
    /// Unread bytes in memory, of inboxes that have some.
    private var held: [ClientID: Int] = [:]
    /// Of all inboxes together.
    private(set) var heldByteCount = 0
    private(set) var contact: ClientID?
    private var unusedClients: Set<ClientID> = []
    private var joining: Set<ClientID> = []
    /// From which the places at rendezvous nodes follow, of all but the contact inbox.
    private var relaySeeds: [ClientID: [RelaySeed]] = [:]
    private var relayOwners: [RelaySeed: ClientID] = [:]
    /// They have changed since somebody has looked.
    var relaysHaveChanged = false
    /// There are rendezvous nodes.
    private(set) var usesRendezvous = false

    /// Those that are awake, the unused and the contact inbox among them.
    var keys: Dictionary<ClientID, NodeStateMachine.Inbox>.Keys { awake.keys }
    var unused: ClientID? { unusedClients.min() }
    var joins: [ClientID] { joining.sorted() }
    var isEmpty: Bool { awake.isEmpty && sleeping.isEmpty }

    func contains(_ client: ClientID) -> Bool { awake[client] != nil || sleeping[client] != nil }

    subscript(client: ClientID) -> NodeStateMachine.Inbox? {
        get { awake[client] }
        set {
            guard let newValue else { return forget(client) }
            enter(newValue, client)
            awake[client] = newValue
        }
    }

    /// Takes a machine out, to be changed in place and put back: the indices stay as they are meanwhile.
    mutating func removeValue(forKey client: ClientID) -> NodeStateMachine.Inbox? { awake.removeValue(forKey: client) }

    private mutating func forget(_ client: ClientID) {
        awake[client] = nil
        sleeping[client] = nil
        directory.remove(client)
        deadlines.remove(client)
        setHeld(client, 0)
        setRelaySeeds(client, [])
        if contact == client {
            contact = nil
            usesRendezvous = false
        }
        unusedClients.remove(client)
        joining.remove(client)
    }

    private mutating func setHeld(_ client: ClientID, _ byteCount: Int) {
        let before = held[client] ?? 0
        guard before != byteCount else { return }
        heldByteCount += byteCount - before
        held[client] = byteCount == 0 ? nil : byteCount
    }

    private mutating func enter(_ inbox: NodeStateMachine.Inbox, _ client: ClientID) {
        switch inbox {
        case .unused(let key):
            if unusedClients.insert(client).inserted {
                setRelaySeeds(client, [RelaySeed(key: key, generation: 0)])
            }
        case .contact(let machine):
            if contact != client {
                unusedClients.remove(client)
                contact = client
                setRelaySeeds(client, [])
            }
            usesRendezvous = machine.usesRendezvous
            deadlines.set(client, machine.nextDeadline)
        case .joining(let machine):
            if joining.insert(client).inserted { unusedClients.remove(client) }
            setRelaySeeds(client, machine.record.state == .joining ? [machine.relaySeed] : [])
            deadlines.set(client, machine.nextDeadline)
        case .conversation(let machine):
            if directory.conversation(of: client) == nil {
                unusedClients.remove(client)
                joining.remove(client)
                sleeping[client] = nil
            }
            directory.set(
                client,
                machine.conversation,
                name: machine.record.name,
                isRemoved: machine.record.isRemoved
            )
            deadlines.set(client, machine.nextDeadline)
            setHeld(client, machine.heldByteCount)
            setRelaySeeds(client, machine.relaySeeds)
        }
    }

    private mutating func setRelaySeeds(_ client: ClientID, _ seeds: [RelaySeed]) {
        let before = relaySeeds[client] ?? []
        guard before != seeds else { return }
        for seed in before { relayOwners[seed] = nil }
        for seed in seeds { relayOwners[seed] = client }
        relaySeeds[client] = seeds.isEmpty ? nil : seeds
        relaysHaveChanged = true
    }

    /// Whose place at rendezvous nodes it is.
    func client(of seed: RelaySeed) -> ClientID? { relayOwners[seed] }

    /// Of an inbox, the present one first.
    func relaySeeds(of client: ClientID) -> [RelaySeed] { relaySeeds[client] ?? [] }

    /// Who has made a conversation; `nil` for what is none.
    func creator(of client: ClientID) -> PublicKey? {
        if let inbox = sleeping[client] { return inbox.summary.creator }
        if case .conversation(let machine)? = awake[client] { return machine.record.genesis.creator }
        return nil
    }

    // MARK: Sleep

    /// An inbox sleeps from now on.
    mutating func sleep(_ inbox: SleepingInbox) {
        let client = inbox.summary.client
        awake[client] = nil
        setHeld(client, 0)
        sleeping[client] = inbox
        directory.set(
            client,
            inbox.summary.conversation,
            name: inbox.summary.name,
            isRemoved: inbox.summary.isRemoved
        )
        deadlines.remove(client)
        deadlines.set(client, inbox.wakeAt)
        setRelaySeeds(client, inbox.summary.relaySeeds)
    }

    /// Takes a sleeping inbox out: it is woken, and put back as what it is then.
    mutating func takeSleeping(_ client: ClientID) -> SleepingInbox? {
        deadlines.remove(client)
        return sleeping.removeValue(forKey: client)
    }

    /// A sleeping inbox is to tell its members where it is now.
    mutating func setMoved(_ client: ClientID, retryAt: Timestamp) {
        guard var inbox = sleeping[client] else { return }
        inbox.hasMoved = true
        inbox.retryAt = min(inbox.retryAt ?? retryAt, retryAt)
        sleeping[client] = inbox
        deadlines.set(client, inbox.wakeAt)
    }

    // MARK: Time

    /// Not after the first moment at which an inbox has something to do.
    var nextDeadline: Timestamp? { deadlines.next }

    /// Those that may have something to do.
    mutating func takeDue(until now: Timestamp) -> [ClientID] { deadlines.take(until: now) }

    /// Looks again at when an inbox has something to do.
    mutating func setDeadline(_ client: ClientID, _ deadline: Timestamp?) { deadlines.set(client, deadline) }
}
