import NIOCore
import NIOEmbedded
import Testing

@testable import Transport

/// A network whose sockets and memberships fail on command. Confined to its loop.
private final class ScriptedLan: LanNetwork, @unchecked Sendable {
    final class Socket: LanSocket {
        let isIPv4: Bool
        let isListener: Bool
        let localAddress = try! SocketAddress(ipAddress: "0.0.0.0", port: 0)
        let receive: @Sendable ((DatagramAddress, [UInt8])?) -> Void
        var sent: [(bytes: [UInt8], to: DatagramAddress)] = []
        var interfaces: Set<UInt32> = []
        var refused: Set<UInt32> = []
        var isClosed = false

        init(_ isIPv4: Bool, _ isListener: Bool, _ receive: @escaping @Sendable ((DatagramAddress, [UInt8])?) -> Void) {
            (self.isIPv4, self.isListener, self.receive) = (isIPv4, isListener, receive)
        }

        func setMembership(of interface: UInt32, _ isMember: Bool) -> CInt {
            guard !refused.contains(interface) else { return 19 }
            if isMember { interfaces.insert(interface) } else { interfaces.remove(interface) }
            return 0
        }
        func send(_ bytes: [UInt8], to address: DatagramAddress) { sent.append((bytes, address)) }
        func flush() {}
        func close() { isClosed = true }
    }

    let loop = EmbeddedEventLoop()
    var refuses = false
    var opened: [Socket] = []

    func interfaces() -> [LanInterface]? { [] }

    func watch(on loop: any EventLoop, changed: @escaping @Sendable () -> Void) -> EventLoopFuture<any Channel> {
        loop.makeFailedFuture(ChannelError.operationUnsupported)
    }

    func open(
        isIPv4: Bool, port: UInt16?, on loop: any EventLoop,
        receive: @escaping @Sendable ((DatagramAddress, [UInt8])?) -> Void
    ) throws(ListenFailure) -> any LanSocket {
        if refuses { throw .system(Endpoint(host: "", port: 0), 24) }
        let socket = Socket(isIPv4, port != nil, receive)
        opened.append(socket)
        return socket
    }

    func socket(_ isIPv4: Bool, isListener: Bool) -> Socket? {
        opened.last { !$0.isClosed && $0.isIPv4 == isIPv4 && $0.isListener == isListener }
    }
}

@Suite("Sockets of LAN discovery") struct LanTransportTests {
    private final class Told: @unchecked Sendable {
        var datagrams: [(LanPlace, [UInt8])] = []
        var troubles: [(UInt32, Bool)] = []
    }

    private let network = ScriptedLan()
    private let told = Told()
    private let transport: LanTransport
    private let place = LanPlace(interface: 3, address: IPAddress(10, 0, 0, 1), port: 7_440)
    private let source = LanPlace(interface: 3, address: IPAddress(10, 0, 0, 2), port: 9)
    private let v6 = IPAddress(high: 0xfe80_0000_0000_0000, low: 1)

    init() {
        let told = told
        transport = LanTransport(
            loop: network.loop, network: network, port: 7_441, receive: { told.datagrams.append(($0, $1)) },
            troubled: { told.troubles.append(($0, $1 != nil)) })
    }

    private func interface(_ addresses: [IPAddress], index: UInt32 = 3) -> LanInterface {
        LanInterface(
            index: index, name: "eth\(index)",
            addresses: addresses.map { LanInterface.Own(address: $0, prefixLength: 24, port: 7_440) })
    }

