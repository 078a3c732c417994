import Glibc
import NIOCore

/// Why there is no listener. Each names the address that was asked for.
package enum ListenFailure: Error, Hashable, Sendable {
    /// Another process, or another listener of ours, has it.
    case addressInUse(Endpoint)
    /// No interface of this machine has that address.
    case addressNotAvailable(Endpoint)
    /// A port below 1024 and no right to it.
    case notPermitted(Endpoint)
    /// Not an address and not a name of one, or a port above 65,535.
    case unresolvable(Endpoint)
    /// Anything else, by its `errno`; 0 if it has none.
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
}

/// A host, as name or address, and a TCP port.
package struct Endpoint: Hashable, Sendable {
    package let host: String
    package let port: Int

    package init(host: String, port: Int) {
        self.host = host
        self.port = port
    }
}

/// A bound and listening socket.
package final class TCPListener: Sendable {
    /// Where it listens, with the port that the system chose for 0.
    package let address: SocketAddress
    private let channel: any Channel

    package init(address: SocketAddress, channel: any Channel) {
        self.address = address
        self.channel = channel
    }

    /// Takes no more connections. Those that are there stay.
    @discardableResult
    package func close() -> EventLoopFuture<Void> {
        let promise = channel.eventLoop.makePromise(of: Void.self)
        channel.close(promise: nil)
        channel.closeFuture.cascade(to: promise)
        return promise.futureResult
    }
}

extension TCPTransport {
    /// Listens on another address. An error in accepting, such as too many open files, does not end a listener.
    /// - Parameter port: 0 for one that the system chooses.
    /// - Returns: a future that fails with ``ListenFailure`` and nothing else.
    package func listen(host: String, port: Int) -> EventLoopFuture<TCPListener> {
        let bound = NIOLoopBound(self, eventLoop: loop)
        return network.listen(at: Endpoint(host: host, port: port), limits: limits, on: loop) { channel in
            try bound.value.accept(channel)
        }
    }
}
