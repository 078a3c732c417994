import Dispatch
import Foundation
import Glibc
import Synchronization
import Testing

/// Stands between two nodes, passes bytes on, and can keep back what the server says after the handshake: so a test
/// stops time between an answer and its arrival.
final class Relay: Sendable {
    let port: UInt16
    private let listener: Int32
    private let target: UInt16
    private let state = Mutex(State())

    private struct State {
        /// Bytes of the server that are passed on per connection; `nil` for all.
        var allowance: Int?
        var held = 0
        var connections: Set<Int32> = []
        var isClosed = false
    }

    /// - Parameters:
    ///   - target: a port of 127.0.0.1.
    ///   - own: where to stand; a free port if 0.
    init(to target: UInt16, at own: UInt16 = 0) throws {
        self.target = target
        listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = own.bigEndian
        var yes: Int32 = 1
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let result = withUnsafeMutablePointer(to: &address) { [listener] pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(listener, $0, length) == 0 && listen(listener, 16) == 0 && getsockname(listener, $0, &length) == 0
            }
        }
        guard result else { throw HarnessError("relay: \(errno)") }
        port = UInt16(bigEndian: address.sin_port)
        Thread.detachNewThread { [self] in accept() }
    }

    var endpoint: String { "tcp://127.0.0.1:\(port)" }

    /// From now on only the server's part of the handshake (50 bytes, BOLT 8) comes through.
    func holdAnswers() { state.withLock { $0.allowance = 50 } }
    /// What is held is lost with its connection; new ones pass everything.
    func release() {
        state.withLock { state in
            state.allowance = nil
            for connection in state.connections { shutdown(connection, Int32(SHUT_RDWR)) }
        }
    }
    /// Bytes that were kept back.
    var heldByteCount: Int { state.withLock { $0.held } }

    func close() {
        state.withLock { state in
            state.isClosed = true
            for connection in state.connections { shutdown(connection, Int32(SHUT_RDWR)) }
        }
        shutdown(listener, Int32(SHUT_RDWR))
    }

    private func accept() {
        while true {
            let client = Glibc.accept(listener, nil, nil)
            if client < 0 || state.withLock({ $0.isClosed }) {
                if client >= 0 { Glibc.close(client) }
                Glibc.close(listener)
                return
            }
            let server = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_port = target.bigEndian
            address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
            let isConnected = withUnsafePointer(to: &address) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    connect(server, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
                }
            }
            guard isConnected else {
                Glibc.close(client)
                Glibc.close(server)
                continue
            }
            Thread.detachNewThread { [self] in carry(client, server) }
        }
    }

    private func carry(_ client: Int32, _ server: Int32) {
        state.withLock { $0.connections.formUnion([client, server]) }
        defer {
            state.withLock { $0.connections.subtract([client, server]) }
            Glibc.close(client)
            Glibc.close(server)
        }
        var fromServer = 0
        var chunk = [UInt8](repeating: 0, count: 65_536)
        while true {
            var polled = [
                pollfd(fd: client, events: Int16(POLLIN), revents: 0),
                pollfd(fd: server, events: Int16(POLLIN), revents: 0),
            ]
            guard poll(&polled, 2, -1) > 0 else { return }
            for (index, (from, to)) in [(client, server), (server, client)].enumerated()
            where polled[index].revents != 0 {
                let count = recv(from, &chunk, chunk.count, 0)
                guard count > 0 else { return }
                var passed = count
                if index == 1 {
                    passed = state.withLock { state in
                        let passed = state.allowance.map { max(0, min(count, $0 - fromServer)) } ?? count
                        state.held += count - passed
                        return passed
                    }
                    fromServer += count
                }
                if passed > 0 { _ = Glibc.send(to, chunk, passed, Int32(MSG_NOSIGNAL)) }
            }
        }
    }
}

extension TestNode {
    /// The port of 127.0.0.1 on which it listens.
    var port: UInt16 { listen.flatMap { UInt16($0.split(separator: ":").last ?? "") } ?? 0 }
}
