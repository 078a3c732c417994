import Glibc
import NIOCore

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

    package init(bytes: [UInt8], since: NIODeadline) {
        self.bytes = bytes
        self.since = since
    }
}

/// A listener's callbacks to its owner, on the owner's loop.
package struct Reception: Sendable {
    /// Why a connection with these first bytes gets no channel; `nil` accepts it. Costs a table lookup.
    package let refuses: @Sendable ([UInt8]) -> Rejection?
    /// Takes a connection and its first bytes, if they were read. Closes the channel or throws to refuse it.
    package let accept: @Sendable (any Channel, Opening?) throws -> Void
    /// A connection failed without a channel. For counters only.
    package let rejected: @Sendable (Rejection) -> Void
}
