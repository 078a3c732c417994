import Testing

@testable import Transport

@Suite("Gateways") struct RouteTableTests {
    @Test func `The default route with the least metric is taken, for either family; others are skipped`() {
        let four = """
            Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
            eth0\t00000000\t0100000A\t0003\t0\t0\t200\t00000000\t0\t0\t0
            wlan0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
            tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\t0\t0
            half\t00000000\t0901A8C0\t0003\t0\t0\t0\t00000080\t0\t0\t0
            down\t00000000\t0801A8C0\t0002\t0\t0\t0\t00000000\t0\t0\t0
            eth0\t0000000A\t00000000\t0001\t0\t0\t200\t00FFFFFF\t0\t0\t0
            """
        let expected = DefaultRoute(gateway: gateway, interface: "wlan0", metric: 100)
        #expect(RouteTable.ipv4(four) == expected)
        let none = "00000000000000000000000000000000"
        let six = """
            20010db8000000000000000000000000 40 \(none) 00 \(none) 00000100 00000001 00000000 00000001 eth0
            \(none) 00 \(none) 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 eth0
            \(none) 00 \(none) 00 \(none) ffffffff 00000001 00000000 00200200 lo
            """
        #expect(RouteTable.ipv6(six) == DefaultRoute(gateway: here6.gateway, interface: "eth0", metric: 0x400))
        for text in ["", "\n\n", "Iface", "a b c d e f g h i j k", four.replacing("0003", with: "000x")] {
            #expect(RouteTable.ipv4(text) == nil && RouteTable.ipv6(text) == nil)
        }
        for count in 0..<four.utf8.count { _ = RouteTable.ipv4(String(four.prefix(count))) }
        for count in 0..<six.utf8.count { _ = RouteTable.ipv6(String(six.prefix(count))) }
    }

    @Test func `An outer address that is private, loopback, link-local, multicast, shared or unspecified is refused`() {
        for address in [
            IPAddress(0, 0, 0, 0), IPAddress(10, 1, 2, 3), IPAddress(100, 64, 0, 1), IPAddress(100, 127, 255, 255),
            IPAddress(127, 0, 0, 1), IPAddress(169, 254, 1, 1), IPAddress(172, 16, 0, 1), IPAddress(172, 31, 255, 1),
            IPAddress(192, 0, 0, 2), IPAddress(192, 168, 0, 1), IPAddress(198, 18, 0, 1), IPAddress(224, 0, 0, 1),
            IPAddress(240, 0, 0, 1), IPAddress(255, 255, 255, 255), IPAddress(high: 0, low: 0),
            IPAddress(high: 0, low: 1), IPAddress(high: 0xfe80 << 48, low: 1), IPAddress(high: 0xfd00 << 48, low: 1),
            IPAddress(high: 0xff02 << 48, low: 1),
        ] { #expect(!address.isGlobal, "\(address.bytes)") }
        for address in [
            outer, local6, IPAddress(1, 1, 1, 1), IPAddress(9, 255, 255, 255), IPAddress(11, 0, 0, 0),
            IPAddress(100, 63, 0, 1), IPAddress(100, 128, 0, 0), IPAddress(172, 15, 0, 1), IPAddress(172, 32, 0, 1),
            IPAddress(192, 0, 2, 1), IPAddress(192, 169, 0, 1), IPAddress(198, 20, 0, 1), IPAddress(223, 255, 255, 255),
        ] { #expect(address.isGlobal, "\(address.bytes)") }
    }
}
