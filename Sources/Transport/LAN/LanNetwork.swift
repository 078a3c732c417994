import NIOCore

/// A bound UDP socket of LAN discovery. Use it only on its event loop.
package protocol LanSocket: AnyObject {
    /// Multicasts. Best effort: a refused datagram is lost.
    func announce(_ bytes: [UInt8])
    func answer(_ bytes: [UInt8], to source: LanPlace)
    func close()
}

package enum LanSocketRole: Hashable, Sendable {
    /// Receives multicasts on one interface.
    case group(interface: UInt32, isIPv4: Bool)
    /// Multicasts from one of our addresses, and receives the answers.
    case place(LanPlace)

    package var interface: UInt32 {
        switch self {
        case .group(let interface, _): interface
        case .place(let place): place.interface
        }
    }
}

/// The interface to multicast sockets. ``Sockets`` is the kernel's.
package protocol LanNetwork: Sendable {
    /// The machine's interfaces, without ports; `nil` if the system refuses.
    func interfaces() -> [LanInterface]?
    /// Calls `changed` on `loop` when interfaces or addresses may have changed, until the channel is closed.
    /// - Returns: a future that fails if changes cannot be watched; the owner then polls.
    func watch(on loop: any EventLoop, changed: @escaping @Sendable () -> Void) -> EventLoopFuture<any Channel>
    /// - Returns: a future that fails with the system's error: a new address may not be ready yet.
    func open(
        _ role: LanSocketRole, port: UInt16, on loop: any EventLoop,
        receive: @escaping @Sendable (LanPlace, [UInt8]) -> Void
    ) -> EventLoopFuture<NIOLoopBound<any LanSocket>>
}

/// The sockets of LAN discovery: one per interface and family to receive multicasts, one per address to announce.
/// Opened and closed as interfaces come and go.
///
/// `@unchecked Sendable` for the owner, an actor on that event loop.
package final class LanTransport: @unchecked Sendable {
    private enum Slot {
        case opening
        case open(any LanSocket)
    }

    private let loop: any EventLoop
    private let network: any LanNetwork
    private let port: UInt16
    private let receive: (LanPlace, [UInt8]) -> Void
    /// A socket failed to open, or opened after a failure; each is reported once.
    private let troubled: (LanSocketRole, (any Error)?) -> Void
    private var sockets: [LanSocketRole: Slot] = [:]
    private var failed: Set<LanSocketRole> = []
    private var isClosed = false

    package init(
        loop: any EventLoop, network: any LanNetwork, port: UInt16, receive: @escaping (LanPlace, [UInt8]) -> Void,
        troubled: @escaping (LanSocketRole, (any Error)?) -> Void
    ) {
        loop.preconditionInEventLoop()
        self.loop = loop
        self.network = network
        self.port = port
        self.receive = receive
        self.troubled = troubled
    }

    package var openCount: Int { sockets.values.count { if case .open = $0 { true } else { false } } }

    /// Opens missing sockets, also failed ones, and closes unwanted ones. False if a wanted one has failed.
    @discardableResult package func update(_ interfaces: [LanInterface], places: [LanPlace]) -> Bool {
        guard !isClosed else { return true }
        var wanted = places.map { LanSocketRole.place($0) }
        for interface in interfaces {
            for isIPv4 in [true, false] where interface.addresses.contains(where: { $0.address.isIPv4 == isIPv4 }) {
                wanted.append(.group(interface: interface.index, isIPv4: isIPv4))
            }
        }
        let all = Set(wanted)
        for (role, slot) in sockets where !all.contains(role) {
            if case .open(let socket) = slot { socket.close() }
            sockets[role] = nil
        }
        failed.formIntersection(all)
        for role in wanted where sockets[role] == nil { open(role) }
        return failed.isEmpty
    }

    private func open(_ role: LanSocketRole) {
        sockets[role] = .opening
        let bound = NIOLoopBound(self, eventLoop: loop)
        network.open(role, port: port, on: loop) { source, bytes in
            let transport = bound.value
            if !transport.isClosed { transport.receive(source, bytes) }
        }.assumeIsolated().whenComplete { [weak self] result in
            guard let self else {
                if case .success(let socket) = result { socket.value.close() }
                return
            }
            switch result {
            case .success(let socket):
                // Meanwhile the socket may be unwanted, or another attempt may be in progress.
                guard !self.isClosed, case .opening? = self.sockets[role] else { return socket.value.close() }
                self.sockets[role] = .open(socket.value)
                if self.failed.remove(role) != nil { self.troubled(role, nil) }
            case .failure(let error):
                guard case .opening? = self.sockets[role] else { return }
                self.sockets[role] = nil
                if self.failed.insert(role).inserted { self.troubled(role, error) }
            }
        }
    }

    package func announce(_ bytes: [UInt8], from place: LanPlace) {
        if case .open(let socket)? = sockets[.place(place)] { socket.announce(bytes) }
    }

    package func answer(_ bytes: [UInt8], from place: LanPlace, to source: LanPlace) {
        if case .open(let socket)? = sockets[.place(place)] { socket.answer(bytes, to: source) }
    }

    package func close() {
        isClosed = true
        for slot in sockets.values { if case .open(let socket) = slot { socket.close() } }
        sockets = [:]
    }
}
