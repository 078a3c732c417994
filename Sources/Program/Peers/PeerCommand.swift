import ArgumentParser
import Control
import FoundationEssentials
import Glibc
import Messaging
import NIOCore
import NodeRuntime
import Transport

struct Link: CodableRecord {
    /// `tcp` or `udp`; for a relayed link, the transport to the rendezvous node.
    var transport = ""
    /// `ipv4` or `ipv6`.
    var family = ""
    /// The remote address as this node sees it.
    var address = ""
    /// End of the handshake.
    var since: Timestamp = Timestamp(milliseconds: 0)
    /// Round trip measured by the transport, in milliseconds; null before the first measurement.
    @OrNull var rttMs: Double?
    /// Sealed bytes since the handshake, in each direction.
    var bytesIn: Int64 = 0
    var bytesOut: Int64 = 0
    /// The keys come from ML-KEM, too: a quantum computer alone does not read a recorded link.
    var postQuantum = false
}

/// How the last link to a member was lost.
struct LostLink: CodableRecord {
    /// `tcp` or `udp`.
    var transport = ""
    /// `unacknowledged` (no acknowledgement for half a minute on an open connection) or `connectionLost`.
    var reason = ""

    var words: String { reason == "unacknowledged" ? Words.unacknowledged : "the connection broke" }
}

struct Peer: CodableRecord {
    var name = ""
    /// `tcp://host:port`; the same port serves UDP.
    var endpoints: [String] = []
    /// Card of the contact inbox; null when only endpoints are known.
    @OrNull var contact: String?
    var blocked = false
    /// Policy for the peer's invitations: `ask`, `accept` or `refuse`.
    var invitations = ""
    /// A link is open: to the peer's contact inbox, or to a member that joined by an invite sent to the peer.
    var online = false
    /// The present time while a link is open.
    @OrNull var lastSeen: Timestamp?
    /// The path of the last contact: `lan`, `direct`, `relayed` or `punched`.
    @OrNull var path: String?
    /// Last measured round trip, in milliseconds.
    @OrNull var rttMs: Double?
    /// The link of the last contact.
    @OrNull var link: Link?
    /// Whether this node uses the peer as a rendezvous node.
    var rendezvous = false
    /// Whether this node uses the peer as its mailbox.
    var mailbox = false
}

extension Link {
    init(_ path: LinkPath) {
        let isIPv6 = if case .v6 = path.address { true } else { false }
        self.init(
            transport: path.transport, family: isIPv6 ? "ipv6" : "ipv4", address: path.address.ipAddress ?? "",
            since: path.openedAt, rttMs: path.rttMilliseconds.map { Self.rounded($0) },
            bytesIn: Int64(clamping: path.bytesIn), bytesOut: Int64(clamping: path.bytesOut),
            postQuantum: path.isPostQuantum)
    }

    static func rounded(_ milliseconds: Double) -> Double { (milliseconds * 1_000).rounded() / 1_000 }
}

/// `udp 192.0.2.7`, a link as one table cell.
func shown(_ link: Link) -> String { "\(safe(link.transport)) \(safe(link.address))" }

extension LostLink {
    init(_ loss: LinkLoss) { self.init(transport: loss.carrier == .tcp ? "tcp" : "udp", reason: loss.reason.kind) }
}

extension Peer {
    init(_ name: String, _ node: isolated Node) throws(NodeError) {
        self.init(try node.peers.peer(name).0, node.peers.presences()[name])
    }

    init(_ peer: PeersFile.Peer, _ presence: PeerPresence?) {
        self.init(
            name: peer.name, endpoints: peer.allEndpoints.map(\.description), contact: peer.contact?.description,
            blocked: peer.isBlocked, invitations: peer.invitationPolicy.rawValue, online: presence?.isLinked ?? false,
            lastSeen: presence?.at, path: presence?.path?.kind.rawValue,
            rttMs: presence?.rttMilliseconds.map { Link.rounded($0) }, link: presence?.path.map { Link($0) },
            rendezvous: peer.isRendezvous, mailbox: peer.isMailbox)
    }
}

