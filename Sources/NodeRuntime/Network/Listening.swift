import Logging
import Messaging
import NIOCore
import Transport

/// The transport of a node and its listeners.
final class Listening: NodePart {
    let services: NodeServices
    /// `nil` before the start.
    private(set) var transport: LinkTransport?
    private var listeners: [TCPListener] = []
    /// Why there are no links over UDP where there should be some.
    private(set) var withoutDatagrams: [ListenFailure] = []

    /// Connects a new transport with what hears of its links.
    var connect: (LinkTransport) -> Void = { _ in }

    init(_ services: NodeServices) { self.services = services }

    var hasDatagrams: Bool { transport?.hasDatagrams ?? false }

    func makeTransport() -> LinkTransport {
        let transport = LinkTransport(
            loop: loop,
            network: environment.network,
            datagrams: (options.datagrams ?? configuration.datagrams ?? true) ? environment.datagrams : nil,
            turns: services.turns
        )
        self.transport = transport
        connect(transport)
        return transport
    }

    func add(_ listening: LinkTransport.Listening) {
        listeners.append(listening.tcp)
        guard let failure = listening.withoutDatagrams else { return }
        withoutDatagrams.append(failure)
        log.warning("links over TCP alone", metadata: ["reason": "\(failure.reason)"])
    }

    /// Listeners that the caller has made.
    func add(_ listeners: [TCPListener]) { self.listeners += listeners }

    /// Where the node listens, with the ports that the system chose.
    var endpoints: [Messaging.Endpoint] {
        listeners.compactMap { listener in
            guard let host = listener.address.ipAddress, let port = listener.address.port else { return nil }
            return Messaging.Endpoint(host: host, port: UInt16(clamping: port))
        }
    }

    /// Ends when no new connection can come.
    func closeListeners() -> [EventLoopFuture<Void>] { listeners.map { $0.close() } }
}
