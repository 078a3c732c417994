import NIOCore

/// A bound UDP socket of LAN discovery. Use it only on its event loop.
package protocol LanSocket: DatagramSocket {
    /// Joins or leaves the group on an interface.
    /// - Returns: the system's error; 0 for none.
    func setMembership(of interface: UInt32, _ isMember: Bool) -> CInt
}

/// The interface to multicast sockets. ``Sockets`` is the kernel's.
package protocol LanNetwork: Sendable {
    /// The machine's interfaces, without ports; `nil` if the system refuses.
    func interfaces() -> [LanInterface]?
    /// Calls `changed` on `loop` when interfaces or addresses may have changed, until the channel is closed.
    /// - Returns: a future that fails if changes cannot be watched; the owner then polls.
    func watch(on loop: any EventLoop, changed: @escaping @Sendable () -> Void) -> EventLoopFuture<any Channel>
    /// Opens a socket of one address family, whose datagrams cross no router. It sends from their `local` address only.
    /// - Parameters:
    ///   - port: to receive multicasts; `nil` to announce from any port.
    ///   - receive: called on `loop` for each datagram, and with `nil` after each batch.
    func open(
        isIPv4: Bool, port: UInt16?, on loop: any EventLoop,
        receive: @escaping @Sendable ((DatagramAddress, [UInt8])?) -> Void
    ) throws(ListenFailure) -> any LanSocket
}

/// The sockets of LAN discovery: for each address family one that receives multicasts, and one to announce from.
///
/// `@unchecked Sendable` for the owner, an actor on that event loop.
package final class LanTransport: @unchecked Sendable {
    private struct Family {
        let isIPv4: Bool
        var listener: (any LanSocket)?
        var joined: Set<UInt32> = []
        var announcer: (any LanSocket)?
        var places: [LanPlace] = []

        var group: IPAddress { isIPv4 ? LanLimits.group4 : LanLimits.group6 }
    }

    private let loop: any EventLoop
    private let network: any LanNetwork
    private let port: UInt16
    private let receive: (LanPlace, [UInt8]) -> Void
    /// An interface failed, or works again; each is reported once.
    private let troubled: (UInt32, ListenFailure?) -> Void
    private var families = [Family(isIPv4: true), Family(isIPv4: false)]
    private var failed: Set<UInt32> = []
    private var isClosed = false

    package init(
        loop: any EventLoop, network: any LanNetwork, port: UInt16, receive: @escaping (LanPlace, [UInt8]) -> Void,
        troubled: @escaping (UInt32, ListenFailure?) -> Void
    ) {
        loop.preconditionInEventLoop()
        self.loop = loop
        self.network = network
        self.port = port
        self.receive = receive
        self.troubled = troubled
    }

    /// Receives on these interfaces, and announces from these places. Failed interfaces are tried again. False if one
    /// fails.
    @discardableResult package func update(_ interfaces: [LanInterface], places: [LanPlace]) -> Bool {
        guard !isClosed else { return true }
        var failures: [UInt32: ListenFailure] = [:]
        for index in families.indices {
            let isIPv4 = families[index].isIPv4
            listen(on: interfaces.filter { $0.addresses.contains { $0.address.isIPv4 == isIPv4 } }, index, &failures)
            announce(from: places.filter { $0.address.isIPv4 == isIPv4 }, index, &failures)
        }
        let wanted = Set(interfaces.map(\.index) + places.map(\.interface))
        let before = failed
        failed = Set(failures.keys)
        for interface in before.intersection(wanted).subtracting(failed).sorted() { troubled(interface, nil) }
        for interface in failed.subtracting(before).sorted() { troubled(interface, failures[interface]) }
        return failed.isEmpty
    }

    private func listen(on interfaces: [LanInterface], _ index: Int, _ failures: inout [UInt32: ListenFailure]) {
        let wanted = Set(interfaces.map(\.index))
        guard !wanted.isEmpty else { return stopListening(index) }
        do throws(ListenFailure) {
            if families[index].listener == nil { families[index].listener = try open(index, port: port) }
            guard let listener = families[index].listener else { return }
            for interface in families[index].joined.subtracting(wanted) {
                _ = listener.setMembership(of: interface, false)
                families[index].joined.remove(interface)
            }
            for interface in wanted.subtracting(families[index].joined).sorted() {
                let error = listener.setMembership(of: interface, true)
                if error == 0 {
                    families[index].joined.insert(interface)
                } else {
                    failures[interface] = .system(Endpoint(host: families[index].group.text, port: Int(port)), error)
                }
            }
        } catch { for interface in wanted { failures[interface] = error } }
    }

    private func stopListening(_ index: Int) {
        families[index].listener?.close()
        families[index].listener = nil
        families[index].joined = []
    }

    /// A new set of addresses gets a new port, by which nobody recognises a machine on another network.
    private func announce(from places: [LanPlace], _ index: Int, _ failures: inout [UInt32: ListenFailure]) {
        if places != families[index].places {
            families[index].announcer?.close()
            families[index].announcer = nil
        }
        families[index].places = places
        guard families[index].announcer == nil, !places.isEmpty else { return }
        do throws(ListenFailure) { families[index].announcer = try open(index, port: nil) } catch {
            for place in places { failures[place.interface] = error }
        }
    }

    private func open(_ index: Int, port: UInt16?) throws(ListenFailure) -> any LanSocket {
        let bound = NIOLoopBound(self, eventLoop: loop)
        return try network.open(isIPv4: families[index].isIPv4, port: port, on: loop) { datagram in
            guard let (source, bytes) = datagram else { return }
            bound.value.received(bytes, from: source, index, isMulticast: port != nil)
        }
    }

    private func received(_ bytes: [UInt8], from source: DatagramAddress, _ index: Int, isMulticast: Bool) {
        guard !isClosed, let local = source.local else { return }
        let family = families[index]
        let interface: UInt32?
        if isMulticast {
            interface = local.withoutZone == family.group && family.joined.contains(local.zone) ? local.zone : nil
        } else {
            // An answer of this machine comes by the loopback interface.
            let interfaces = family.places.filter { $0.address == local.withoutZone }.map(\.interface)
            interface = interfaces.contains(local.zone) ? local.zone : interfaces.first
        }
        guard let interface else { return }
        receive(LanPlace(interface: interface, address: source.ip.withoutZone, port: source.port), bytes)
    }

    /// Multicasts. Best effort: a refused datagram is lost.
    package func announce(_ bytes: [UInt8], from place: LanPlace) {
        guard let family = families.first(where: { $0.isIPv4 == place.address.isIPv4 }) else { return }
        send(bytes, from: place, to: LanPlace(interface: place.interface, address: family.group, port: port))
    }

    package func send(_ bytes: [UInt8], from place: LanPlace, to target: LanPlace) {
        guard let family = families.first(where: { $0.places.contains(place) }) else { return }
        let isOnLink = target.address.isLinkLocal || target.address.isMulticast
        family.announcer?.send(
            bytes,
            to: DatagramAddress(
                target.address.zoned(isOnLink ? target.interface : 0), port: target.port,
                local: place.address.zoned(place.interface)))
        family.announcer?.flush()
    }

    package func close() {
        isClosed = true
        for index in families.indices {
            stopListening(index)
            families[index].announcer?.close()
        }
        families = []
    }
}
