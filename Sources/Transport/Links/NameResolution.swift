import Glibc
import NIOCore
import NIOPosix
import Synchronization

/// Looks names up, on threads of its own: the system's resolver waits, and peers choose the names that they are to be
/// found by, and the servers that answer for them.
///
/// A name that was found soon has threads that none other has, so that names which take long keep no known one waiting.
/// Each is looked up once at a time, whoever wants it; what has taken long is not asked again at once.
package final class NameResolver: Sendable {
    /// For everything that dials. Its threads live as long as the process.
    static let shared = NameResolver { Endpoint.addresses(ofName: $0) }

    /// Names that were not found soon before and are looked up, or wait for it; one more is not found.
    package static let lookUpCount = 128
    /// A name that takes longer is one of those that take long.
    static let patience: TimeAmount = .seconds(2)
    /// So long what has taken long holds: found, or not found.
    static let foundStay: TimeAmount = .minutes(5)
    static let notFoundStay: TimeAmount = .minutes(1)
    /// Names of which it is remembered that they were found soon, or what they came to.
    static let memory = 512
    /// For each kind of names.
    private static let threadCount = 2

    private struct State {
        var waiting: [String: [EventLoopPromise<[String]>]] = [:]
        /// Of those: names that were not found soon before.
        var strangeCount = 0
        /// Names that were found soon.
        var known: Set<String> = []
        var kept: [String: (addresses: [String], until: NIODeadline)] = [:]
    }

    private let state = Mutex(State())
    private let known = NIOThreadPool(numberOfThreads: threadCount)
    private let others = NIOThreadPool(numberOfThreads: threadCount)
    private let lookUp: @Sendable (String) -> [String]
    private let now: @Sendable () -> NIODeadline

    /// - Parameters:
    ///   - now: `CLOCK_MONOTONIC`, unless a test has another one.
    ///   - lookUp: the addresses of a name; may wait.
    package init(
        now: @escaping @Sendable () -> NIODeadline = { .now() }, lookUp: @escaping @Sendable (String) -> [String]
    ) {
        self.now = now
        self.lookUp = lookUp
        known.start()
        others.start()
    }

    /// The addresses of a name in the system's order (RFC 6724); none when it is not found, or not now.
    package func addresses(of name: String, on loop: any EventLoop) -> EventLoopFuture<[String]> {
        let name = name.lowercased()
        let promise = loop.makePromise(of: [String].self)
        enum Answer {
            case addresses([String])
            case lookUp(isKnown: Bool)
            case later
        }
        let answer: Answer = state.withLock { state in
            if let kept = state.kept[name], now() < kept.until { return .addresses(kept.addresses) }
            state.kept[name] = nil
            if state.waiting[name] != nil {
                state.waiting[name]?.append(promise)
                return .later
            }
            let isKnown = state.known.contains(name)
            if !isKnown {
                guard state.strangeCount < Self.lookUpCount else { return .addresses([]) }
                state.strangeCount += 1
            }
            state.waiting[name] = [promise]
            return .lookUp(isKnown: isKnown)
        }
        switch answer {
        case .addresses(let addresses): promise.succeed(addresses)
        case .later: break
        case .lookUp(let isKnown):
            (isKnown ? known : others).submit { [self] _ in
                let begin = now()
                let addresses = lookUp(name)
                end(name, addresses, tookLong: now() - begin > Self.patience, wasKnown: isKnown)
            }
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

/// What a connection by name asks, through ``NameResolver``.
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
    /// Most addresses of a name that are tried.
    private static let addressCount = 8

    var isAddress: Bool { (try? SocketAddress(ipAddress: host, port: port)) != nil }

    /// The addresses of a name, as the system orders them (RFC 6724). Waits.
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
