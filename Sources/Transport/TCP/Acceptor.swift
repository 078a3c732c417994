import CLinux
import Cryptography
import DequeModule
import Glibc
import NIOCore
import NIOPosix
import Synchronization

/// The accept thread. It keeps connections without a preamble away from the event loop.
///
///     accept ─▶ silent ──preamble──▶ ready ──loop: known token──▶ a channel of the loop's
///                  │                               └─unknown──▶ closed
///                  └──5 s, its end, or crowded out──▶ closed
///
/// A silent connection costs a descriptor and a table entry: no channel, no timer, no buffer, and no turn of the loop.
/// The loop gets a few ready connections at a time, and more only after it has answered. So a flood waits in the kernel
/// and in this thread, not in the loop's queue ahead of open links.
///
/// `@unchecked Sendable`: all state except `exchange` belongs to the thread.
final class Acceptor: @unchecked Sendable {
    private struct Arrival: Sendable {
        let descriptor: CInt
        let opening: Opening
    }
    /// A connection with less than a preamble.
    private struct Silent {
        let descriptor: CInt
        let since: NIODeadline
        var bytes: [UInt8] = []
        /// False until its first read after the accept.
        var isWatched = false
    }
    /// State shared with the loop.
    private struct Exchange {
        /// The loop has a batch and has not answered yet.
        var isLoopBusy = false
        /// The thread has another batch for the loop.
        var isAwaited = false
        /// From the loop's batch: to be closed.
        var refused: [CInt] = []
        /// From the loop's batch: for the next turn.
        var returned: [Arrival] = []
        var isClosed = false
    }

    /// Accepts before reading from silent connections.
    private static let acceptsPerRound = 64
    /// Closes before other work: normally, and while connections arrive.
    private static let closesPerRound = 64
    private static let closesPerBusyRound = 8
    /// Ready connections beyond which nothing is read or accepted until the loop answers.
    private static let readyCount = 64
    /// Ready connections per batch: some microseconds each if the token is unknown.
    private static let batchCount = 32
    /// Channels that the loop creates per batch: some 300 us each with act 1.
    private static let channelsPerBatch = 4
    /// Pause after the process ran out of descriptors. Milliseconds.
    private static let pause = TimeAmount.milliseconds(100)
    private static let bellName: UInt64 = 0
    private static let listenerName: UInt64 = 1

    private let exchange = Mutex(Exchange())
    private let loop: any EventLoop
    private let limits: TransportLimits
    private let reception: Reception
    private let bootstrap: ClientBootstrap
    private let listener: CInt
    private let watch: CInt
    private let bell: CInt
    private let ended: EventLoopPromise<Void>

    private var silent: [UInt64: Silent] = [:]
    private var waiting: PendingConnections
    private var ready: Deque<Arrival> = []
    private var rejections: [Rejection] = []
    private var nextName: UInt64 = 2
    private var pausedUntil: NIODeadline?
    private var generator = SystemRandomness()
    private let buffer: UnsafeMutableRawBufferPointer

    /// Starts the thread.
    /// - Parameter listener: bound and listening; the acceptor closes it. Stays the caller's if this throws.
    /// - Throws: `IOError` if the system has no descriptor left, or no thread.
    init(_ listener: CInt, limits: TransportLimits, loop: any EventLoop, reception: Reception) throws {
        guard let bootstrap = ClientBootstrap(validatingGroup: loop) else {
            preconditionFailure("a listener needs an event loop with sockets")
        }
        self.bootstrap = bootstrap.channelOption(.allowRemoteHalfClosure, value: true).channelOption(
            .recvAllocator, value: limits.firstReads)
        self.listener = listener
        self.limits = limits
        self.loop = loop
        self.reception = reception
        watch = watch_make()
        bell = bell_make()
        guard watch >= 0, bell >= 0, watch_add(watch, bell, Self.bellName) == 0,
            watch_add(watch, listener, Self.listenerName) == 0
        else {
            let code = errno
            if watch >= 0 { Glibc.close(watch) }
            if bell >= 0 { Glibc.close(bell) }
            throw IOError(errnoCode: code, reason: "epoll")
        }
        ended = loop.makePromise(of: Void.self)
        waiting = PendingConnections(limit: Self.room(limits))
        buffer = .allocate(byteCount: max(256, limits.bytesBeforeAuthentication / 2), alignment: 1)
        var thread = pthread_t()
        let code = pthread_create(
            &thread, nil,
            { pointer in
                guard let pointer else { return nil }
                Unmanaged<Acceptor>.fromOpaque(pointer).takeRetainedValue().run()
                return nil
            }, Unmanaged.passRetained(self).toOpaque())
        guard code == 0 else {
            Unmanaged.passUnretained(self).release()
            ended.succeed(())
            Glibc.close(watch)
            Glibc.close(bell)
            throw IOError(errnoCode: code, reason: "pthread_create")
        }
        pthread_detach(thread)
    }