extension Peer: ShownRecord, RowRecord {
    func show(_ terminal: Terminal) {
        terminal.fields([
            ("name", name), ("endpoints", endpoints.isEmpty ? "-" : endpoints.joined(separator: " ")),
            ("contact", contact ?? "-"), ("blocked", blocked ? "yes" : "no"), ("invitations", invitations),
            ("rendezvous", rendezvous ? "yes" : "no"), ("mailbox", mailbox ? "yes" : "no"),
            ("online", online ? "yes" : "no"), ("last seen", shown(lastSeen)), ("path", path ?? "-"),
            ("round trip", milliseconds(rttMs)), ("link", link.map(shown) ?? "-"), ("handshake", shown(link?.since)),
            ("bytes in, out", link.map { "\(sizeText($0.bytesIn)), \(sizeText($0.bytesOut))" } ?? "-"),
        ])
    }

    static let head = ["NAME", "ONLINE", "PATH", "RTT", "LAST SEEN", "BLOCKED", "ENDPOINTS"]
    static let none = "no peers; add one with `mayfly peer add NAME CARD`"
    var cells: [String] {
        [
            name, online ? "yes" : "no", path ?? "-", milliseconds(rttMs), shown(lastSeen), blocked ? "yes" : "no",
            endpoints.joined(separator: " "),
        ]
    }
}

struct PeerAddParams: CodableRecord {
    var name = ""
    /// Contact card, as `peer card` prints it.
    var card: String?
    var endpoints: [String]?
}

struct PeerListResult: CodableRecord { var peers: [Peer] = [] }

struct PeerPingParams: CodableRecord {
    var name = ""
    var timeout: Interval?
}

struct PeerSetParams: CodableRecord {
    var name = ""
    /// `invitations`, `endpoints`, `rendezvous` or `mailbox`.
    var key = ""
    var value = ""
}

struct PeerCardResult: CodableRecord, ShownRecord {
    var name: String?
    var endpoints: [String] = []
    var contact = ""

    func show(_ terminal: Terminal) {
        terminal.result(safe(contact))
        terminal.note("on the other machine: mayfly peer add \(safe(name ?? "NAME")) '\(safe(contact))'")
    }
}

/// What `peer.export` returns and `peer.import` takes.
struct PeersDocument: CodableRecord {
    /// Content of a peers.json file.
    var document: JSONValue = .null
}

struct PeerParams: CodableRecord {
    /// As in `peers.json`.
    var name = ""
}

extension PeerParams: OneArgument {
    struct Argument: ParsableArguments {
        @ArgumentParser.Argument(help: "A name from `mayfly peer list`.", completion: .peer) var name: String
    }
    init(_ argument: Argument) { self.init(name: argument.name) }
}

enum PeerMethods {
    static let all: [any ServedMethod] = [add, list, show, remove, block, unblock, set, ping, card, export, importFile]

    static let add = NodeMethod<PeerAddParams, Peer>("peer.add", "Add a named node by its card or endpoints.") {
        params, node in
        let endpoints = try EndpointOption.endpoints(params.endpoints ?? [], option: "--endpoint")
        _ = try node.peers.add(params.name, card: params.card, endpoints: endpoints)
        return .now(try Peer(params.name, node))
    }

    static let list = NodeMethod<Nothing, PeerListResult>("peer.list", "List the named nodes.") { _, node in
        .now(try PeerListResult(node))
    }

    static let show = NodeMethod<PeerParams, Peer>("peer.show", "Show one named node.") { params, node in
        .now(try Peer(params.name, node))
    }

    static let remove = NodeMethod<PeerParams, Acknowledged>("peer.remove", "Remove a named node.") { params, node in
        try node.peers.remove(params.name)
        return .now(Acknowledged())
    }

    static let block = NodeMethod<PeerParams, Peer>("peer.block", "Refuse pings and invitations from a named node.") {
        params, node in
        try node.peers.block(params.name)
        return .now(try Peer(params.name, node))
    }