    @Test("An address family has one socket on the group, which follows the interfaces, and one for each set of places")
    func following() throws {
        transport.update(
            [interface([place.address, v6]), interface([IPAddress(10, 1, 0, 1)], index: 4)], places: [place])
        let group = try #require(network.socket(true, isListener: true))
        #expect(group.interfaces == [3, 4])
        #expect(network.socket(false, isListener: true)?.interfaces == [3])
        #expect(network.opened.count == 3)
        let old = try #require(network.socket(true, isListener: false))
        let moved = LanPlace(interface: 3, address: IPAddress(10, 0, 0, 9), port: 7_440)
        transport.update([interface([moved.address])], places: [moved])
        #expect(group.interfaces == [3] && !group.isClosed)
        #expect(network.socket(false, isListener: true) == nil)
        let new = try #require(network.socket(true, isListener: false))
        #expect(old.isClosed && network.opened.count == 4)
        transport.announce([1], from: moved)
        transport.announce([2], from: place)
        transport.send([3], from: moved, to: source)
        #expect(new.sent.map(\.bytes) == [[1], [3]])
        #expect(new.sent.map(\.to.port) == [7_441, 9])
        #expect(new.sent.map(\.to.ip) == [LanLimits.group4.zoned(3), source.address])
        #expect(new.sent.map(\.to.local) == [moved.address.zoned(3), moved.address.zoned(3)])
        transport.close()
        #expect(!network.opened.contains { !$0.isClosed })
        transport.update([interface([place.address])], places: [place])
        #expect(network.opened.count == 4)
    }

    @Test(
        "An interface that fails is reported once, retried, and reported again when it works", arguments: [true, false])
    func trouble(isWhole: Bool) {
        let interfaces = [interface([place.address])]
        let places = isWhole ? [place] : []
        network.refuses = isWhole
        if !isWhole {
            transport.update([interface([IPAddress(10, 1, 0, 1)], index: 4)], places: [])
            network.opened[0].refused = [3]
        }
        for _ in 1...3 { #expect(!transport.update(interfaces, places: places)) }
        #expect(told.troubles.map(\.0) == [3] && told.troubles.map(\.1) == [true])
        network.refuses = false
        for socket in network.opened { socket.refused = [] }
        #expect(transport.update(interfaces, places: places))
        #expect(told.troubles.map(\.0) == [3, 3] && told.troubles.map(\.1) == [true, false])
        #expect(transport.update(interfaces, places: places))
        #expect(told.troubles.count == 2)
    }

    @Test func `Datagrams to the group on a joined interface and to a place are handed on until the end`() throws {
        transport.update([interface([place.address])], places: [place])
        let group = try #require(network.socket(true, isListener: true))
        let own = try #require(network.socket(true, isListener: false))
        func arrive(_ socket: ScriptedLan.Socket, _ local: IPAddress?, _ interface: UInt32, _ byte: UInt8) {
            socket.receive((DatagramAddress(source.address, port: 9, local: local?.zoned(interface)), [byte]))
        }
        arrive(group, LanLimits.group4, 3, 1)
        arrive(group, LanLimits.group4, 4, 2)
        arrive(group, place.address, 3, 3)
        arrive(group, nil, 3, 4)
        arrive(own, place.address, 3, 5)
        // From this machine, by its loopback interface.
        arrive(own, place.address, 1, 6)
        arrive(own, IPAddress(10, 0, 0, 7), 3, 7)
        #expect(told.datagrams.map(\.1) == [[1], [5], [6]])
        #expect(told.datagrams.map(\.0) == [source, source, source])
        transport.close()
        arrive(group, LanLimits.group4, 3, 8)
        arrive(own, place.address, 3, 9)
        #expect(told.datagrams.count == 3)
    }

    @Test func `A host to be dialled is an address, with its interface where the address needs one`() {
        #expect(IPAddress(10, 0, 0, 1).host(interface: 3) == "10.0.0.1")
        #expect(IPAddress(169, 254, 0, 1).host(interface: 3) == "169.254.0.1")
        #expect(IPAddress(high: 0xfe80_0000_0000_0000, low: 1).host(interface: 3) == "fe80::1%3")
        #expect(IPAddress(high: 0x2001_0db8_0000_0000, low: 1).host(interface: 3) == "2001:db8::1")
    }
}