    deinit { buffer.deallocate() }

    /// Silent connections take at most half of the process's descriptors: the store and outgoing dials need some, too.
    private static func room(_ limits: TransportLimits) -> Int {
        var files = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &files) == 0 else {
            return limits.connectionsBeforeToken
        }
        return max(1, min(limits.connectionsBeforeToken, Int(clamping: files.rlim_cur / 2)))
    }

    /// Closes the listener and all pending connections. The owner gets no more callbacks.
    /// - Returns: when the address is free.
    func close() -> EventLoopFuture<Void> {
        exchange.withLock { exchange in
            if !exchange.isClosed { ring() }
            exchange.isClosed = true
        }
        return ended.futureResult
    }

    /// Wakes the thread. Call with the lock held and the acceptor open: the wakeup descriptor is closed under the lock.
    private func ring() {
        var one: UInt64 = 1
        _ = write(bell, &one, 8)
    }

    private func run() {
        thread_name("mayfly door")
        while !exchange.withLock({ $0.isClosed }) {
            var isBusy = false
            for name in waitForNews() {
                switch name {
                case Self.bellName: hearBell()
                case Self.listenerName:
                    isBusy = true
                    takeOn()
                default: hear(name)
                }
            }
            resumeAccepting()
            expire(isBusy ? Self.closesPerBusyRound : Self.closesPerRound)
            handOver()
        }
        Glibc.close(listener)
        ended.succeed(())
        hearBell()
        for connection in silent.values { Glibc.close(connection.descriptor) }
        for arrival in ready { Glibc.close(arrival.descriptor) }
        // `receive` discards a batch that the loop still has.
        Glibc.close(watch)
        exchange.withLock { _ in _ = Glibc.close(bell) }
    }

    private func waitForNews() -> [UInt64] {
        let deadlines = [pausedUntil, waiting.first().flatMap { silent[$0] }.map { $0.since + limits.actTimeout }]
        var milliseconds: CInt = -1
        if let next = deadlines.compactMap({ $0 }).min() {
            let rest = next - .now()
            milliseconds = rest > .zero ? CInt(clamping: rest.nanoseconds / 1_000_000 + 1) : 0
        }
        if ready.count >= Self.readyCount {
            // Only the loop's answer helps.
            var polled = pollfd(fd: bell, events: Int16(POLLIN), revents: 0)
            return poll(&polled, 1, milliseconds) > 0 ? [Self.bellName] : []
        }
        return withUnsafeTemporaryAllocation(of: UInt64.self, capacity: 64) { names in
            let count = watch_wait(watch, names.baseAddress, 64, milliseconds)
            return count > 0 ? Array(names[..<Int(count)]) : []
        }
    }

    private func hearBell() {
        var count: UInt64 = 0
        _ = read(bell, &count, 8)
        let (refused, returned) = exchange.withLock { exchange in
            defer { (exchange.refused, exchange.returned) = ([], []) }
            return (exchange.refused, exchange.returned)
        }
        for descriptor in refused { Glibc.close(descriptor) }
        ready.prepend(contentsOf: returned)
    }

    private func takeOn() {
        guard pausedUntil == nil else { return }
        for _ in 0..<Self.acceptsPerRound {
            let descriptor = socket_accept(listener)
            guard descriptor >= 0 else {
                switch errno {
                case EAGAIN: return
                case EMFILE, ENFILE, ENOBUFS, ENOMEM: return makeRoom()
                // An error of that one connection, which is gone.
                default: continue
                }
            }
            let name = nextName
            nextName += 1
            silent[name] = Silent(descriptor: descriptor, since: .now())
            if let victim = waiting.arrive(name, using: &generator) { drop(victim, .crowdedOut) }
            // Dialers have usually sent their preamble by now.
            guard hear(name) else { continue }
            silent[name]?.isWatched = true
            if watch_add(watch, descriptor, name) != 0 { drop(name, .disconnected) }
        }
    }

    /// No descriptor is left: drops the oldest pending connection. If there is none, pauses accepting.
    private func makeRoom() {
        if let oldest = waiting.first() { return drop(oldest, .crowdedOut) }
        _ = watch_remove(watch, listener)
        pausedUntil = .now() + Self.pause
    }

    private func resumeAccepting() {
        guard let until = pausedUntil, until <= .now() else { return }
        pausedUntil = nil
        _ = watch_add(watch, listener, Self.listenerName)
    }

    /// Reads from a silent connection. Returns whether it still waits for more.
    @discardableResult private func hear(_ name: UInt64) -> Bool {
        guard var connection = silent[name] else { return false }
        let count = recv(connection.descriptor, buffer.baseAddress, buffer.count, 0)
        if count < 0, errno == EAGAIN || errno == EINTR { return true }
        guard count > 0 else {
            drop(name, .disconnected)
            return false
        }
        connection.bytes += buffer[..<count]
        guard connection.bytes.count >= Preamble.byteCount else {
            silent[name] = connection
            return true
        }
        silent[name] = nil
        waiting.leave(name)
        if connection.isWatched { _ = watch_remove(watch, connection.descriptor) }
        ready.append(
            Arrival(
                descriptor: connection.descriptor,
                opening: Opening(
                    bytes: connection.bytes, since: connection.since,
                    network: DatagramAddress.Network(SocketAddress(boundBy: connection.descriptor, isPeer: true)))))
        return false
    }

    private func drop(_ name: UInt64, _ rejection: Rejection) {
        guard let connection = silent.removeValue(forKey: name) else { return }
        waiting.leave(name)
        Glibc.close(connection.descriptor)
        if rejections.count < limits.connectionsBeforeToken { rejections.append(rejection) }
    }

    private func expire(_ limit: Int) {
        let now = NIODeadline.now()
        for _ in 0..<limit {
            guard let oldest = waiting.first(), let connection = silent[oldest],
                connection.since + limits.actTimeout <= now
            else { return }
            drop(oldest, .timedOut)
        }
    }

    private func handOver() {
        guard !ready.isEmpty || !rejections.isEmpty else { return }
        let batch = Array(ready.prefix(Self.batchCount))
        let isHandedOver = exchange.withLock { exchange in
            exchange.isAwaited = exchange.isLoopBusy
            guard !exchange.isLoopBusy, !exchange.isClosed else { return false }
            exchange.isLoopBusy = true
            return true
        }
        guard isHandedOver else { return }
        let rejections = rejections
        self.rejections = []
        ready.removeFirst(batch.count)
        loop.execute { self.receive(batch, rejections) }
    }

    private func receive(_ batch: [Arrival], _ rejections: [Rejection]) {
        for rejection in rejections { reception.rejected(rejection) }
        var refused: [CInt] = []
        var channels = 0
        var next = 0
        while next < batch.count, channels < Self.channelsPerBatch {
            let arrival = batch[next]
            if exchange.withLock({ $0.isClosed }) {
                refused.append(arrival.descriptor)
            } else if let rejection = reception.refuses(arrival.opening) {
                refused.append(arrival.descriptor)
                reception.rejected(rejection)
            } else {
                channels += 1
                open(arrival)
            }
            next += 1
        }
        let returned = batch[next...]
        let isHeard = exchange.withLock { exchange in
            exchange.isLoopBusy = false
            guard !exchange.isClosed else { return false }
            exchange.refused += refused
            exchange.returned += returned
            if exchange.isAwaited || !refused.isEmpty || !returned.isEmpty { ring() }
            return true
        }
        guard !isHeard else { return }
        for descriptor in refused { Glibc.close(descriptor) }
        for arrival in returned { Glibc.close(arrival.descriptor) }
    }

    private func open(_ arrival: Arrival) {
        let accept = reception.accept
        _ = bootstrap.channelInitializer { channel in
            channel.eventLoop.makeCompletedFuture { try accept(channel, arrival.opening) }
        }.withConnectedSocket(arrival.descriptor)
    }
}
