import NIOCore

/// A bound UDP socket of LAN discovery. To be used on its event loop alone.
package protocol LanSocket: AnyObject {
    /// Sends to the group. What the system refuses is lost, as on the way.
    func announce(_ bytes: [UInt8])
    /// Sends to one machine.
    func answer(_ bytes: [UInt8], to source: LanPlace)
    /// Nothing comes or goes any more.
    func close()
}

/// What a socket of LAN discovery is for.
package enum LanSocketRole: Hashable, Sendable {
    /// Takes what is announced to the group on one interface.
    case group(interface: UInt32, isIPv4: Bool)
    /// Announces from one address of ours, and takes the answers.
    case place(LanPlace)

    package var interface: UInt32 {
        switch self {
        case .group(let interface, _): interface
        case .place(let place): place.interface
        }
    }
}

/// Where multicast datagrams come from. ``Sockets`` are the kernel's.
package protocol LanNetwork: Sendable {
    /// The machine's interfaces, without ports; `nil` when the system cannot be asked now.
    func interfaces() -> [LanInterface]?
    /// Calls `changed` on `loop` when interfaces or addresses may have changed, until the channel is closed.
    /// - Returns: a future that fails where this cannot be told; the owner looks from time to time.
    func watch(on loop: any EventLoop, changed: @escaping @Sendable () -> Void) -> EventLoopFuture<any Channel>
    /// Binds.
    /// - Parameters:
    ///   - port: of the group, UDP.
    ///   - receive: called on `loop` for each datagram.
    /// - Returns: a future that fails with the system's error: an address that has only just come may not be ready yet.
    func open(
        _ role: LanSocketRole, port: UInt16, on loop: any EventLoop,
        receive: @escaping @Sendable (LanPlace, [UInt8]) -> Void
    ) -> EventLoopFuture<NIOLoopBound<any LanSocket>>
}

/// The sockets of LAN discovery, one for each interface and family to hear the group, one for each address to announce
/// from: opened as interfaces appear, closed as they go. On one event loop, as the transports.
///
/// `@unchecked Sendable` for the owner's sake, an actor on that loop.
package final class LanTransport: @unchecked Sendable {
    private enum Slot {
        case opening
        case open(any LanSocket)
    }

    private let loop: any EventLoop
    private let network: any LanNetwork
    private let port: UInt16
    private let receive: (LanPlace, [UInt8]) -> Void
    /// A socket could not be opened, or could after all; each said once.
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

    /// Sockets that are open.
    package var openCount: Int { sockets.values.count { if case .open = $0 { true } else { false } } }

    /// Opens what is missing and closes what is no longer wanted. What could not be opened is tried again the next time.
    /// - Returns: whether nothing of what is wanted has failed so far.
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
                // It may be unwanted by now, or wanted again and another one is on its way.
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
