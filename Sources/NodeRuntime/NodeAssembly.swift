import Crypto
import Messaging

/// Makes the objects of a node. Each gets the objects that it uses, all made earlier. Calls to later objects go through
/// closures, set at the end.
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
    let codes: Codes
    let codeJoins: CodeJoins
    let mailboxes: Mailboxes

    init(_ services: NodeServices, _ book: PeerBook) {
        let endings = EndingTable()
        let unread = UnreadInboxes()
        let listening = Listening(services)
        let addresses = OwnAddresses(services, listening)
        let core = ProtocolCore(services, book, addresses)
        let events = NodeEvents(core, endings)

        // Inboxes and their persistence.
        let routes = Routes(core, endings)
        let aliases = Aliases(core, unread, book)
        let writer = InboxWriter(core, routes, aliases)
        let sleep = InboxSleep(core, unread, routes, writer)
        let counters = TokenCounters(core, writer, sleep)
        let output = LinkOutput(core, book.pings)
        let held = HeldEffects(core, output, writer, events)
        let transfers = FileTransfers(core, output, writer)
        let uploads = Uploads(core, sleep, writer, held)
        let removal = InboxRemoval(core, routes, output, held, uploads)
        let explosions = Explosions(core, endings, unread, routes, writer, removal)

        let streams = RelayStreams(core, routes, output, listening)
        let mailboxLinks = MailboxLinks(core, routes, listening)
        let dials = Dials(core, routes, counters, streams, mailboxLinks, listening, addresses)
        let knocks = Knocks(core, endings, routes, explosions, sleep, streams, listening)
        let punching = Punching(core, addresses, listening)
        let mailboxes = Mailboxes(core, unread, book, mailboxLinks, sleep, writer, held)
        let rendezvous = RendezvousNodes(core, book, addresses, mailboxes)
        let peers = Peers(core, unread, book, addresses, output, rendezvous)
        let links = LinkEvents(core, routes, counters, sleep, dials, streams, output, transfers, peers, mailboxLinks)
        let network = NodeNetwork(core, listening, addresses, routes, streams, rendezvous, punching, book)

        // Start, unlock and timed work.
        let summaries = InboxSummaries(core, routes)
        let loading = InboxLoading(
            core, endings, unread, routes, sleep, held, uploads, links, removal, explosions, summaries, rendezvous,
            mailboxes)
        let storageLock = StorageLock(core, routes, dials, writer, loading, uploads, explosions, rendezvous, events)
        let expiry = Expiry(core, endings, unread, writer, removal, events)
        let performer = ActionPerformer(
            core, endings, writer, held, sleep, removal, explosions, knocks, routes, dials, streams, punching, output,
            transfers, network, mailboxes)
        let directory = ConversationDirectory(core, aliases, sleep, explosions, unread)
        let codes = Codes(core, directory, explosions, held, events, listening)
        let timer = NodeTimer(
            core, performer, addresses, unread, routes, counters, writer, sleep, explosions, loading, summaries, expiry,
            peers, network, rendezvous, mailboxes, codes)

        self.core = core
        self.directory = directory
        self.codes = codes
        self.mailboxes = mailboxes
        codeJoins = CodeJoins(services, listening)
        self.uploads = uploads
        self.peers = peers
        self.network = network
        self.storageLock = storageLock
        self.loading = loading
        self.held = held
        self.timer = timer

        core.connect(
            ProtocolCore.Events(
                perform: { [unowned performer] actions in performer.perform(actions) },
                turnEnded: { [unowned timer, unowned writer] in
                    writer.commits.turnEnded()
                    timer.schedule()
                }))
        writer.connect(
            InboxWriter.Events(
                committed: { [unowned held] commit in held.committed(commit) },
                reload: { [unowned loading] inbox in loading.reload(inbox) }))
        listening.connect = { [unowned links, unowned knocks, unowned codes] transport in
            links.connect(transport, knocks: knocks)
            codes.connect(transport)
        }
        events.invited = { [unowned peers] invitation, key in peers.answer(invitation: invitation, from: key) }
        routes.contactRegistered = { [unowned network] in network.contactRegistered() }
        storageLock.unlocked = { [unowned timer] in timer.tick() }
    }
}
