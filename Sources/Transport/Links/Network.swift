import Glibc
import NIOCore
import NIOPosix

/// Opens TCP connections and listeners. ``Sockets`` uses the kernel; the simulator has a network in memory.
package protocol Network: Sendable {
    /// Connects, with half-closure allowed. The endpoint's port is 1…65,535.
    func connect(to endpoint: Endpoint, limits: TransportLimits, on loop: any EventLoop) -> EventLoopFuture<any Channel>
    /// Listens, and delivers each connection on `loop`. Fails only with ``ListenFailure``.
    func listen(at endpoint: Endpoint, limits: TransportLimits, on loop: any EventLoop, reception: Reception)
        -> EventLoopFuture<TCPListener>
}

/// A bound UDP socket. Use it only on its event loop.
package protocol DatagramSocket: AnyObject {
    /// The bound address, with the port that the system chose for 0.
    var localAddress: SocketAddress { get }
    /// Queues a datagram until the next ``flush()`` at the latest. Best effort: a refused datagram is lost.
    func send(_ bytes: [UInt8], to address: DatagramAddress)
    func flush()
    func close()
}

/// Binds UDP sockets. ``Sockets`` uses the kernel; a simulator has a network in memory.
package protocol DatagramNetwork: Sendable {
    /// - Parameters:
    ///   - endpoint: port 0 lets the system choose.
    ///   - number: the socket's number in received addresses.
    ///   - receive: called on `loop` for each datagram, and with `nil` after each batch.
    /// - Returns: a future that fails only with ``ListenFailure``.
    func bind(
        at endpoint: Endpoint, number: UInt32, on loop: any EventLoop,
        receive: @escaping @Sendable ((DatagramAddress, [UInt8])?) -> Void
    ) -> EventLoopFuture<NIOLoopBound<any DatagramSocket>>

    /// Our source address toward `address`; `nil` if it is unknown or there is no route.
    func source(toward address: IPAddress) -> IPAddress?
}

extension DatagramNetwork { package func source(toward address: IPAddress) -> IPAddress? { nil } }

package struct Sockets: Network {
    package init() {}

    package func connect(to endpoint: Endpoint, limits: TransportLimits, on loop: any EventLoop) -> EventLoopFuture<
        any Channel
    > {
        guard let bootstrap = ClientBootstrap(validatingGroup: loop) else {
            preconditionFailure("a dial needs an event loop with sockets")
        }
        let configured = bootstrap.connectTimeout(limits.connectTimeout).channelOption(
            .tcpOption(.tcp_nodelay), value: 1
        ).channelOption(.allowRemoteHalfClosure, value: true).channelOption(.recvAllocator, value: limits.firstReads)
        // The SYN announces it to the peer, so one side is enough.
        let small = configured.channelOption(.tcpOption(.init(rawValue: TCP_MAXSEG)), value: limits.segmentByteCount)
        if let address = try? SocketAddress(ipAddress: endpoint.host, port: endpoint.port) {
            let isLoopback = IPAddress(address)?.isLoopback ?? false
            return (isLoopback ? configured : small).connect(to: address)
        }
        return small.resolver(SharedResolution(loop: loop)).connect(host: endpoint.host, port: endpoint.port)
    }

    package func listen(at endpoint: Endpoint, limits: TransportLimits, on loop: any EventLoop, reception: Reception)
        -> EventLoopFuture<TCPListener>
    {
        // Resolving a name blocks, which is acceptable at the node's start.
        guard (0...65_535).contains(endpoint.port), let address = SocketAddress(at: endpoint) else {
            return loop.makeFailedFuture(ListenFailure.unresolvable(endpoint))
        }
        do throws(ListenFailure) {
            // Accepted connections inherit its options.
            let descriptor = try address.bind(
                SOCK_STREAM, [(SOL_SOCKET, SO_REUSEADDR, 1), (CInt(IPPROTO_TCP), TCP_NODELAY, 1)], for: endpoint)
            do {
                guard Glibc.listen(descriptor, limits.backlog) == 0, let bound = SocketAddress(boundBy: descriptor)
                else { throw IOError(errnoCode: errno, reason: "listen") }
                let door = try Acceptor(descriptor, limits: limits, loop: loop, reception: reception)
                return loop.makeSucceededFuture(TCPListener(address: bound, close: { door.close() }))
            } catch {
                Glibc.close(descriptor)
                throw ListenFailure(error, endpoint)
            }
        } catch { return loop.makeFailedFuture(error) }
    }
}

