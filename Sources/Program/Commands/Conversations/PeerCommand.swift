import ArgumentParser
import Control
import Glibc
import NodeRuntime

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
            Add.self, List.self, Call<Show>.self, Remove.self, Ping.self, Call<Block>.self, Call<Unblock>.self,
            Set.self, Card.self, Import.self, Export.self,
        ])

    static func show(_ peer: Peer, _ terminal: Terminal) {
        terminal.fields([
            ("name", peer.name), ("endpoints", peer.endpoints.isEmpty ? "-" : peer.endpoints.joined(separator: " ")),
            ("contact", peer.contact ?? "-"), ("blocked", peer.blocked ? "yes" : "no"),
            ("invitations", peer.invitations), ("rendezvous", peer.rendezvous ? "yes" : "no"),
            ("mailbox", peer.mailbox ? "yes" : "no"), ("online", peer.online ? "yes" : "no"),
            ("last seen", shown(peer.lastSeen)), ("path", peer.path ?? "-"), ("round trip", milliseconds(peer.rttMs)),
            ("link", peer.link.map(shown) ?? "-"), ("handshake", shown(peer.link?.since)),
            ("bytes in, out", peer.link.map { "\(Words.size($0.bytesIn)), \(Words.size($0.bytesOut))" } ?? "-"),
        ])
    }

    fileprivate static func table(_ peers: [Peer], _ terminal: Terminal) {
        terminal.table(
            ["NAME", "ONLINE", "PATH", "RTT", "LAST SEEN", "BLOCKED", "ENDPOINTS"],
            peers.map { peer in
                [
                    peer.name, peer.online ? "yes" : "no", peer.path ?? "-", milliseconds(peer.rttMs),
                    shown(peer.lastSeen), peer.blocked ? "yes" : "no", peer.endpoints.joined(separator: " "),
                ]
            })
        if peers.isEmpty { terminal.note("no peers; add one with `mayfly peer add NAME CARD`") }
    }
}

extension PeerCommand {
    struct Add: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "add", abstract: "Add a named node by its card or endpoints.")

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

        func perform(_ terminal: Terminal) throws {
            let endpoints = endpoint.isEmpty ? nil : endpoint
            try call(Methods.peerAdd, .init(name: name, card: card, endpoints: endpoints), terminal)
        }
    }

    struct List: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "list", abstract: "List the named nodes.",
            discussion: """
                ONLINE means a link to the peer's contact inbox, or to a member that joined by an invitation sent to \
                the peer. Members that joined otherwise cannot be matched to peers. PATH, RTT and LAST SEEN describe \
                the last link since this node started.
                """)

        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try callList(Methods.peerList, Nothing(), "peers", terminal) { PeerCommand.table($0, terminal) }
        }
    }

    enum Show: MethodAction {
        static let configuration = CommandConfiguration(commandName: "show", abstract: "Show one named node.")
        static let method = Methods.peerShow
    }

    struct Remove: NodeCommand {
        static let configuration = CommandConfiguration(commandName: "remove", abstract: "Remove a named node.")

        @Argument(help: "A name from `mayfly peer list`.", completion: .peer) var name: String
        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try call(Methods.peerRemove, .init(name: name), terminal) { _ in terminal.note("removed \(safe(name))") }
        }
    }

    struct Ping: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "ping", abstract: "Reach a named node and measure the round trip.",
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
                        Methods.peerPing, PeerPingParams(name: name, timeout: left), timeout: left.withGrace)
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
        static let configuration = CommandConfiguration(
            commandName: "block", abstract: "Refuse pings and invitations from a named node.",
            discussion: """
                Shared conversations go on: in each the peer's inbox has its own key, which cannot be matched with its \
                card. To end a shared conversation, leave it, or remove the member if you are the creator.

                Example:
                  mayfly peer block ann
                  mayfly conversation remove room ann
                """)
        static let method = Methods.peerBlock
    }

    enum Unblock: MethodAction {
        static let configuration = CommandConfiguration(
            commandName: "unblock", abstract: "Allow pings and invitations from a named node again.")
        static let method = Methods.peerUnblock
    }

    struct Set: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "set", abstract: "Change one property of a named node.",
            discussion: """
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
                """)

        @Argument(help: "A name from `mayfly peer list`.", completion: .peer) var name: String
        @Argument(help: ArgumentHelp(valueName: "key=value")) var assignment: String
        @OptionGroup var global: GlobalOptions

        func validate() throws {
            guard let equals = assignment.firstIndex(of: "="), equals != assignment.startIndex else {
                throw ValidationError("expected key=value, found '\(assignment)'")
            }
        }

        func perform(_ terminal: Terminal) throws {
            let parts = assignment.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(
                String.init)
            try call(Methods.peerSet, .init(name: name, key: parts[0], value: parts[1]), terminal)
        }
    }

    struct Card: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "card", abstract: "Print this node's contact card.")

        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try call(Methods.peerCard, Nothing(), terminal) { card in
                terminal.result(safe(card.contact))
                terminal.note(
                    "on the other machine: mayfly peer add \(safe(card.name ?? "NAME")) '\(safe(card.contact))'")
            }
        }
    }

    struct Import: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "import", abstract: "Add the nodes of a peers file.",
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
            try callList(Methods.peerImport, .init(document: document), "peers", terminal) {
                PeerCommand.table($0, terminal)
            }
        }
    }

    struct Export: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "export", abstract: "Print the named nodes as a peers file.")

        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            let answer = try connect().call(Methods.peerExport, Nothing())
            terminal.result(answer["document"] ?? .null)
        }
    }
}

extension Peer: ShownRecord { func show(_ terminal: Terminal) { PeerCommand.show(self, terminal) } }
