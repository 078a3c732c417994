import Glibc
import Logging
import Messaging
import NIOCore
import Transport

/// The transport of a node and its listeners.
final class Listening: NodePart {
    let services: NodeServices
    /// `nil` before the start.
    private(set) var transport: LinkTransport?
    private(set) var entries: [Entry] = []
    /// Why there are no links over UDP where there should be some.
    var withoutDatagrams: [ListenFailure] { entries.compactMap(\.withoutDatagrams) }

    /// One of the places where the node listens.
    struct Entry {
        /// As it is configured; `nil` for one that the caller has made.
        let endpoint: Messaging.Endpoint?
        let tcp: TCPListener
        let withoutDatagrams: ListenFailure?

        /// With the port that the system chose.
        var address: SocketAddress { tcp.address }
    }

    /// Connects a new transport with what hears of its links.
    var connect: (LinkTransport) -> Void = { _ in }

    init(_ services: NodeServices) { self.services = services }

    var hasDatagrams: Bool { transport?.hasDatagrams ?? false }

    func makeTransport() -> LinkTransport {
        let transport = LinkTransport(
            loop: loop, network: environment.network,
            datagrams: (options.datagrams ?? configuration.datagrams ?? true) ? environment.datagrams : nil,
            turns: services.turns)
        self.transport = transport
        connect(transport)
        return transport
    }

    /// Opens a listener, which is none of ours until it is added.
    func bind(_ endpoint: Messaging.Endpoint, isolation: isolated (any Actor)? = #isolation) async throws -> Entry {
        guard let transport else { throw NodeError.stopping }
        let listening = try await transport.listen(host: endpoint.host, port: Int(endpoint.port)).get()
        return Entry(endpoint: endpoint, tcp: listening.tcp, withoutDatagrams: listening.withoutDatagrams)
    }

    /// Opens the configured listeners. A wildcard of a family that the kernel does not have is passed over where another
    /// listener is open.
    func open(_ endpoints: [Messaging.Endpoint], isolation: isolated (any Actor)? = #isolation) async throws {
        var missing: ListenFailure?
        for endpoint in endpoints {
            do { add(try await bind(endpoint)) } catch let failure as ListenFailure {
                guard Self.isOfMissingFamily(endpoint, failure) else { throw failure }
                missing = failure
            }
        }
        guard let missing else { return }
        guard !entries.isEmpty else { throw missing }
        log.notice("listens on one address family: the kernel does not have the other")
    }

    /// Whether a listener could not be opened because the kernel has no addresses of its family.
    static func isOfMissingFamily(_ endpoint: Messaging.Endpoint, _ failure: ListenFailure) -> Bool {
        guard endpoint.wildcardIsIPv4 != nil else { return false }
        switch failure {
        case .addressNotAvailable, .system(_, EAFNOSUPPORT): return true
        case .addressInUse, .notPermitted, .unresolvable, .system: return false
        }
    }

    func add(_ entry: Entry) {
        entries.append(entry)
        guard let failure = entry.withoutDatagrams else { return }
        log.warning("links over TCP alone", metadata: ["reason": "\(failure.reason)"])
    }

    /// Listeners that the caller has made.
    func add(_ listeners: [TCPListener]) {
        entries += listeners.map { Entry(endpoint: nil, tcp: $0, withoutDatagrams: nil) }
    }

    func remove(_ entry: Entry) { entries.removeAll { $0.address == entry.address } }

    func replace(_ entry: Entry, by other: Entry) {
        for index in entries.indices where entries[index].address == entry.address { entries[index] = other }
    }

    /// Closes a listener: links over TCP that came by it stay, those over UDP end.
    func close(_ entry: Entry, isolation: isolated (any Actor)? = #isolation) async {
        transport?.stopDatagrams(at: entry.address)
        try? await entry.tcp.close().get()
    }

    /// Where the node listens, with the ports that the system chose.
    var endpoints: [Messaging.Endpoint] {
        entries.compactMap { entry in
            guard let host = entry.address.ipAddress, let port = entry.address.port else { return nil }
            return Messaging.Endpoint(host: host, port: UInt16(clamping: port))
        }
    }

    /// Where we take links under an address of ours. Under IPv6 the link-local address is enough to be found by, and says
    /// nothing that the network does not know.
    func port(at address: LanAddress) -> UInt16? {
        for endpoint in endpoints {
            let isWildcard = endpoint.host == (address.isIPv4 ? "0.0.0.0" : "::")
            if isWildcard, address.isIPv4 || address.isLinkLocal { return endpoint.port }
            if address.host(interface: 0).map({ Self.withoutScope($0) }) == Self.withoutScope(endpoint.host) {
                return endpoint.port
            }
        }
        return nil
    }

    /// `fe80::1%3` is `fe80::1` on interface 3.
    private static func withoutScope(_ host: String) -> Substring { host.prefix { $0 != "%" } }

    /// Ends when no new connection can come.
    func closeListeners() -> [EventLoopFuture<Void>] { entries.map { $0.tcp.close() } }
}
