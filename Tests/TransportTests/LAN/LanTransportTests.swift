import NIOCore
import NIOEmbedded
import Testing
import Transport

/// A network whose sockets open and fail on command. Confined to its loop.
private final class ScriptedLan: LanNetwork, @unchecked Sendable {
    final class Socket: LanSocket {
        var announced: [[UInt8]] = []
        var answered: [LanPlace] = []
        var isClosed = false

        func announce(_ bytes: [UInt8]) { announced.append(bytes) }
        func answer(_ bytes: [UInt8], to source: LanPlace) { answered.append(source) }
        func close() { isClosed = true }
    }

    struct Refusal: Error {}

    let loop = EmbeddedEventLoop()
    var opening: [(role: LanSocketRole, promise: EventLoopPromise<NIOLoopBound<any LanSocket>>)] = []
    var sockets: [LanSocketRole: Socket] = [:]
    var receivers: [LanSocketRole: @Sendable (LanPlace, [UInt8]) -> Void] = [:]

    func interfaces() -> [LanInterface]? { [] }

    func watch(on loop: any EventLoop, changed: @escaping @Sendable () -> Void) -> EventLoopFuture<any Channel> {
        loop.makeFailedFuture(Refusal())
    }

    func open(
        _ role: LanSocketRole, port: UInt16, on loop: any EventLoop,
        receive: @escaping @Sendable (LanPlace, [UInt8]) -> Void
    ) -> EventLoopFuture<NIOLoopBound<any LanSocket>> {
        let promise = loop.makePromise(of: NIOLoopBound<any LanSocket>.self)
        opening.append((role, promise))
        receivers[role] = receive
        return promise.futureResult
    }

    var allAreClosed: Bool { !sockets.values.contains { !$0.isClosed } }

    func settle(_ succeeds: (LanSocketRole) -> Bool = { _ in true }) {
        let waiting = opening
        opening = []
        for (role, promise) in waiting {
            guard succeeds(role) else {
                promise.fail(Refusal())
                continue
            }
            let socket = Socket()
            sockets[role] = socket
            promise.succeed(NIOLoopBound(socket, eventLoop: loop))
        }
    }
}

@Suite("Sockets of LAN discovery") struct LanTransportTests {
    private final class Told: @unchecked Sendable {
        var changes = 0
        var datagrams: [[UInt8]] = []
        var troubles: [(LanSocketRole, Bool)] = []
    }

    private let network = ScriptedLan()
    private let told = Told()
    private let transport: LanTransport
    private let place = LanPlace(interface: 3, address: IPAddress(10, 0, 0, 1), port: 7_440)
    private let source = LanPlace(interface: 3, address: IPAddress(10, 0, 0, 2), port: 9)

    init() {
        let told = told
        transport = LanTransport(
            loop: network.loop, network: network, port: 7_441, receive: { _, bytes in told.datagrams.append(bytes) },
            troubled: { role, error in told.troubles.append((role, error != nil)) })
    }

    private func interface(_ addresses: [IPAddress]) -> LanInterface {
        LanInterface(
            index: 3, name: "eth0",
            addresses: addresses.map { LanInterface.Own(address: $0, prefixLength: 24, port: 7_440) })
    }

    @Test("Each interface has a socket per address family and place; sockets open and close with their addresses")
    func following() {
        let v6 = IPAddress(high: 0xfe80_0000_0000_0000, low: 1)
        transport.update([interface([place.address, v6])], places: [place])
        #expect(
            Set(network.opening.map(\.role)) == [
                .place(place), .group(interface: 3, isIPv4: true), .group(interface: 3, isIPv4: false),
            ])
        // A socket that is being opened is not opened again.
        transport.update([interface([place.address, v6])], places: [place])
        #expect(network.opening.count == 3)
        network.settle()
        #expect(transport.openCount == 3)
        let moved = LanPlace(interface: 3, address: IPAddress(10, 0, 0, 9), port: 7_440)
        transport.update([interface([moved.address])], places: [moved])
        #expect(network.opening.map(\.role) == [.place(moved)])
        #expect(network.sockets[.place(place)]?.isClosed == true)
        #expect(network.sockets[.group(interface: 3, isIPv4: false)]?.isClosed == true)
        #expect(network.sockets[.group(interface: 3, isIPv4: true)]?.isClosed == false)
        network.settle()
        transport.announce([1], from: moved)
        transport.announce([2], from: place)
        transport.answer([3], from: moved, to: source)
        #expect(network.sockets[.place(moved)]?.announced == [[1]])
        #expect(network.sockets[.place(moved)]?.answered == [source])
        transport.close()
        #expect(network.allAreClosed)
        #expect(transport.openCount == 0)
    }

    @Test("A socket that cannot be opened is reported once, retried, and reported again when it opens") func trouble() {
        for round in 1...4 {
            let isWell = transport.update([interface([place.address])], places: [place])
            #expect(isWell == (round == 1))
            network.settle { $0 != .place(place) }
        }
        #expect(told.troubles.count == 1)
        #expect(told.troubles.first?.0 == .place(place) && told.troubles.first?.1 == true)
        #expect(transport.openCount == 1)
        transport.update([interface([place.address])], places: [place])
        network.settle()
        #expect(told.troubles.count == 2)
        #expect(told.troubles.last?.1 == false)
        #expect(transport.update([interface([place.address])], places: [place]))
        #expect(network.opening.isEmpty)
    }

    @Test("A socket that opens when it is no longer wanted, or after the end, is closed") func late() {
        transport.update([interface([place.address])], places: [place])
        transport.update([], places: [])
        network.settle()
        #expect(transport.openCount == 0)
        #expect(network.sockets.count == 2 && network.allAreClosed)
        transport.update([interface([place.address])], places: [place])
        transport.close()
        network.settle()
        #expect(network.allAreClosed)
        transport.update([interface([place.address])], places: [place])
        #expect(network.opening.isEmpty)
    }

    @Test("Received datagrams are handed on until the end") func receiving() {
        let told = told
        transport.update([interface([place.address])], places: [place])
        network.settle()
        network.receivers[.place(place)]?(source, [7])
        network.receivers[.group(interface: 3, isIPv4: true)]?(source, [8])
        #expect(told.datagrams == [[7], [8]])
        transport.close()
        network.receivers[.place(place)]?(source, [9])
        #expect(told.datagrams == [[7], [8]])
    }

    @Test("A host to be dialled is an address, with its interface where the address needs one") func hosts() {
        #expect(IPAddress(10, 0, 0, 1).host(interface: 3) == "10.0.0.1")
        #expect(IPAddress(169, 254, 0, 1).host(interface: 3) == "169.254.0.1")
        #expect(IPAddress(high: 0xfe80_0000_0000_0000, low: 1).host(interface: 3) == "fe80::1%3")
        #expect(IPAddress(high: 0x2001_0db8_0000_0000, low: 1).host(interface: 3) == "2001:db8::1")
    }
}
