import Messaging
import NodeRuntime
import Testing
import Transport

private typealias Endpoint = Messaging.Endpoint

@Suite("The addresses that a node tells others") struct ReachableAddressesTests {
    private func interface(_ index: UInt32, _ kind: LanInterface.Kind = .device, _ addresses: LanInterface.Own...)
        -> LanInterface
    { LanInterface(index: index, name: "if\(index)", kind: kind, addresses: addresses) }

    private func own(_ text: String, isDefault: Bool = false) -> LanInterface.Own {
        LanInterface.Own(address: IPAddress(text: text)!, prefixLength: 24, isDefault: isDefault)
    }

    private let both = [Endpoint(host: "0.0.0.0", port: 7_440), Endpoint(host: "::", port: 7_440)]

    private func hosts(_ endpoints: [Endpoint]) -> [String] { endpoints.map(\.host) }

    @Test(
        "addresses toward other networks come first, then one of each interface, the rest, and container bridges last")
    func order() {
        let machine = [
            interface(1, .loopback, own("127.0.0.1"), own("::1"), own("192.0.2.53")),
            interface(2, .bridge, own("172.17.0.1")), interface(3, .device, own("10.0.0.1")),
            interface(
                4, .device, own("10.1.0.1"), own("10.1.0.2", isDefault: true), own("2001:db8::7", isDefault: true),
                own("fe80::1")),
        ]
        let found = ReachableAddresses(listeners: both, interfaces: machine)
        #expect(hosts(found.told) == ["10.1.0.2", "2001:db8::7", "192.0.2.53", "10.0.0.1", "10.1.0.1", "172.17.0.1"])
        // Each interface has a link-local address, so that is not reported.
        #expect(found.untold.isEmpty && !found.isThisMachineAlone)
    }

    @Test func `a temporary IPv6 address comes after the address of a VPN`() {
        let machine = [
            interface(
                2, .device, own("10.0.0.1", isDefault: true), own("2001:db8::7", isDefault: true),
                own("2001:db8::1834:9a1b"), own("fd00::7")),
            interface(3, .device, own("100.87.12.201"), own("fd7a:115c:a1e0::1")),
        ]
        #expect(
            hosts(ReachableAddresses(listeners: both, interfaces: machine).told) == [
                "10.0.0.1", "2001:db8::7", "100.87.12.201", "fd7a:115c:a1e0::1", "2001:db8::1834:9a1b", "fd00::7",
            ])
    }

    @Test("with too many addresses bridges are left out first, and an address used by links comes before others")
    func tooMany() {
        var machine = (0..<12).map { interface(UInt32($0 + 10), .bridge, own("172.\($0 + 17).0.1")) }
        machine.append(interface(1, .device, own("10.0.0.1", isDefault: true)))
        let found = ReachableAddresses(listeners: both, interfaces: machine)
        #expect(found.told.count == 8 && found.told[0].host == "10.0.0.1" && found.told[7].host == "172.23.0.1")
        #expect(found.untold.count == 5 && found.untold.allSatisfy { $0.reason == .ofContainers })
        #expect(found.untold[0].interface == "if17")
        let met = ReachableAddresses(listeners: both, interfaces: machine, met: { [IPAddress(172, 28, 0, 1)] })
        #expect(met.told.count == 8 && met.told.last?.host == "172.28.0.1")
        #expect(Set(hosts(met.told)).isSuperset(of: ["10.0.0.1", "172.17.0.1", "172.22.0.1"]))
        #expect(ReachableAddresses(listeners: both, interfaces: machine, room: 0).told.isEmpty)
    }

    @Test func `a link-local address is never told, whether listened on, advertised, or the only one`() {
        let machine = [
            interface(1, .loopback, own("127.0.0.1")), interface(2, .device, own("fe80::1"), own("169.254.1.2")),
        ]
        for host in ["fe80::1%if2", "fe80::1", "169.254.1.2", "febf::7"] {
            let endpoint = Endpoint(host: host, port: 7_440)
            let listened = ReachableAddresses(listeners: [endpoint], interfaces: machine)
            #expect(listened.told.isEmpty && !listened.isThisMachineAlone)
            #expect(listened.untold.map(\.reason) == [.linkLocal] && listened.untold[0].endpoint == endpoint)
            let advertised = ReachableAddresses(advertised: [endpoint, both[0]], interfaces: machine)
            #expect(advertised.told == [both[0]] && advertised.untold.map(\.reason) == [.linkLocal])
        }
        let alone = ReachableAddresses(listeners: both, interfaces: machine)
        #expect(hosts(alone.told) == ["127.0.0.1", "::1"] && alone.isThisMachineAlone)
        #expect(alone.untold.map(\.interface) == ["if2", "if2"])
        // fec0::/10 is no longer link-local.
        #expect(ReachableAddresses(listeners: [Endpoint(host: "fec0::1", port: 1)], interfaces: []).told.count == 1)
    }

    @Test func `a loopback listener is told only when there is no other listener`() {
        let own = Endpoint(host: "127.0.0.1", port: 1)
        let other = Endpoint(host: "10.0.0.1", port: 2)
        #expect(ReachableAddresses(listeners: [own], interfaces: []).told == [own])
        #expect(ReachableAddresses(listeners: [own], interfaces: []).isThisMachineAlone)
        #expect(ReachableAddresses(listeners: [own, other], interfaces: []).told == [other])
        let name = Endpoint(host: "desk.example.org", port: 3)
        #expect(ReachableAddresses(listeners: [other, name], interfaces: []).told == [name, other])
    }
}
