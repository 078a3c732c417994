import Cryptography
import Dispatch
import Foundation
import Glibc
import Synchronization
import TestSupport
import Testing

/// A TCP relay between two nodes that can hold back the server's bytes after the handshake, to stop time between an
/// answer and its arrival. It records all bytes, like an eavesdropper.
final class Relay: Sendable {
    private let host = Loopback.next()
    private let port: UInt16
    private let listener: Int32
    private let state = Mutex(State())

    private struct State {
        /// Bytes of the server that are passed on per connection; `nil` for all.
        var allowance: Int?
        var held: [Int32: [UInt8]] = [:]
        var heldByteCount = 0
        /// Disconnected clients that still get what is held for them.
        var orphans: Set<Int32> = []
        var connections: Set<Int32> = []
        /// Bytes of each connection: the client's stream, then the server's.
        var streams: [Data] = []
        var isClosed = false
        /// Each new connection's answers arrive together with its end.
        var batches = false

        mutating func loseHeld() {
            held = [:]
            for client in orphans { Glibc.close(client) }
            orphans = []
        }
    }

    /// - Parameter target: without one, dials are refused until ``open(to:)``.
    init(to target: TestNode? = nil) throws {
        (listener, port) = try LoopbackSocket.bound(SOCK_STREAM, at: host)
        if let target { try open(to: target) }
    }

    func open(to target: TestNode) throws {
        guard listen(listener, 16) == 0 else { throw HarnessError("relay: \(errno)") }
        let (host, port) = (target.host, target.port)
        Thread.detachNewThread { [self] in accept(host, port) }
    }

    var endpoint: String { "tcp://\(host):\(port)" }

    /// From now on only act 2 of the handshake comes through.
    func holdAnswers() { state.withLock { $0.allowance = Act.two.byteCount } }
    /// On new connections the server's bytes after its part of the handshake arrive together with the end of the
    /// connection: as on a machine that is too busy to read in between.
    func batchAnswers() { state.withLock { $0.batches = true } }
    /// Held bytes are lost with their connections; new connections pass everything.
    func cut() {
        state.withLock { state in
            state.allowance = nil
            state.loseHeld()
            for connection in state.connections { shutdown(connection, Int32(SHUT_RDWR)) }
        }
    }
    var heldByteCount: Int { state.withLock { $0.heldByteCount } }
    /// Bytes of each connection, one stream per direction.
    var streams: [Data] { state.withLock { $0.streams } }

    func close() {
        state.withLock { state in
            state.isClosed = true
            state.allowance = nil
            state.loseHeld()
            for connection in state.connections { shutdown(connection, Int32(SHUT_RDWR)) }
        }
        shutdown(listener, Int32(SHUT_RDWR))
    }

    private func accept(_ host: String, _ port: UInt16) {
        while true {
            let client = Glibc.accept(listener, nil, nil)
            if client < 0 || state.withLock({ $0.isClosed }) {
                if client >= 0 { Glibc.close(client) }
                Glibc.close(listener)
                return
            }
            guard let server = try? LoopbackSocket.connected(to: host, port: port) else {
                Glibc.close(client)
                continue
            }
            Thread.detachNewThread { [self] in carry(client, server) }
        }
    }

    private func carry(_ client: Int32, _ server: Int32) {
        let (first, isBatched) = state.withLock { state in
            state.connections.formUnion([client, server])
            state.streams += [Data(), Data()]
            return (state.streams.count - 2, state.batches)
        }
        var batch: [UInt8] = []
        defer {
            let isOrphan = state.withLock { state in
                state.connections.subtract([client, server])
                guard state.held[client] != nil else { return false }
                state.orphans.insert(client)
                return true
            }
            if !isOrphan { Glibc.close(client) }
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
                guard count > 0 else {
                    if index == 1 { _ = Glibc.send(client, batch, batch.count, Int32(MSG_NOSIGNAL)) }
                    return
                }
                var bytes = Array(chunk[..<count])
                let before = fromServer
                if index == 1 { fromServer += count }
                if index == 1, isBatched {
                    let passed = min(count, max(0, Act.two.byteCount - before))
                    batch += bytes[passed...]
                    bytes = Array(bytes[..<passed])
                    _ = Glibc.send(to, bytes, bytes.count, Int32(MSG_NOSIGNAL))
                    continue
                }
                let isHeld = state.withLock { state in
                    state.streams[first + index].append(contentsOf: bytes)
                    guard index == 1, let allowance = state.allowance, before + count > allowance else { return false }
                    // Here, so that held bytes cannot overtake it.
                    let passed = max(0, allowance - before)
                    if passed > 0 { _ = Glibc.send(to, bytes, passed, Int32(MSG_NOSIGNAL)) }
                    state.held[client, default: []] += bytes[passed...]
                    state.heldByteCount += count - passed
                    return true
                }
                if !isHeld { _ = Glibc.send(to, bytes, count, Int32(MSG_NOSIGNAL)) }
            }
        }
    }
}

/// `ann`, reachable only through a relay, and others; all run.
/// - Parameters:
///   - advertise: the advertised address of the others; their own if `nil`.
///   - arguments: for the daemons.
func withRelay(
    _ names: [String], advertise: String? = nil, arguments: [String] = [],
    _ body: (_ ann: TestNode, _ others: [TestNode], _ relay: Relay) throws -> Void
) throws {
    try withDirectory { directory in
        let ann = TestNode(name: "ann", directory: directory)
        let others = names.map { TestNode(name: $0, directory: directory) }
        defer { for node in [ann] + others { node.crash() } }
        try ann.initialise()
        for node in others { try node.initialise(advertise.map { ["--advertise", $0] } ?? []) }
        try ann.start(arguments)
        let relay = try Relay(to: ann)
        defer { relay.close() }
        try ann.stop()
        try ann.configure(["advertise": [relay.endpoint]])
        for node in [ann] + others { try node.start(arguments) }
        try body(ann, others, relay)
    }
}
