import Glibc
import NIOCore
import NIOPosix
import Synchronization

/// Resolves names on threads of its own: the system's resolver blocks, and peers choose names and their servers.
///
/// Names that resolved quickly before have threads of their own, so that slow names cannot delay them. Concurrent
/// lookups of a name share one query. Results of slow lookups are cached.
package final class NameResolver: Sendable {
    /// Shared by all dials. Its threads live as long as the process.
    static let shared = NameResolver { Endpoint.addresses(ofName: $0) }

    /// Most pending lookups of names not known to be fast; further names are not found.
    package static let lookUpCount = 128
    /// A lookup that takes longer is slow.
    static let patience: TimeAmount = .seconds(2)
    /// How long the result of a slow lookup is cached: found, or not found.
    static let foundStay: TimeAmount = .minutes(5)
    static let notFoundStay: TimeAmount = .minutes(1)
    /// Names remembered as fast, and cached results.
    static let memory = 512
    /// For fast and for other names each.
    private static let threadCount = 2

    private struct State {
        var waiting: [String: [EventLoopPromise<[String]>]] = [:]
        /// Pending lookups of names not known to be fast.
        var strangeCount = 0
        var known: Set<String> = []
        var kept: [String: (addresses: [String], until: NIODeadline)] = [:]
    }

    private let state = Mutex(State())
    private let known = NIOThreadPool(numberOfThreads: threadCount)
    private let others = NIOThreadPool(numberOfThreads: threadCount)
    private let lookUp: @Sendable (String) -> [String]
    private let now: @Sendable () -> NIODeadline

    /// `lookUp` gives the addresses of a name, and may block.
    package init(
        now: @escaping @Sendable () -> NIODeadline = { .now() }, lookUp: @escaping @Sendable (String) -> [String]
    ) {
        self.now = now
        self.lookUp = lookUp
        known.start()
        others.start()
    }

    /// The addresses of a name in the system's order (RFC 6724). Empty when the name is not found, or when it is not
    /// known to be fast and too many such lookups are pending.
    package func addresses(of name: String, on loop: any EventLoop) -> EventLoopFuture<[String]> {
        let name = name.lowercased()
        let promise = loop.makePromise(of: [String].self)
        // The threads of a lookup that begins now, and what is known already.
        let (threads, addresses): (NIOThreadPool?, [String]?) = state.withLock { state in
            if let kept = state.kept[name], now() < kept.until { return (nil, kept.addresses) }
            state.kept[name] = nil
            if state.waiting[name] != nil {
                state.waiting[name]?.append(promise)
                return (nil, nil)
            }
            if state.known.contains(name) {
                state.waiting[name] = [promise]
                return (known, nil)
            }
            guard state.strangeCount < Self.lookUpCount else { return (nil, []) }
            state.strangeCount += 1
            state.waiting[name] = [promise]
            return (others, nil)
        }
        if let addresses { promise.succeed(addresses) }
        threads?.submit { [self] _ in
            let begin = now()
            let addresses = lookUp(name)
            end(name, addresses, tookLong: now() - begin > Self.patience, wasKnown: threads === known)
        }
        return promise.futureResult
    }

    private func end(_ name: String, _ addresses: [String], tookLong: Bool, wasKnown: Bool) {
        let waiting = state.withLock { state in
            if !wasKnown { state.strangeCount -= 1 }
            if tookLong {
                state.known.remove(name)
                if state.kept.count >= Self.memory { state.kept = [:] }
                let stay = addresses.isEmpty ? Self.notFoundStay : Self.foundStay
                state.kept[name] = (addresses, now() + stay)
            } else if !addresses.isEmpty {
                if state.known.count >= Self.memory { state.known = [] }
                state.known.insert(name)
            }
            return state.waiting.removeValue(forKey: name) ?? []
        }
        for promise in waiting { promise.succeed(addresses) }
    }
}

/// NIO's resolver for connections by name, through ``NameResolver``.
struct SharedResolution: Resolver, Sendable {
    let loop: any EventLoop

    func initiateAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> { addresses(host, port, .inet) }

    func initiateAAAAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        addresses(host, port, .inet6)
    }

    func cancelQueries() {}

    private func addresses(_ host: String, _ port: Int, _ family: NIOBSDSocket.ProtocolFamily) -> EventLoopFuture<
        [SocketAddress]
    > {
        NameResolver.shared.addresses(of: host, on: loop).map { addresses in
            addresses.compactMap { try? SocketAddress(ipAddress: $0, port: port) }.filter { $0.protocol == family }
        }
    }
}

extension Endpoint {
    private static let addressCount = 8

    var isAddress: Bool { (try? SocketAddress(ipAddress: host, port: 0)) != nil }

    /// The addresses of a name in the system's order (RFC 6724). Blocks.
    fileprivate static func addresses(ofName name: String) -> [String] {
        var hints = addrinfo()
        hints.ai_socktype = CInt(SOCK_DGRAM.rawValue)
        var list: UnsafeMutablePointer<addrinfo>?
        guard getaddrinfo(name, nil, &hints, &list) == 0 else { return [] }
        defer { freeaddrinfo(list) }
        var result: [String] = []
        var next = list
        while let info = next?.pointee, result.count < Self.addressCount {
            var text = [CChar](repeating: 0, count: Int(NI_MAXHOST))
            if getnameinfo(info.ai_addr, info.ai_addrlen, &text, socklen_t(text.count), nil, 0, NI_NUMERICHOST) == 0 {
                result.append(text.withUnsafeBufferPointer { String(cString: $0.baseAddress!) })
            }
            next = info.ai_next
        }
        return result
    }
}