    static let unblock = NodeMethod<PeerParams, Peer>(
        "peer.unblock", "Allow pings and invitations from a named node again."
    ) { params, node in
        _ = try node.peers.change(params.name) { $0.blocked = nil }
        return .now(try Peer(params.name, node))
    }

    static let set = NodeMethod<PeerSetParams, Peer>("peer.set", "Change one property of a named node.") {
        params, node in
        func isOn() throws(ControlError) -> Bool {
            guard ["on", "off"].contains(params.value) else {
                throw ControlError(.usage, "\(params.key): `\(params.value)` is not one of on, off")
            }
            return params.value == "on"
        }
        switch params.key {
        case "invitations":
            guard let value = PeersFile.Invitations(rawValue: params.value) else {
                throw ControlError(.usage, "invitations: `\(params.value)` is not one of ask, accept, refuse")
            }
            _ = try node.peers.change(params.name) { $0.invitations = value }
        case "endpoints":
            let endpoints = try EndpointOption.endpoints(
                params.value.split(separator: ",").map(String.init), option: "endpoints")
            _ = try node.peers.change(params.name) { $0.endpoints = endpoints.isEmpty ? nil : endpoints }
        case "rendezvous": try node.peers.setRendezvous(params.name, try isOn())
        case "mailbox": try node.peers.setMailbox(params.name, try isOn())
        default:
            throw ControlError(
                .usage, "`\(params.key)` cannot be set", hint: "keys: invitations, endpoints, rendezvous, mailbox")
        }
        return .now(try Peer(params.name, node))
    }

    static let ping = NodeMethod<PeerPingParams, Peer>(
        "peer.ping", "Reach a named node and measure the round trip.", waits: .always
    ) { params, node in
        let timeout = try positiveTime(params.timeout) ?? 10_000
        let answer = try node.peers.ping(params.name, timeout: timeout)
        return .later(answer.flatMapThrowing { [node] _ in try node.assumeIsolated { try Peer(params.name, $0) } })
    }

    static let card = NodeMethod<Nothing, PeerCardResult>("peer.card", "Print this node's contact card.") { _, node in
        let card = try node.card()
        return .now(
            PeerCardResult(
                name: node.configuredName, endpoints: card.endpoints.map(\.description), contact: card.description))
    }

    static let export = NodeMethod<Nothing, PeersDocument>("peer.export", "Print the named nodes as a peers file.") {
        _, node in
        let encoded = try JSONEncoder().encode(try node.peers.file())
        return .now(PeersDocument(document: try JSONReader.read(encoded)))
    }

    static let importFile = NodeMethod<PeersDocument, PeerListResult>("peer.import", "Add the nodes of a peers file.") {
        params, node in
        let file: PeersFile
        do { file = try JSONDecoder().decode(PeersFile.self, from: Data(params.document.utf8)) } catch let error
            as DecodingError
        {
            let (field, message) = words(error)
            throw ControlError(
                .usage, "this is not a peers file: `\(field)` \(message)", hint: "see peers.example.json", field: field)
        }
        try node.peers.take(file)
        return .now(try PeerListResult(node))
    }

    private static func words(_ error: DecodingError) -> (field: String, message: String) {
        func place(_ path: [any CodingKey]) -> String {
            let text = path.map { key in key.intValue.map { "[\($0)]" } ?? ".\(key.stringValue)" }.joined()
            return String(text.drop { $0 == "." })
        }
        switch error {
        case .keyNotFound(let key, let context): return (place(context.codingPath + [key]), "is missing")
        case .typeMismatch(_, let context), .valueNotFound(_, let context):
            return (place(context.codingPath), "has the wrong type")
        case .dataCorrupted(let context): return (place(context.codingPath), context.debugDescription)
        @unknown default: return ("", "does not fit")
        }
    }
}

