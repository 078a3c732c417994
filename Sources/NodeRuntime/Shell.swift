import Logging
import Messaging
import NIOCore
import Store

/// Owns the services and the parts of a node, which ask it for each other. On the node's loop alone.
final class Shell {
    let services: NodeServices
    let book: PeerBook
    let inboxes = InboxTable()
    let links = LinkTable()
    let memory = MessageMemory()
    let endings = EndingTable()
    let unread = UnreadInboxes()

    init(_ services: NodeServices, _ book: PeerBook) {
        self.services = services
        self.book = book
    }

    // The core, and what its actions change.
    private(set) lazy var core = ProtocolCore(self)
    private(set) lazy var performer = ActionPerformer(self)
    private(set) lazy var events = NodeEvents(self)
    private(set) lazy var commits = Commits(self)
    private(set) lazy var timer = NodeTimer(self)

    // Inboxes and their persistence.
    private(set) lazy var routes = Routes(self)
    private(set) lazy var aliases = Aliases(self)
    private(set) lazy var directory = ConversationDirectory(self)
    private(set) lazy var writer = InboxWriter(self)
    private(set) lazy var outbox = Outbox(self)
    private(set) lazy var sleep = InboxSleep(self)
    private(set) lazy var counters = TokenCounters(self)
    private(set) lazy var removal = InboxRemoval(self)
    private(set) lazy var summaries = InboxSummaries(self)
    private(set) lazy var loading = InboxLoading(self)
    private(set) lazy var storageLock = StorageLock(self)
    private(set) lazy var retries = RetryList(self)
    private(set) lazy var expiry = Expiry(self)
    private(set) lazy var explosions = Explosions(self)
    private(set) lazy var knocks = Knocks(self)
    private(set) lazy var transfers = FileTransfers(self)
    private(set) lazy var uploads = Uploads(self)

    // Links and the network.
    private(set) lazy var listening = Listening(self)
    private(set) lazy var addresses = OwnAddresses(self)
    private(set) lazy var network = NodeNetwork(self)
    private(set) lazy var portMapper = PortMapper(self)
    private(set) lazy var linkEvents = LinkEvents(self)
    private(set) lazy var output = LinkOutput(self)
    private(set) lazy var dials = Dials(self)
    private(set) lazy var anonymousLinks = AnonymousLinks(self)
    private(set) lazy var streams = RelayStreams(self)
    private(set) lazy var punching = Punching(self)
    private(set) lazy var peers = Peers(self)
    private(set) lazy var peerServices = PeerServices(self)
    private(set) lazy var codes = Codes(self)
    private(set) lazy var codeJoins = CodeJoins(self)

    // The mailbox.
    private(set) lazy var ownMailbox = OwnMailbox(self)
    private(set) lazy var keptBoxes = KeptBoxes(self)
    private(set) lazy var sliceKeys = SliceKeyMaker(self)
    private(set) lazy var mailOrders = MailOrders(self)
    private(set) lazy var mailNotices = MailNotices(self)
}

/// A part of a node, on the node's loop alone. It refers to the shell unowned: work on another thread retains the
/// shell until its end, as ``execute(_:)`` does, and callbacks of connections hold the part weakly.
package class Part {
    unowned let shell: Shell
    let services: NodeServices

    init(_ shell: Shell) {
        self.shell = shell
        services = shell.services
    }
}

extension Part {
    var core: ProtocolCore { shell.core }
    var inboxes: InboxTable { shell.inboxes }
    var links: LinkTable { shell.links }
    var memory: MessageMemory { shell.memory }
    var retries: RetryList { shell.retries }

    var loop: any EventLoop { services.loop }
    var options: NodeOptions { services.options }
    var environment: Environment { services.environment }
    var store: Store { services.store }
    var log: Logger { services.log }
    var storage: StorageHealth { services.storage }
    var configuration: NodeConfiguration { services.configuration }
    var isStopped: Bool { services.isStopped }
    var now: Timestamp { services.now }
    /// Has no state to write back.
    var random: Randomness {
        get { .system }
        set {}
    }

    func readClock() -> NodeClock.Reading { services.readClock() }
    func say(_ text: String, of error: any Error) { services.say(text, of: error) }
    func note(_ occurrence: @autoclosure () -> Occurrence) { services.note(occurrence()) }

    /// Runs `body` in the loop's next pass; the loop retains the shell until then.
    func execute(_ body: @escaping () -> Void) {
        loop.assumeIsolated().execute { [shell] in withExtendedLifetime(shell) { body() } }
    }

    /// Runs `body` after a time; the loop retains the shell until then.
    @discardableResult func after(_ time: Milliseconds, _ body: @escaping () -> Void) -> Scheduled<Void> {
        loop.assumeIsolated().scheduleTask(in: .milliseconds(time)) { [shell] in withExtendedLifetime(shell) { body() }
        }
    }
}
