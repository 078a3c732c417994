import Testing

@testable import Transport

@Suite("Interfaces of a machine") struct LanInterfaceTests {
    private func interface(
        _ index: UInt32, _ kind: LanInterface.Kind, master: UInt32? = nil, _ addresses: LanInterface.Own...
    ) -> LanInterface {
        LanInterface(index: index, name: "if\(index)", kind: kind, master: master, addresses: addresses)
    }

    private func own(_ a: UInt8, _ b: UInt8, isDefault: Bool = false) -> LanInterface.Own {
        LanInterface.Own(address: IPAddress(a, b, 0, 1), prefixLength: 16, isDefault: isDefault)
    }

    private let linkLocal = LanInterface.Own(address: IPAddress(high: 0xfe80_0000_0000_0000, low: 1), prefixLength: 64)

    @Test func `Container bridges, their ports and cables with only link-local addresses are no LAN interfaces`() {
        let machine = [
            interface(1, .loopback, own(127, 0)), interface(2, .device, own(10, 1, isDefault: true)),
            // docker0 with a container, and a bridge without one.
            interface(3, .bridge, own(172, 17)), interface(4, .veth, master: 3, linkLocal),
            interface(5, .bridge, own(172, 18)),
            // A bridge that holds the addresses of one of the machine's cables.
            interface(6, .bridge, own(10, 2)), interface(7, .device, master: 6, linkLocal),
            // A cable to a container, and a container's own interface.
            interface(8, .veth, linkLocal), interface(9, .veth, own(10, 3), linkLocal),
            interface(10, .software, own(10, 4)),
        ]
        #expect(machine.outward.map(\.index) == [2, 6, 9, 10])
        #expect(machine.near(named: nil).map(\.index) == [2, 6, 9, 10])
        #expect(machine.near(named: ["if3", "if77"]).map(\.index) == [3])
    }

    @Test("A bridge with the default route is outward whatever its ports are; two namespaces on one cable are near")
    func exceptions() {
        #expect(
            [interface(1, .bridge, own(10, 1, isDefault: true)), interface(2, .veth, master: 1)].outward.count == 1)
        let cable = [interface(1, .loopback, own(127, 0)), interface(2, .veth, linkLocal)]
        #expect(cable.outward.isEmpty)
        #expect(cable.dropFirst().map { $0 }.near(named: nil).map(\.index) == [2])
    }

    private func native(_ number: some FixedWidthInteger) -> [UInt8] { withUnsafeBytes(of: number) { Array($0) } }

    private func attribute(_ type: UInt16, _ value: [UInt8]) -> [UInt8] {
        native(UInt16(4 + value.count)) + native(type) + value + [UInt8](repeating: 0, count: (4 - value.count % 4) % 4)
    }

    private func message(_ type: UInt16, _ body: [UInt8]) -> [UInt8] {
        native(UInt32(16 + body.count)) + native(type) + [UInt8](repeating: 0, count: 10) + body
    }

    private func link(_ index: UInt32, flags: UInt32, _ attributes: [UInt8]) -> [UInt8] {
        message(16, [0, 0, 0, 0] + native(index) + native(flags) + [0, 0, 0, 0] + attributes)
    }

    @Test("The kernel's answers give names, kinds, ports, prefixes and usable addresses; truncated ones are skipped")
    func dump() {
        let links =
            link(1, flags: 0x49, attribute(3, Array("lo\0".utf8)))
            + link(2, flags: 0x1043, attribute(3, Array("eth0\0".utf8)))
            + link(
                3, flags: 0x1043,
                attribute(3, Array("br0\0".utf8)) + attribute(18, attribute(1, Array("bridge\0".utf8))))
            + link(
                4, flags: 0x1043,
                attribute(3, Array("v\0".utf8)) + attribute(10, native(UInt32(3)))
                    + attribute(18, attribute(1, Array("veth\0".utf8)) + attribute(4, Array("bridge\0".utf8))))
            + link(
                5, flags: 0x1043,
                attribute(3, Array("red\0".utf8)) + attribute(10, native(UInt32(9)))
                    + attribute(18, attribute(4, Array("vrf\0".utf8))))
        func address(_ index: UInt32, _ prefix: UInt8, flags: UInt8 = 0, _ attributes: [UInt8]) -> [UInt8] {
            message(20, [2, prefix, flags, 0] + native(index) + attributes)
        }
        // IFA_ADDRESS is the peer's address where IFA_LOCAL is present (rtnetlink(7)). Addresses of the third interface
        // are optimistic, tentative and a duplicate of another machine's.
        let addresses =
            address(2, 24, attribute(1, [10, 0, 0, 9]) + attribute(2, [10, 0, 0, 1]))
            + address(3, 16, flags: 0x44, attribute(1, [172, 17, 0, 1]))
            + address(3, 16, flags: 0x40, attribute(1, [172, 17, 0, 2]))
            + address(3, 16, flags: 0x48, attribute(1, [172, 17, 0, 3]))
        func read(_ links: [UInt8], _ addresses: [UInt8]) -> [LanInterface] {
            InterfaceDump.interfaces(links: links, addresses: addresses) { $0 == IPAddress(10, 0, 0, 1) }
        }
        let found = read(links, addresses)
        #expect(found.map(\.name) == ["lo", "eth0", "br0", "v", "red"])
        #expect(found.map(\.kind) == [.loopback, .device, .bridge, .veth, .device])
        #expect(found.map(\.master) == [nil, nil, nil, 3, nil])
        #expect(found.map(\.hasMulticast) == [false, true, true, true, true])
        #expect(found[1].addresses == [.init(address: IPAddress(10, 0, 0, 1), prefixLength: 24, isDefault: true)])
        #expect(found[2].addresses == [.init(address: IPAddress(172, 17, 0, 1), prefixLength: 16)])
        for length in links.indices { _ = read(Array(links.prefix(length)), Array(addresses.prefix(length))) }
        for index in links.indices {
            var bent = links
            bent[index] = 0xff
            _ = read(bent, addresses)
        }
        #expect(InterfaceDump.end(of: message(3, [0, 0, 0, 0])[...]) == (true, false))
        #expect(InterfaceDump.end(of: message(2, native(Int32(-1)))[...]) == (true, true))
        #expect(InterfaceDump.end(of: links[...]) == (false, false))
    }

    @Test func `The kernel of this machine answers, and lists its loopback`() throws {
        let found = try #require(Sockets().interfaces())
        let loopback = try #require(found.first { $0.kind == .loopback })
        #expect(loopback.addresses.isEmpty || loopback.addresses.contains { $0.address.isLoopback })
        #expect(!found.outward.contains { $0.kind == .loopback && !$0.addresses.contains(where: \.isDefault) })
    }
}