extension PeerListResult {
    fileprivate init(_ node: isolated Node) throws(NodeError) {
        let presences = node.peers.presences()
        self.init(peers: try node.peers.file().peers.map { Peer($0, presences[$0.name]) })
    }
}

struct PeerCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "peer", abstract: "Nodes known by name.",
        discussion: """
            Examples:
              mayfly peer card                                     on one machine
              mayfly peer add ann 'CARD'                           on the other
              mayfly peer add bob --endpoint tcp://10.0.0.7:7440
              mayfly peer ping ann
              mayfly peer set ann invitations=accept
              mayfly peer set hub rendezvous=on                    be reached through this rendezvous node
              mayfly peer set hub mailbox=on                       use it as the mailbox of this node
            """,
        subcommands: [
            Add.self, ListCall<List>.self, Call<Show>.self, Remove.self, Ping.self, Call<Block>.self,
            Call<Unblock>.self, Set.self, Call<Card>.self, Import.self, Export.self,
        ])

    struct Add: MethodCommand {
        static let method = PeerMethods.add

        @Argument(help: "A name of your choice.") var name: String
        @Argument(help: "The node's card, from `mayfly peer card` on that machine.") var card: String?
        @Option(
            parsing: .singleValue,
            help: ArgumentHelp("The node's endpoint, if you have no card.", valueName: "tcp://host:port")) var endpoint:
            [String] = []
        @OptionGroup var global: GlobalOptions

        func validate() throws {
            if card == nil, endpoint.isEmpty { throw ValidationError("give the peer's CARD or an --endpoint") }
        }

        func params(_ terminal: Terminal) -> PeerAddParams {
            .init(name: name, card: card, endpoints: endpoint.isEmpty ? nil : endpoint)
        }
    }

    enum List: ListAction {
        typealias Element = Peer
        static let method = PeerMethods.list
        static let list = "peers"
        static let discussion = """
            ONLINE means a link to the peer's contact inbox, or to a member that joined by an invitation sent to \
            the peer. Members that joined otherwise cannot be matched to peers. PATH, RTT and LAST SEEN describe \
            the last link since this node started.
            """
    }

    enum Show: MethodAction { static let method = PeerMethods.show }

    struct Remove: MethodCommand {
        static let method = PeerMethods.remove

        @OptionGroup var name: PeerParams.Argument
        @OptionGroup var global: GlobalOptions

        func params(_ terminal: Terminal) -> PeerParams { .init(name) }
        func show(_ result: Acknowledged, _ terminal: Terminal) { terminal.note("removed \(safe(name.name))") }
    }

    struct Ping: NodeCommand {
        static let configuration = CommandConfiguration(
            PeerMethods.ping,
            discussion: """
                The exit code is 5 if the node cannot be reached. With --direct the command retries while the only \
                path is through a rendezvous node. It ends with 4 if there is no direct path in time; `mayfly \
                netcheck` says why.

                Examples:
                  mayfly peer ping lab
                  mayfly peer ping lab --direct --timeout 30
                """)

        @Argument(help: "A name from `mayfly peer list`.", completion: .peer) var name: String
        @Option(time: "How long to try. Default: 10.") var timeout: Interval?
        @Flag(help: "Retry until the path is direct.") var direct = false
        @OptionGroup var global: GlobalOptions

        /// Between two pings, in microseconds.
        private static let pause: UInt32 = 250_000

        func perform(_ terminal: Terminal) throws {
            let client = try connect()
            let end = ContinuousClock.now + (timeout?.duration ?? .seconds(10))
            let relayedOnly = ControlError(
                .timedOut, "`\(name)` is reached through a rendezvous node only",
                hint: "`mayfly netcheck` says what prevents a direct path")
            var isRelayed = false
            repeat {
                let left = Interval(milliseconds: max(1, Int64((end - .now) / .milliseconds(1))))
                let value: JSONValue
                do {
                    value = try client.call(
                        PeerMethods.ping, PeerPingParams(name: name, timeout: left), timeout: left.withGrace)
                } catch {
                    // The last ping has little time.
                    throw isRelayed && error.kind == .unreachable && left.milliseconds < 2_000 ? relayedOnly : error
                }
                let peer = try understand(value, as: Peer.self)
                if !direct || peer.path != "relayed" {
                    if terminal.json { return terminal.result(value) }
                    let words = [peer.path.map(safe), peer.link.map(shown), peer.rttMs.map { milliseconds($0) }]
                    return terminal.result("\(safe(peer.name)): " + words.compactMap(\.self).joined(separator: ", "))
                }
                isRelayed = true
                usleep(Self.pause)
            } while .now < end
            throw relayedOnly
        }
    }

    enum Block: MethodAction {
        static let method = PeerMethods.block
        static let discussion = """
            Shared conversations go on: in each the peer's inbox has its own key, which cannot be matched with its \
            card. To end a shared conversation, leave it, or remove the member if you are the creator.

            Example:
              mayfly peer block ann
              mayfly conversation remove room ann
            """
    }

    enum Unblock: MethodAction { static let method = PeerMethods.unblock }

    struct Set: MethodCommand {
        static let method = PeerMethods.set
        static let discussion = """
            Keys: invitations (ask, accept, refuse), endpoints (separated by commas; empty for those of its card),
            rendezvous (on, off), mailbox (on, off).

            With rendezvous=on others can reach this node through the named node. The named node must run with \
            --rendezvous and have this node among its peers. It relays sealed bytes, and sees addresses, sizes and \
            times.

            With mailbox=on the named node keeps sealed messages for this node while this node is offline. The \
            members of a conversation must agree to that (`mayfly lifetime propose C 1d --mailbox disk`). The \
            named node must run with --mailbox and have this node among its peers. A node has one mailbox. The \
            mailbox cannot read messages; it sees addresses, times, size classes and how much waits. `mayfly \
            mailbox status` shows its state.

            Example:
              mayfly peer set ann invitations=accept
              mayfly peer set hub rendezvous=on
              mayfly peer set hub mailbox=on
            """

        @Argument(help: "A name from `mayfly peer list`.", completion: .peer) var name: String
        @Argument(help: ArgumentHelp(valueName: "key=value")) var assignment: String
        @OptionGroup var global: GlobalOptions

        func validate() throws {
            guard let equals = assignment.firstIndex(of: "="), equals != assignment.startIndex else {
                throw ValidationError("expected key=value, found '\(assignment)'")
            }
        }

        func params(_ terminal: Terminal) -> PeerSetParams {
            let parts = assignment.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(
                String.init)
            return .init(name: name, key: parts[0], value: parts[1])
        }
    }

    enum Card: MethodAction { static let method = PeerMethods.card }

    struct Import: NodeCommand {
        static let configuration = CommandConfiguration(
            PeerMethods.importFile,
            discussion: """
                FILE is `-` for standard input.

                Example:
                  ssh desk mayfly peer export | mayfly peer import -
                """)

        @Argument(help: "A peers file, as `mayfly peer export` prints it.", completion: .file()) var file: String
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            let bytes = try InputFile.read(file, byteLimit: ControlLimits.requestByteCount / 2)
            let document: JSONValue
            do {
                // Validated here, where line numbers are known.
                _ = try PeersFile.parse(bytes, path: file == "-" ? "standard input" : file)
                document = try JSONReader.read(bytes)
            } catch let error as HomeFileError {
                throw ControlError(.failed, "\(error)", hint: "nothing was imported; see peers.example.json")
            } catch let error as JSONSyntaxError {
                throw ControlError(.failed, "\(file) is not JSON: \(error.message)", hint: "see peers.example.json")
            }
            try callList(PeerMethods.importFile, .init(document: document), "peers", of: Peer.self, terminal)
        }
    }

    struct Export: NodeCommand {
        static let configuration = CommandConfiguration(PeerMethods.export)

        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            let answer = try connect().call(PeerMethods.export, Nothing())
            terminal.result(answer["document"] ?? .null)
        }
    }
}