/// Why listening failed, with the requested address.
package enum ListenFailure: Error, Hashable, Sendable {
    /// Another process, or another listener of ours, has it.
    case addressInUse(Endpoint)
    /// No interface of this machine has that address.
    case addressNotAvailable(Endpoint)
    /// A port below 1024 without the privilege.
    case notPermitted(Endpoint)
    case unresolvable(Endpoint)
    /// Any other error, by its `errno`; 0 if it has none.
    case system(Endpoint, Int32)

    init(_ error: any Error, _ endpoint: Endpoint) {
        let code = (error as? IOError)?.errnoCode ?? 0
        switch code {
        case EADDRINUSE: self = .addressInUse(endpoint)
        case EADDRNOTAVAIL: self = .addressNotAvailable(endpoint)
        case EACCES, EPERM: self = .notPermitted(endpoint)
        default: self = .system(endpoint, code)
        }
    }

    /// For users and logs; without an address.
    package var reason: String {
        switch self {
        case .addressInUse: "another program has the port"
        case .addressNotAvailable: "no interface of this machine has the address"
        case .notPermitted: "a port below 1024 needs privileges"
        case .unresolvable: "it is not an IP address"
        case .system(_, let code): code == 0 ? "it cannot be opened" : "error \(code) of the system"
        }
    }
}

package struct Endpoint: Hashable, Sendable {
    package let host: String
    package let port: Int

    package init(host: String, port: Int) {
        self.host = host
        self.port = port
    }
}

package final class TCPListener: Sendable {
    /// The bound address, with the port that the system chose for 0.
    package let address: SocketAddress
    private let closing: @Sendable () -> EventLoopFuture<Void>

    package init(address: SocketAddress, close: @escaping @Sendable () -> EventLoopFuture<Void>) {
        self.address = address
        closing = close
    }

    /// Stops accepting. Connections with a token stay. The future completes when the address is free.
    @discardableResult package func close() -> EventLoopFuture<Void> { closing() }
}

/// The first bytes of an incoming connection, read before it got its channel.
package struct Opening: Sendable {
    /// At least the whole preamble.
    package let bytes: [UInt8]
    /// When it was accepted: the timeouts start there.
    package let since: NIODeadline
    let network: DatagramAddress.Network?
}

/// A listener's callbacks to its owner, on the owner's loop.
package struct Reception: Sendable {
    /// Why a connection with these first bytes gets no channel; `nil` accepts it. Costs a table lookup.
    package let refuses: @Sendable (Opening) -> Rejection?
    /// Takes a connection and its first bytes, if they were read. Closes the channel or throws to refuse it.
    package let accept: @Sendable (any Channel, Opening?) throws -> Void
    /// A connection failed without a channel. For counters only.
    package let rejected: @Sendable (Rejection) -> Void
}

/// A bounded list of connections that have not shown a token, in order of arrival.
struct PendingConnections: Sendable {
    private let limit: Int
    private var members: Set<UInt64> = []
    /// Oldest first; includes connections that have left.
    private var arrivals: [UInt64] = []
    /// Index in `arrivals` of the first that may still wait.
    private var oldest = 0

    init(limit: Int) { self.limit = limit }

    mutating func first() -> UInt64? {
        skip()
        return oldest < arrivals.count ? arrivals[oldest] : nil
    }

    /// - Returns: the connection to drop, if there are too many.
    mutating func arrive(_ id: UInt64, using generator: inout some RandomNumberGenerator) -> UInt64? {
        members.insert(id)
        arrivals.append(id)
        skip()
        if arrivals.count > 2 * limit {
            arrivals.removeAll { !members.contains($0) }
            oldest = 0
        }
        guard members.count > limit else { return nil }
        // The older half has had its time. A random choice, so that a flood cannot control it.
        let half = max(1, (arrivals.count - oldest) / 2)
        let drawn = arrivals[oldest + Int.random(in: 0..<half, using: &generator)]
        let victim = members.contains(drawn) ? drawn : arrivals[oldest]
        members.remove(victim)
        return victim
    }

    /// The connection has shown its token or is gone.
    mutating func leave(_ id: UInt64) { members.remove(id) }

    private mutating func skip() { while oldest < arrivals.count, !members.contains(arrivals[oldest]) { oldest += 1 } }
}
