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
