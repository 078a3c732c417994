import Crypto
import Messaging

/// The objects of a node, each made with those that it uses: a later one uses earlier ones only. What an earlier one needs
/// of a later one is a closure, set at the end.
struct NodeAssembly {
    let core: ProtocolCore
    let directory: ConversationDirectory
    let uploads: Uploads
    let peers: Peers
    let network: NodeNetwork
    let storageLock: StorageLock
    let loading: InboxLoading
    let held: HeldEffects
    let timer: NodeTimer

    init(_ services: NodeServices, peers book: PeerBook) {
        // What is held in memory.
        let endings = EndingTable()
        let unread = UnreadInboxes()
        let listening = Listening(services)
        let addresses = OwnAddresses(services, listening: listening)
        let core = ProtocolCore(
            services,
            inboxes: InboxTable(),
            links: LinkTable(),
            memory: MessageMemory(),
            peers: book,
            addresses: addresses
        )
        self.core = core
        let events = NodeEvents(core, endings: endings)

        // Inboxes and what is written of them.
        let routes = Routes(core, endings: endings)
        let aliases = Aliases(core, unread: unread, peers: book)
        let writer = InboxWriter(core, routes: routes, aliases: aliases)
        let sleep = InboxSleep(core, unread: unread, routes: routes, writer: writer)
        let counters = TokenCounters(core, writer: writer, sleep: sleep)
        let output = LinkOutput(core, pings: book.pings)
        let held = HeldEffects(core, output: output, writer: writer, events: events)
        self.held = held
        let transfers = FileTransfers(core, output: output, writer: writer)
        uploads = Uploads(core, sleep: sleep, writer: writer, held: held)
        let removal = InboxRemoval(core, routes: routes, output: output, held: held, uploads: uploads)
        let explosions = Explosions(
            core,
            endings: endings,
            unread: unread,
            routes: routes,
            writer: writer,
            removal: removal
        )
        directory = ConversationDirectory(
            core,
            aliases: aliases,
            sleep: sleep,
            explosions: explosions,
            unread: unread
        )

        // Links.
        let streams = RelayStreams(core, routes: routes, output: output, listening: listening)
        let dials = Dials(core, routes: routes, counters: counters, streams: streams, listening: listening)
        let knocks = Knocks(
            core,
            endings: endings,
            routes: routes,
            explosions: explosions,
            sleep: sleep,
            streams: streams,
            listening: listening
        )
        let punching = Punching(core, addresses: addresses, listening: listening)
        let rendezvous = RendezvousNodes(core, peers: book, addresses: addresses)
        let peers = Peers(
            core,
            unread: unread,
            book: book,
            addresses: addresses,
            output: output,
            rendezvous: rendezvous
        )
        self.peers = peers
        let links = LinkEvents(
            core,
            routes: routes,
            counters: counters,
            sleep: sleep,
            dials: dials,
            streams: streams,
            output: output,
            transfers: transfers,
            peers: peers
        )
        let network = NodeNetwork(
            core,
            listening: listening,
            addresses: addresses,
            routes: routes,
            streams: streams,
            rendezvous: rendezvous,
            punching: punching,
            peers: book
        )
        self.network = network

        // What is done at the start, at an unlock, and with time.
        let summaries = InboxSummaries(core, routes: routes)
        let loading = InboxLoading(
            core,
            endings: endings,
            unread: unread,
            routes: routes,
            sleep: sleep,
            held: held,
            uploads: uploads,
            links: links,
            removal: removal,
            explosions: explosions,
            summaries: summaries,
            rendezvous: rendezvous
        )
        self.loading = loading
        storageLock = StorageLock(
            core,
            routes: routes,
            dials: dials,
            writer: writer,
            loading: loading,
            explosions: explosions,
            rendezvous: rendezvous,
            events: events
        )
        let expiry = Expiry(
            core,
            endings: endings,
            unread: unread,
            writer: writer,
            removal: removal,
            events: events
        )
        let performer = ActionPerformer(
            core,
            endings: endings,
            writer: writer,
            held: held,
            sleep: sleep,
            removal: removal,
            explosions: explosions,
            knocks: knocks,
            routes: routes,
            dials: dials,
            streams: streams,
            punching: punching,
            output: output,
            transfers: transfers,
            network: network
        )
        let timer = NodeTimer(
            core,
            performer: performer,
            addresses: addresses,
            unread: unread,
            routes: routes,
            counters: counters,
            writer: writer,
            sleep: sleep,
            explosions: explosions,
            loading: loading,
            summaries: summaries,
            expiry: expiry,
            peers: peers,
            network: network,
            rendezvous: rendezvous
        )
        self.timer = timer

        core.connect(
            ProtocolCore.Events(
                perform: { [unowned performer] actions in performer.perform(actions) },
                schedule: { [unowned timer] in timer.schedule() }
            )
        )
        writer.connect(
            InboxWriter.Events(
                committed: { [unowned held] commit in held.committed(commit) },
                reload: { [unowned loading] inbox in loading.reload(inbox) }
            )
        )
        listening.connect = { [unowned links, unowned knocks] transport in links.connect(transport, knocks: knocks) }
        events.invited = { [unowned peers] invitation, key in peers.answer(invitation: invitation, from: key) }
        routes.contactRegistered = { [unowned network] in network.contactRegistered() }
        storageLock.unlocked = { [unowned timer] in timer.tick() }
    }
}
