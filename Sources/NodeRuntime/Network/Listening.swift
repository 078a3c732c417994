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
            turns: services.turns, encapsulation: environment.encapsulation)
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
    func port(at address: IPAddress) -> UInt16? {
        for endpoint in endpoints {
            let isWildcard = endpoint.host == (address.isIPv4 ? "0.0.0.0" : "::")
            if isWildcard, address.isIPv4 || address.isLinkLocal { return endpoint.port }
            if address.host(interface: 0).map({ Self.withoutScope($0) }) == Self.withoutScope(endpoint.host) {
                return endpoint.port
            }
        }
        return nil
    }

    /// Interfaces with the listening port of each address.
    func withPorts(_ interfaces: [LanInterface]) -> [LanInterface] {
        var interfaces = interfaces
        for index in interfaces.indices {
            for other in interfaces[index].addresses.indices {
                interfaces[index].addresses[other].port = port(at: interfaces[index].addresses[other].address)
            }
        }
        return interfaces
    }

    /// `fe80::1%3` is `fe80::1` on interface 3.
    private static func withoutScope(_ host: String) -> Substring { host.prefix { $0 != "%" } }

    /// Ends when no new connection can arrive.
    func closeListeners() -> [EventLoopFuture<Void>] { entries.map { $0.tcp.close() } }
}

/// Replaces listeners of the running node. Listeners in both lists stay open. New ones are bound first. An old listener
/// closes before that only if a new one needs its port.
struct ListenerChange {
    private let listening: Listening
    private var added: [Listening.Entry] = []
    private var removed: [Listening.Entry] = []
    /// The removed listeners that were closed to free their ports.
    private var closed: [Listening.Entry] = []

    /// - Throws: `ListenFailure`; the previous listeners are then restored.
    init(to wanted: [Messaging.Endpoint], on listening: Listening, isolation: isolated (any Actor)? = #isolation)
        async throws
    {
        self.listening = listening
        var missing = wanted
        for entry in listening.entries {
            if let index = missing.firstIndex(where: { $0 == entry.endpoint }) {
                missing.remove(at: index)
            } else if entry.endpoint != nil {
                removed.append(entry)
            }
        }
        do {
            var failed: ListenFailure?
            for endpoint in missing {
                do { added.append(try await bind(endpoint)) } catch let failure as ListenFailure {
                    guard Listening.isOfMissingFamily(endpoint, failure) else { throw failure }
                    failed = failure
                }
            }
            if let failed, added.isEmpty, listening.entries.count == removed.count { throw failed }
        } catch {
            await undo()
            throw error
        }
    }

    private mutating func bind(_ endpoint: Messaging.Endpoint, isolation: isolated (any Actor)? = #isolation)
        async throws -> Listening.Entry
    {
        do { return try await listening.bind(endpoint) } catch ListenFailure.addressInUse {
            let inTheWay = removed.filter { entry in
                entry.address.port == Int(endpoint.port) && !closed.contains { $0.address == entry.address }
            }
            guard !inTheWay.isEmpty else { throw ListenFailure.addressInUse(Transport.Endpoint(endpoint)) }
            for entry in inTheWay {
                await listening.close(entry)
                closed.append(entry)
            }
            return try await listening.bind(endpoint)
        }
    }

    func undo(isolation: isolated (any Actor)? = #isolation) async {
        for entry in added { await listening.close(entry) }
        for entry in closed {
            guard !listening.isStopped, let endpoint = entry.endpoint else { continue }
            // The former port: peers know it, also if the system chose it.
            do { listening.replace(entry, by: try await listening.bind(endpoint, port: entry.address.port)) } catch {
                listening.remove(entry)
                listening.log.error("a listener could not be opened again", metadata: ["error": "\(error)"])
            }
        }
    }

    /// Closes the removed listeners; the new ones take over.
    func end(isolation: isolated (any Actor)? = #isolation) async {
        for entry in removed {
            listening.remove(entry)
            if !closed.contains(where: { $0.address == entry.address }) { await listening.close(entry) }
        }
        for entry in added { if listening.isStopped { await listening.close(entry) } else { listening.add(entry) } }
    }
}

extension Transport.Endpoint {
    init(_ endpoint: Messaging.Endpoint) { self.init(host: endpoint.host, port: Int(endpoint.port)) }
}

extension Messaging.Endpoint {
    init(_ endpoint: Transport.Endpoint) { self.init(host: endpoint.host, port: UInt16(clamping: endpoint.port)) }
}
