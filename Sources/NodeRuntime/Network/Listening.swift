import Glibc
import Logging
import Messaging
import NIOCore
import Transport

/// The transport of a node and its listeners.
final class Listening: Part {
    /// `nil` before the start.
    private(set) var transport: LinkTransport?
    private(set) var entries: [Entry] = []
    /// Why UDP is missing on some listeners.
    var withoutDatagrams: [ListenFailure] { entries.compactMap(\.withoutDatagrams) }

    struct Entry {
        /// As configured; `nil` for a listener bound by the caller.
        let endpoint: Messaging.Endpoint?
        let tcp: TCPListener
        let withoutDatagrams: ListenFailure?

        /// With the port that the system chose.
        var address: SocketAddress { tcp.address }
    }

    var hasDatagrams: Bool { transport?.hasDatagrams ?? false }

    func makeTransport() -> LinkTransport {
        let transport = LinkTransport(
            loop: loop, network: environment.network,
            datagrams: (options.datagrams ?? configuration.datagrams ?? true) ? environment.datagrams : nil,
            turns: services.turns)
        self.transport = transport
        shell.linkEvents.connect(transport)
        shell.codes.connect(transport)
        return transport
    }

    /// - Parameter port: in place of the endpoint's.
    func bind(_ endpoint: Messaging.Endpoint, port: Int? = nil, isolation: isolated (any Actor)? = #isolation)
        async throws -> Entry
    {
        guard let transport, !isStopped else { throw NodeError.stopping }
        let listening = try await transport.listen(host: endpoint.host, port: port ?? Int(endpoint.port)).get()
        let entry = Entry(endpoint: endpoint, tcp: listening.tcp, withoutDatagrams: listening.withoutDatagrams)
        // The stop closes only the listeners that it knows.
        guard !isStopped else {
            await close(entry)
            throw NodeError.stopping
        }
        return entry
    }

    /// Opens the configured listeners. A wildcard of an address family that the kernel lacks is skipped if another
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
        log.notice("listening on one address family: the kernel does not have the other")
    }

    /// Whether a listener failed because the kernel lacks its address family.
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

    func add(_ listeners: [TCPListener]) {
        entries += listeners.map { Entry(endpoint: nil, tcp: $0, withoutDatagrams: nil) }
    }

    func remove(_ entry: Entry) { entries.removeAll { $0.address == entry.address } }

    func replace(_ entry: Entry, by other: Entry) {
        for index in entries.indices where entries[index].address == entry.address { entries[index] = other }
    }

    /// Closes a listener: its TCP links stay, its UDP links end.
    func close(_ entry: Entry, isolation: isolated (any Actor)? = #isolation) async {
        transport?.stopDatagrams(at: entry.address)
        try? await entry.tcp.close().get()
    }

    /// With the ports that the system chose.
    var endpoints: [Messaging.Endpoint] {
        entries.compactMap { entry in
            guard let host = entry.address.ipAddress, let port = entry.address.port else { return nil }
            return Messaging.Endpoint(host: host, port: UInt16(clamping: port))
        }
    }

    /// The listening port at one of our addresses. For IPv6 only the link-local address is announced: it suffices for
    /// discovery and reveals nothing new to the network.
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

    /// Ends when no new connection can arrive.
    func closeListeners() -> [EventLoopFuture<Void>] { entries.map { $0.tcp.close() } }
}
